"""A service and its database: readiness, and starts that are refused."""

from __future__ import annotations

import asyncio
import json
import threading
from io import StringIO

import pytest
from tests.support.postgres import TestServer
from tests.support.serve import ask, logs_to, open_app
from tests.support.stores import onnx

from protoslice.errors import Unsupported
from protoslice.server.services import ServerState
from protoslice.server.settings import Settings


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
    """As after a fail-over to a replica that was behind."""
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
