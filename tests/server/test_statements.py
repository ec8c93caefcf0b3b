"""Warm range reads execute no statements in the catalogue.

The cost of a request before its handler: a path is compared with few routes, and no dependency runs in a thread. Memory
of the C library is used again.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

import fastapi.dependencies.utils
import httpx
import pytest
from tests.support.serve import serve

from protoslice.database.sqlite import SqliteDatabase
from protoslice.database.transactions import Work
from protoslice.server.app import create_app
from protoslice.server.routing import Route
from protoslice.server.settings import Settings


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[SqliteDatabase, str]]:
    """Return the databases and functions of this process's transactions; other tests' services may still run in it."""
    log = list[tuple[SqliteDatabase, str]]()
    for name in ("_read", "_write"):
        plain = getattr(SqliteDatabase, name)

        async def counted(self: SqliteDatabase, work: Work[Any], *, plain: Any = plain, **options: Any) -> Any:
            log.append((self, work.__qualname__))
            return await plain(self, work, **options)

        monkeypatch.setattr(SqliteDatabase, name, counted)
    return log


@pytest.mark.parametrize("auth", ["open", "tokens"])
@pytest.mark.parametrize("named", ["id", "tag"])
def test_warm_range_read_executes_no_statement(
    auth: Literal["open", "tokens"], named: str, transactions: list[tuple[SqliteDatabase, str]], tmp_path: Path
) -> None:
    settings = Settings(storage=tmp_path.as_uri(), space_watermark_bytes=0, auth=auth, trust_seconds=60)
    app = create_app(settings)
    with serve(app=app) as live, httpx.Client(base_url=live.url, timeout=30) as client:
        if app.services.initial_admin_token is not None:
            client.headers["authorization"] = f"Bearer {app.services.initial_admin_token.text}"
        data = bytes(range(256)) * 64
        made = client.put("/v1/stores?filename=a.bin&tag=m:1", content=data)
        assert made.status_code == 201, made.text
        ref = made.json()["id"] if named == "id" else "m:1"
        database = app.services.database

        def executed() -> list[str]:
            return [name for used, name in transactions if used is database]

        assert executed()

        def read(start: int) -> None:
            part = client.get(f"/v1/stores/{ref}/files/a.bin", headers={"range": f"bytes={start}-{start + 4095}"})
            assert (part.status_code, part.content) == (206, data[start : start + 4096])

        read(0)
        before = executed()
        for number in range(1, 20):
            read(number * 256)
        assert executed() == before


@pytest.mark.parametrize(
    ("path", "most"),
    [("/api/2.0/mlflow-artifacts/artifacts/run/a.txt", 6), ("/v2/team/few/manifests/v1", 20), ("/v1/tags/few", 12)],
)
def test_a_path_is_compared_with_routes_that_begin_alike(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, path: str, most: int
) -> None:
    compared: list[str] = []
    matches = Route.matches

    def noted(self: Route, scope: Any) -> Any:
        compared.append(self.path)
        return matches(self, scope)

    monkeypatch.setattr(Route, "matches", noted)
    assert client.get(path).status_code == 404
    assert 0 < len(compared) <= 2 * most, compared  # the framework matches twice


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/api/2.0/mlflow-artifacts/artifacts/run/a.txt"),
        ("GET", "/api/2.0/mlflow-artifacts/artifacts?path=run"),
        ("POST", "/v2/team/threads/blobs/uploads/"),
        ("GET", "/v2/team/threads/tags/list"),
        ("GET", "/v2/team/threads/manifests/v1"),
        ("GET", "/v1/stores"),
        ("GET", f"/v1/stores/{'0' * 64}/records"),
    ],
)
def test_a_request_goes_to_no_thread_before_its_route(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    in_threads: list[str] = []

    async def noted(work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        in_threads.append(work.__name__)
        return work(*given, **named)

    monkeypatch.setattr(fastapi.dependencies.utils, "run_in_threadpool", noted)
    assert client.request(method, path, content=b"x" if method == "PUT" else None).status_code < 500
    assert in_threads == []


_FAULTS: Final = """
import resource, sys
from protoslice.server.transport.run import keep_freed_memory
kept = sys.argv[1] == "kept" and keep_freed_memory()
assert kept or sys.argv[1] != "kept"
def turn():
    pieces = [b"x" * int(sys.argv[2]) for _ in range(4)]
for _ in range(5):
    turn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    turn()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(how: str, size: int) -> int:
    done = subprocess.run([sys.executable, "-c", _FAULTS, how, str(size)], check=True, capture_output=True, text=True)
    return int(done.stdout)


def test_pieces_fault_in_their_memory_once() -> None:
    assert _faults("kept", 1 << 20) < 500
    assert _faults("plain", 1 << 20) > 5000, "without it, each piece takes new memory"


def test_reads_of_some_mebibytes_do_too() -> None:
    """A fixed threshold below their size would be worse than glibc's own threshold, which grows."""
    assert _faults("kept", 5 << 20) < 3000
