"""Durable writes of a small upload go side by side, but for those whose order keeps a store whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import pytest
from tests.support.stores import onnx, opened, upload

from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.storage.wrappers.interceptor import InterceptedStorage
from protoslice.stores import IngestRequest
from protoslice.stores.manifest import LARGEST_HELD

T = TypeVar("T")

_WRITES: Final = {"put", "put_if_absent", "commit"}
_FOREVER: Final = 60
"""Seconds after which a write that the test waits for will never come."""


class Rounds(InterceptedStorage):
    """Ends durable writes in rounds: those of a round once as many wait as the round is to have."""

    def __init__(self, inner: MemoryStorage, sizes: list[int]) -> None:
        super().__init__(inner)
        self.waiting: list[str] = []
        self.rounds: list[list[str]] = []
        self.sizes = sizes
        self._full = asyncio.Event()

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        if name not in _WRITES or not self.sizes:
            return await call()
        self.waiting.append(_named(key))
        full = self._full
        if len(self.waiting) == self.sizes[0]:
            self.rounds.append(sorted(self.waiting))
            self.waiting, self._full = [], asyncio.Event()
            del self.sizes[0]
            full.set()
        try:
            async with asyncio.timeout(_FOREVER):
                await full.wait()
        except TimeoutError:
            pytest.fail(f"after {self.rounds} a round waits with no more than {self.waiting}")
        return await call()


def _named(key: ObjectKey | None) -> str:
    assert key is not None
    folder, last = key.segments[0], key.segments[-1]
    if folder == "objects":
        return last.partition("-")[0] if last.startswith("of-") else last
    return "/".join(key.segments[: 2 if folder == "indexes" else 1])


ENTRIES: Final = ["indexes/time", "indexes/type", "of"]


@pytest.mark.parametrize(
    ("size", "rounds"),
    [
        (100, [["claim"], ENTRIES, ["stores"]]),
        (LARGEST_HELD, [["claim"], ["file-0"], ENTRIES, ["stores"]]),
    ],
)
def test_a_small_upload_waits_for_the_storage_three_times_or_four(size: int, rounds: list[list[str]]) -> None:
    """Rounds: the claim, a file of more than 4 KiB, the entries of listings, the manifest."""

    async def run() -> list[list[str]]:
        inner = MemoryStorage()
        storage = Rounds(inner, [])
        async with opened(storage) as stores:
            storage.sizes += [len(each) for each in rounds]
            await upload(stores, onnx(size), IngestRequest())
        assert not storage.sizes
        return storage.rounds

    assert asyncio.run(run()) == rounds


class CountingReplacements(InterceptedStorage):
    """Counts the writes that replace what is there, for which a storage may have to lock out others."""

    replaced = 0

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        self.replaced += name == "put"
        return await call()


def test_a_new_store_replaces_nothing() -> None:
    async def run() -> int:
        storage = CountingReplacements(MemoryStorage())
        async with opened(storage) as stores:
            storage.replaced = 0
            await upload(stores, onnx(100), IngestRequest())
            return storage.replaced

    assert asyncio.run(run()) == 0
