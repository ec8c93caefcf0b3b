"""Fixtures and settings of all tests."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings
from tests.support.backends import BACKENDS, VARIABLE, Backend, backend

# No test judges time: a busy machine is slow, and not wrong.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# nohup and a shell's `&` make this process ignore these signals; programs started by tests would inherit it.
for number, action in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, action)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests marked `contract` once for each storage that the environment names."""
    if "storage" in metafunc.fixturenames and metafunc.definition.get_closest_marker("contract"):
        names = os.environ.get(VARIABLE) or BACKENDS
        metafunc.parametrize("storage", names.split(","), indirect=True, scope="module")


@pytest.fixture(scope="module")
def storage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """Storage of the service under test: memory, but for tests marked `contract`."""
    with backend(getattr(request, "param", "memory"), tmp_path_factory.mktemp("storage")) as opened:
        yield opened
