"""The fixtures of the client's tests: a live service over memory, models to push, and a faulty proxy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.makers import graph_of
from tests.support.serve import LiveServer, serve
from tests.support.wire import FaultyProxy, faulty_proxy

from protoslice.client import Client


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder with the journals of this test's pushes."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "protoslice" / "uploads"


@pytest.fixture(scope="package")
def service() -> Iterator[LiveServer]:
    """Run a service in this process, which all tests of the package share."""
    with serve(storage="memory://", log_level="error") as live:
        yield live


@pytest.fixture(scope="module")
def client(service: LiveServer) -> Iterator[Client]:
    """A client of the service."""
    with Client(service.url) as client:
        yield client


@pytest.fixture(scope="module")
def proxy(service: LiveServer) -> Iterator[FaultyProxy]:
    """Run a proxy in front of the service."""
    with faulty_proxy(service.url, stall_seconds=1.5) as proxy:
        yield proxy


class Versions:
    """Two versions of a model of five tensors, of which one differs."""

    def __init__(self, folder: Path) -> None:
        tensors = [os.urandom(4 * 750_000) for _ in range(5)]
        self.old, self.changed = graph_of(*tensors), os.urandom(4 * 750_000)
        tensors[2] = self.changed
        self.new = graph_of(*tensors)
        self.old_path, self.new_path = folder / "old" / "graph.pb", folder / "new" / "graph.pb"
        for path, data in ((self.old_path, self.old), (self.new_path, self.new)):
            path.parent.mkdir(parents=True)
            path.write_bytes(data)


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Versions:
    """Two versions of a model."""
    return Versions(tmp_path_factory.mktemp("versions"))
