"""A storage that hangs holds a bounded number of requests; all others are answered at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import pytest
from tests.support.serve import Asked, ask, open_app
from tests.support.stores import onnx

from protoslice.errors import StorageUnavailable
from protoslice.storage import MemoryStorage, ObjectKey, Storage, register, unregister, wrappers
from protoslice.storage.interface import Abilities
from protoslice.storage.wrappers import InterceptedStorage

T = TypeVar("T")
CONNECTIONS: Final = 40
CLIENTS: Final = 64
HELD: Final = CONNECTIONS // 4 + 1
"""Requests that a hanging storage may hold."""


class Hanging(InterceptedStorage):
    """Storage in memory whose calls hang while `answers` is not set, and then fail as at a deadline."""

    def __init__(self) -> None:
        super().__init__(MemoryStorage())
        self.answers = asyncio.Event()
        self.answers.set()
        self.waiting = 0

    @property
    def abilities(self) -> Abilities:
        return Abilities()  # those of a bucket, which is cached

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
