"""Circuit breaker of a service: answers while the storage is down, counts, and recovery."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.support.asgi import ask
from tests.support.serve import open_app
from tests.support.stores import onnx

from protoslice.errors import StorageUnavailable
from protoslice.storage import MemoryStorage, ObjectKey, Storage, register, unregister
from protoslice.storage.wrappers.interceptor import InterceptedStorage

T = TypeVar("T")


class Failing(InterceptedStorage):
    """Storage in memory that can be switched off."""

    is_down = False

    def __init__(self) -> None:
        super().__init__(MemoryStorage())

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        if self.is_down:
            raise StorageUnavailable("switched off")
        return await call()


async def test_a_service_whose_storage_is_down_says_so_at_once_and_recovers() -> None:
    storage = Failing()

    def factory(uri: str, options: object) -> Storage:
        return storage

    async def work() -> None:
        async with open_app(storage="failing://", auth="open") as app:
            store = json.loads((await ask(app, "PUT", "/v1/stores?filename=m.onnx", onnx(20_000))).body)["id"]
            storage.is_down = True
            slugs = set[str]()
            for _ in range(60):
                await asyncio.sleep(0.001)
                answer = await ask(app, "GET", f"/v1/stores/{store}/files/m.onnx")
                assert (answer.status, answer.headers["retry-after"]) == (503, "5")
                slugs.add(answer.text.partition("/problems/")[2].partition('"')[0])
            assert slugs == {"storage-unavailable", "storage-circuit-open"}
            assert "storage-circuit-open" in (await ask(app, "GET", "/readyz")).text
            told = (await ask(app, "GET", "/metrics")).text
            assert "protoslice_storage_circuit_open 1.0" in told
            assert "protoslice_storage_circuit_openings_total 1.0" in told
            storage.is_down = False
            async with asyncio.timeout(10):
                while (await ask(app, "GET", "/readyz")).status != 200:
                    await asyncio.sleep(0.01)
            assert (await ask(app, "GET", f"/v1/stores/{store}")).status == 200, "facts are in the database"
            assert (await ask(app, "GET", f"/v1/stores/{store}/files/m.onnx")).body == onnx(20_000)
            assert "protoslice_storage_circuit_open 0.0" in (await ask(app, "GET", "/metrics")).text

    register("failing", factory)
    try:
        await work()
    finally:
        unregister("failing")
