"""Durable writes of an upload go side by side, and all of them come before its one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.interrupted import InterceptedDatabase
from tests.support.stores import keys_in, onnx, opened, records_apart, upload

from protoslice.catalog.manifest import LARGEST_HELD
from protoslice.database import Database
from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.storage.wrappers import InterceptedStorage
from protoslice.stores import IngestRequest

T = TypeVar("T")

_WRITES: Final = {"put", "commit"}
_FOREVER: Final = 60
"""Seconds after which a write that the test waits for will never come."""


class Log(InterceptedDatabase):
    """Notes transactions that write, among the durable writes of a storage."""

    def __init__(self, inner: Database, log: list[str]) -> None:
        super().__init__(inner)
        self._log = log

    async def intercept(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        """See `InterceptedDatabase.intercept`."""
        if name == "write":
            self._log.append("transaction")
        return await call()


class Rounds(InterceptedStorage):
    """Ends durable writes in rounds: those of a round once as many wait as the round is to have."""

    def __init__(self, inner: MemoryStorage, log: list[str]) -> None:
        super().__init__(inner)
        self.sizes: list[int] = []
        self._log = log
        self._waiting = 0
        self._full = asyncio.Event()

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        if name not in _WRITES or not self.sizes:
            return await call()
        self._waiting += 1
        full = self._full
        if self._waiting == self.sizes[0]:
            self._waiting, self._full = 0, asyncio.Event()
            self._log.append(f"{self.sizes.pop(0)} at once")
            full.set()
        try:
            async with asyncio.timeout(_FOREVER):
                await full.wait()
        except TimeoutError:
            pytest.fail(f"after {self._log} a round waits with no more than {self._waiting}")
        return await call()


def rounds(size: int, sizes: list[int]) -> list[str]:
    """Durable writes and transactions of an upload, by a process that has reserved objects."""

    async def run() -> list[str]:
        log = list[str]()
        inner = MemoryStorage()
        storage = Rounds(inner, log)
        async with opened(storage, database=Log(catalogue_of(inner), log)) as stores:
            await upload(stores, onnx(LARGEST_HELD, seed=1))
            log.clear()
            storage.sizes += sizes
            await upload(stores, onnx(size), IngestRequest(tags=("a",)))
            assert not storage.sizes
            return [*log]

    return asyncio.run(run())


def test_the_smallest_upload_is_one_transaction() -> None:
    assert rounds(100, []) == ["transaction"]


def test_a_small_upload_is_one_write_and_one_transaction() -> None:
    assert rounds(LARGEST_HELD, [1]) == ["1 at once", "transaction"]


@records_apart()
def test_records_that_are_objects_are_written_side_by_side() -> None:
    assert rounds(100, [2, 3]) == ["2 at once", "3 at once", "transaction"], (
        "the file with its checksums, then index, plan and schema"
    )


class CountingReplacements(InterceptedStorage):
    """Counts the writes of objects that are there already."""

    replaced = 0

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        if name in _WRITES and key is not None:
            self.replaced += key.text in await keys_in(self._inner)
        return await call()


def test_no_object_is_ever_replaced() -> None:
    async def run() -> int:
        storage = CountingReplacements(MemoryStorage())
        async with opened(storage) as stores:
            storage.replaced = 0
            for seed in (1, 2, 1):
                await upload(stores, {"model.onnx": onnx(9000, seed=seed), "large": bytes(2 << 20)}, IngestRequest())
            return storage.replaced

    assert asyncio.run(run()) == 0
