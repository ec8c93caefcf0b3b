"""The suite and the probe detect storages that break the contract, each in one way."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from protoslice.errors import Conflict, NotFound, Unsupported
from protoslice.storage import MemoryStorage, ObjectKey, Page, Span, Storage, Writer, probe
from protoslice.storage.interface import Abilities, Buffer
from protoslice.testing import Raw, RawThroughStorage, StorageConformance


class IgnoresPins(MemoryStorage):
    async def get_range(self, key: ObjectKey, start: int, end: int, *, if_etag: str | None = None) -> bytes:
        return await super().get_range(key, start, end)


class ReadsShort(MemoryStorage):
    async def get_range(self, key: ObjectKey, start: int, end: int, *, if_etag: str | None = None) -> bytes:
        return await super().get_range(key, start, min(end, max(start, (await self.stat(key)).size)), if_etag=if_etag)


class SortsRanges(MemoryStorage):
    async def get_ranges(self, key: ObjectKey, spans: Sequence[Span], *, if_etag: str | None = None) -> Sequence[bytes]:
        return await super().get_ranges(key, sorted(spans), if_etag=if_etag)


class MixesStreams(MemoryStorage):
    async def stream(
        self, key: ObjectKey, start: int = 0, end: int | None = None, *, if_etag: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        stop = (await self.stat(key)).size if end is None else end
        for at in range(start, stop, 1 << 20):
            yield await self.get_range(key, at, min(at + (1 << 20), stop), if_etag=if_etag)


class ListsBackwards(MemoryStorage):
    async def list(self, prefix: ObjectKey | None = None, *, after: ObjectKey | None = None, limit: int = 1000) -> Page:
        page = await super().list(prefix, after=after, limit=limit)
        return replace(page, items=page.items[::-1])


class ListsByText(MemoryStorage):
    async def list(self, prefix: ObjectKey | None = None, *, after: ObjectKey | None = None, limit: int = 1000) -> Page:
        page = await super().list(None, after=after, limit=limit)
        text = "" if prefix is None else prefix.text
        return replace(page, items=tuple(item for item in page.items if item.key.text.startswith(text)))


class ForgetsWhatIsLeft(MemoryStorage):
    async def list(self, prefix: ObjectKey | None = None, *, after: ObjectKey | None = None, limit: int = 1000) -> Page:
        return replace(await super().list(prefix, after=after, limit=limit), after=None)


class FussyDelete(MemoryStorage):
    async def delete(self, key: ObjectKey) -> None:
        await self.stat(key)
        await super().delete(key)


class EagerWriter(MemoryStorage):
    """A storage that shows written data before the commit."""

    async def writer(self, key: ObjectKey) -> Writer:
        inner = await super().writer(key)
        await self.put(key, b"")
        return inner


class ReusesTags(MemoryStorage):
    def _store(self, key: ObjectKey, data: bytes) -> str:
        super()._store(key, data)
        found = self._objects[key]
        self._objects[key] = replace(found, stat=replace(found.stat, etag=f"size-{len(data)}"))
        return f"size-{len(data)}"


class Boasts(MemoryStorage):
    @property
    def abilities(self) -> Abilities:
        return Abilities(open_file=True, free_space=True)


LIARS = [
    (IgnoresPins, "test_a_replaced_object_is_a_conflict"),
    (ReadsShort, "test_past_the_end_is_never_short"),
    (SortsRanges, "test_ranges_come_in_the_order_asked"),
    (MixesStreams, "test_a_stream_never_mixes_two_objects"),
    (ListsBackwards, "test_keys_come_in_order_of_their_bytes"),
    (ListsByText, "test_a_prefix_is_a_folder"),
    (ForgetsWhatIsLeft, "test_pages_of_any_size_make_the_whole"),
    (FussyDelete, "test_removing_nothing_is_no_error"),
    (EagerWriter, "test_nothing_is_visible_before_the_commit"),
    (EagerWriter, "test_an_abort_leaves_nothing"),
    (ReusesTags, "test_a_tag_names_one_content"),
    (Boasts, "test_free_space_is_known_or_said_to_be_unknown"),
    (Boasts, "test_an_open_file_outlives_its_name"),
]


class Subject(StorageConformance):
    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
        yield self._storage, RawThroughStorage(self._storage)


@pytest.mark.parametrize(("liar", "test"), LIARS)
def test_a_broken_promise_is_noticed(liar: type[MemoryStorage], test: str) -> None:
    with pytest.raises((AssertionError, Conflict, NotFound, Unsupported)):
        asyncio.run(Subject(liar()).run(StorageConformance.bodies()[test]))


@pytest.mark.parametrize("test", sorted({test for _, test in LIARS}))
def test_a_kept_promise_is_not(test: str) -> None:
    asyncio.run(Subject(MemoryStorage()).run(StorageConformance.bodies()[test]))


class LandsLate(MemoryStorage):
    """A storage that performs a cancelled put after the next deletion, as a server may that has the request."""

    def __init__(self) -> None:
        super().__init__()
        self._late: dict[ObjectKey, Buffer] = {}

    async def put(self, key: ObjectKey, data: Buffer) -> str:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            self._late[key] = data
            raise
        return await super().put(key, data)

    async def delete(self, key: ObjectKey) -> None:
        await super().delete(key)
        for late in list(self._late):
            await super().put(late, self._late.pop(late))


def test_a_cancelled_put_may_land_late() -> None:
    asyncio.run(Subject(LandsLate()).run(StorageConformance.bodies()["test_a_cancelled_put_is_whole_or_nothing"]))


class Forgets(MemoryStorage):
    async def get_range(self, key: ObjectKey, start: int, end: int, *, if_etag: str | None = None) -> bytes:
        return bytes(len(await super().get_range(key, start, end, if_etag=if_etag)))


class DeletesNothing(MemoryStorage):
    async def delete(self, key: ObjectKey) -> None:
        pass


class ReadsOnly(MemoryStorage):
    @property
    def abilities(self) -> Abilities:
        return Abilities(write=False)


@pytest.mark.parametrize(("storage", "why"), [(Forgets(), "other bytes"), (ReadsOnly(), "read-only")])
def test_the_probe_refuses_what_cannot_work(storage: MemoryStorage, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        asyncio.run(probe(storage))
    assert storage._objects == {}


def test_the_probe_refuses_a_storage_that_deletes_nothing() -> None:
    with pytest.raises(Unsupported, match="still in this storage"):
        asyncio.run(probe(DeletesNothing()))


async def test_the_probe_lets_an_honest_storage_pass_and_leaves_nothing() -> None:
    storage = MemoryStorage()
    await probe(storage)
    assert (await storage.list()).items == ()
