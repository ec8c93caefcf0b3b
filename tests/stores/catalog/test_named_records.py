"""Records by name: several writers at once, each told what became of its call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.storage.interface import Buffer
from protoslice.stores.catalog.named_records import NamedRecords

FOLDER = ObjectKey("records")
KEY = FOLDER / "name"


class Overtaken(MemoryStorage):
    """Storage in which others act just before a record is replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[Callable[[], Awaitable[object]]] = []

    async def put(self, key: ObjectKey, data: Buffer, *, if_etag: str | None = None) -> str:
        if self.before:
            await self.before.pop()()
        return await super().put(key, data, if_etag=if_etag)


def two() -> tuple[Overtaken, NamedRecords, NamedRecords]:
    storage = Overtaken()
    return storage, NamedRecords(storage, FOLDER, "record"), NamedRecords(storage, FOLDER, "record")


def test_a_record_removed_while_it_is_set_is_new() -> None:
    async def run() -> None:
        storage, ours, theirs = two()
        assert (await ours.set(KEY, b"first"))[1]
        storage.before.append(lambda: theirs.remove(KEY, None))
        etag, created = await ours.set(KEY, b"second")
        assert created
        data, stat = await theirs.read(KEY)
        assert (data, stat.etag) == (b"second", etag)
        assert not (await ours.set(KEY, b"third"))[1]

    asyncio.run(run())


def test_a_record_that_keeps_changing_is_set_at_last() -> None:
    async def run() -> None:
        storage, ours, theirs = two()
        await ours.set(KEY, b"first")

        async def again() -> None:
            kept, storage.before = storage.before, []
            await theirs.set(KEY, b"theirs")
            storage.before = kept

        storage.before += [again] * 100
        _, created = await ours.set(KEY, b"ours")
        assert not created
        assert (await theirs.read(KEY))[0] == b"ours"

    asyncio.run(run())
