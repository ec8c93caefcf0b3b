"""A service and its database: readiness, and refused starts.

A storage that hangs blocks a bounded number of requests; all others are answered at once.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from io import StringIO
from pathlib import Path
from typing import Final, TypeVar

import pytest
from tests.support.postgres import TestServer
from tests.support.serve import Asked, ask, logs_to, open_app
from tests.support.stores import onnx

from protoslice.errors import StorageUnavailable, Unsupported
from protoslice.server.services import ServerState
from protoslice.server.settings import Settings
from protoslice.storage import MemoryStorage, ObjectKey, Storage, register, unregister, wrappers
from protoslice.storage.interface import Abilities
from protoslice.storage.wrappers import InterceptedStorage


async def test_readiness_ends_with_the_database() -> None:
    async with open_app() as app:
        assert (await ask(app, "GET", "/readyz")).status == 200
        assert app.services.database is not None
        await app.services.database.close()
        answer = await ask(app, "GET", "/readyz")
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert "/problems/database-unavailable" in answer.text
        assert (await ask(app, "GET", "/livez")).status == 200


async def test_readiness_ends_when_the_database_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protoslice.server.services._PING_SECONDS", 0.05)
    go = threading.Event()
    async with open_app() as app:
        database = app.services.database
        assert database is not None
        hanging = [asyncio.create_task(database.read(lambda tx: go.wait(20), background=True)) for _ in range(2)]
        await asyncio.sleep(0)
        assert (await ask(app, "GET", "/readyz")).status == 503
        go.set()
        await asyncio.gather(*hanging)
        assert (await ask(app, "GET", "/readyz")).status == 200


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/repositories"), ("GET", "/api/models/ann/m"), ("GET", "/v2/ann/m/tags/list")]
)
def test_log_says_why_the_database_is_unavailable(method: str, path: str) -> None:
    out = StringIO()

    async def work() -> None:
        async with open_app() as app:
            assert app.services.database is not None
            await app.services.database.close()
            assert (await ask(app, method, path)).status == 503

    with logs_to(out, "json", "error") as flush:
        asyncio.run(work())
        flush()
    said = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["error"], line["message"]) for line in said if line["event"] == "request"] == [
        ("DatabaseUnavailable", "The database is closed")
    ]


def test_postgres_without_tables_is_refused(postgres: TestServer) -> None:
    async def work() -> None:
        services = ServerState(Settings(storage="memory://", database=postgres.new_database()))
        with pytest.raises(Unsupported, match="run `protoslice database upgrade`"):
            await services.open()
        assert services.database is None

    asyncio.run(work())


async def test_a_database_that_was_set_back_refuses_one_upload_at_most() -> None:
    """The database may be set back after a fail-over to an outdated replica."""
    async with open_app() as app:
        database = app.services.database
        assert database is not None

        async def put(seed: int) -> int:
            return (await ask(app, "PUT", "/v1/stores?filename=m.onnx", onnx(200_000, seed=seed))).status

        assert await put(0) == 201
        await database.write(lambda tx: tx.run("DELETE FROM objects WHERE unpublished IS NOT NULL"))
        assert [await put(seed) for seed in range(1, 6)] == [409, 201, 201, 201, 201]


async def test_missing_tables_are_503_in_postgres(postgres: TestServer) -> None:
    async with open_app(database=postgres.new_catalogue()) as app:
        database = app.services.database
        assert database is not None
        await database.write(lambda tx: tx.run("DROP TABLE stores CASCADE"))
        answer = await ask(app, "GET", "/v1/stores")
        assert (answer.status, "/problems/database-unavailable" in answer.text) == (503, True)


T = TypeVar("T")
CONNECTIONS: Final = 40
CLIENTS: Final = 64
HELD: Final = CONNECTIONS // 4 + 1
"""The number of requests that a hanging storage may block."""


class Hanging(InterceptedStorage):
    """A storage in memory whose calls hang while `answers` is not set, and then fail as at a deadline."""

    def __init__(self) -> None:
        super().__init__(MemoryStorage())
        self.answers = asyncio.Event()
        self.answers.set()
        self.waiting = 0

    @property
    def abilities(self) -> Abilities:
        return Abilities()  # the calls of a bucket, which is cached

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        if not self.answers.is_set():
            self.waiting += 1
            await self.answers.wait()
            self.waiting -= 1
            raise StorageUnavailable("it did not respond in time")
        return await call()


def slug(answer: Asked) -> str:
    return str(json.loads(answer.body)["type"]).rpartition("/")[2]


async def test_a_storage_that_hangs_holds_a_bounded_number_of_requests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(wrappers, "LATE_SECONDS", 0.0)
    storage = Hanging()

    def factory(uri: str, options: object) -> Storage:
        return storage

    settings = {
        "storage": "hanging://",
        "database": f"sqlite:///{tmp_path}/catalog.sqlite",
        "auth": "open",
        "max_connections": CONNECTIONS,
    }
    register("hanging", factory)
    try:
        async with open_app(**settings) as app:
            cached, *others = [
                json.loads((await ask(app, "PUT", f"/v1/stores?filename={n}.onnx", onnx(20_000 + 8 * n))).body)["id"]
                for n in range(CLIENTS + 1)
            ]
            path = f"/v1/stores/{cached}/files/0.onnx"
            assert (await ask(app, "GET", path)).body == onnx(20_000)
            storage.answers.clear()
            reads = [
                asyncio.create_task(ask(app, "GET", f"/v1/stores/{other}/files/{n}.onnx"))
                for n, other in enumerate(others, 1)
            ]
            done = []
            for read in asyncio.as_completed(reads):
                done.append(await read)
                if len(done) == CLIENTS - HELD:
                    break
            assert {(answer.status, slug(answer)) for answer in done} == {(503, "storage-unavailable")}
            assert {answer.headers["retry-after"] for answer in done} == {"5"}
            assert storage.waiting == HELD
            assert (await ask(app, "GET", "/livez")).status == 200
            assert (await ask(app, "GET", path)).body == onnx(20_000), "from the cache"
            assert (await ask(app, "GET", "/v1/stores")).status == 200
            assert (await ask(app, "GET", "/readyz")).status == 503
            assert storage.waiting == HELD, "nothing else waits"
            storage.answers.set()
            assert {slug(answer) for answer in await asyncio.gather(*reads)} == {"storage-unavailable"}
            assert storage.waiting == 0
            for n, other in enumerate(others, 1):
                answer = await ask(app, "GET", f"/v1/stores/{other}/files/{n}.onnx")
                assert answer.body == onnx(20_000 + 8 * n)
    finally:
        unregister("hanging")


async def test_the_problem_of_releases_with_a_circuit_breaker_is_still_explained() -> None:
    async with open_app() as app:
        answer = await ask(app, "GET", "/problems/storage-circuit-open")
        assert (answer.status, "Storage unavailable" in answer.text) == (200, True)
