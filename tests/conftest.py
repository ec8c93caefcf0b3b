"""The fixtures and settings of all tests."""

import gc
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from tests.support.backends import BACKENDS, VARIABLE, Backend, backend
from tests.support.certificates import certificate
from tests.support.postgres import TestServer, running_postgres

# No test depends on time: a busy machine is slow, but not wrong.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# nohup and a shell's `&` make this process ignore these signals, and programs that tests start would inherit that.
for number, action in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, action)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that rewrites the transcripts of the command line."""
    parser.addoption(
        "--update-transcripts", action="store_true", help="write what commands show into tests/cli/*.console"
    )


def pytest_collection_finish() -> None:
    """Exclude the collected modules and tests from garbage collections, which took half a second each."""
    gc.collect()
    gc.freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests marked `contract` once for each storage that the environment names."""
    if "storage" in metafunc.fixturenames and metafunc.definition.get_closest_marker("contract"):
        names = os.environ.get(VARIABLE) or BACKENDS
        metafunc.parametrize("storage", names.split(","), indirect=True, scope="module")


@pytest.fixture(scope="session", autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the default storage out of the user's home, and trust no certificate authorities.

    httpx reads the file of authorities for every client. That takes 17 ms for a machine's file, but 0.3 ms for one
    certificate.
    """
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data-home"))
    os.environ["SSL_CERT_FILE"] = str(certificate(tmp_path_factory.mktemp("authorities"), "none.invalid")[1])


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Return the event loop of asynchronous tests and fixtures."""
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[TestServer]:
    """Run a PostgreSQL server for the tests of this process."""
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Yield the URL of an empty database, once for each engine."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.sqlite"
    server: TestServer = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture(params=["sqlite", "postgresql"])
def catalogue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a new catalogue, once for each engine."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/catalog.sqlite"
        return
    server: TestServer = request.getfixturevalue("postgres")
    url = server.new_catalogue()
    yield url
    server.drop(url)


@pytest.fixture(scope="module")
def storage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """Yield the storage of the tested service: memory, or another one for tests marked `contract`."""
    name = getattr(request, "param", "memory")
    with backend(name, tmp_path_factory.mktemp("storage")) as opened:
        if name == "odd":  # PostgreSQL holds the catalogue here; for all other storages SQLite does
            server: TestServer = request.getfixturevalue("postgres")
            opened = replace(opened, new_catalogue=server.new_catalogue)
        yield opened
