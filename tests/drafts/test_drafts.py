"""Drafts over a storage: files one by one, folders, parts in any order, and stores made of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.support.stores import collect_garbage, objects_in, onnx, opened, usage_of, written

from protoslice.catalog.drafts import DraftTable
from protoslice.catalog.kept_files import KeptFile
from protoslice.drafts import DraftEntry, Drafts, NoDraft, UnknownPart, new_session, records
from protoslice.errors import InvalidInput, LimitExceeded, QuotaExceeded
from protoslice.storage import MemoryStorage
from protoslice.stores import IngestRequest, StoreOptions, Stores
from protoslice.stores.quotas import Quota
from protoslice.stores.uploads import UploadOptions

LARGE = onnx(7, 50_000)


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


async def content(stores: Stores, file: KeptFile) -> bytes:
    if file.store is None:
        return file.data or b""
    return await (await stores.view(file.store)).file(file.path or "").read(1 << 30)


def in_drafts(work: Callable[[Drafts, Stores], Awaitable[None]]) -> None:
    async def run() -> None:
        async with opened(MemoryStorage()) as stores:
            await work(Drafts(stores), stores)

    asyncio.run(run())


@pytest.mark.parametrize("size", [0, 1, 16 << 10, (16 << 10) + 1, 3 << 20])
def test_a_file_comes_back_whatever_its_size(size: int) -> None:
    async def work(drafts: Drafts, stores: Stores) -> None:
        data = bytes(range(251)) * (size // 251 + 1)
        await drafts.put("0/run/artifacts/a ü.bin", pieces(data[: size // 2], data[size // 2 : size]))
        found = await drafts.get("0/run/artifacts/a ü.bin")
        assert found.size == size
        assert await content(stores, found) == data[:size]

    in_drafts(work)


def test_a_large_file_is_a_store_at_once() -> None:
    async def work(drafts: Drafts, stores: Stores) -> None:
        file = await drafts.put("0/r/model.onnx", pieces(LARGE))
        assert (await stores.get(file.store or "")).type == "onnx.ModelProto"

    in_drafts(work)


def test_a_folder_lists_one_level_whatever_lies_below() -> None:
    async def work(drafts: Drafts, _: Stores) -> None:
        for number in range(300):  # more than one listing holds
            await drafts.put(f"top/deep/{number}/x", pieces(b"x"))
        for path in ("top/a", "top/dee", "top/deep.txt", "top/z/y", "other/a"):
            await drafts.put(path, pieces(b"123"))
        folders, files = [("deep", None), ("z", None)], [(name, 3) for name in ("a", "dee", "deep.txt")]
        assert await drafts.entries("top") == [DraftEntry(*each) for each in (*folders, *files)]
        assert [entry.name for entry in await drafts.entries("")] == ["other", "top"]
        assert await drafts.entries("nothing") == await drafts.entries("top/a") == []

    in_drafts(work)


def test_a_name_is_a_file_now_and_a_folder_later() -> None:
    async def work(drafts: Drafts, stores: Stores) -> None:
        await drafts.put("r/a", pieces(b"file"))
        await drafts.delete("r/a")
        await drafts.put("r/a/b", pieces(b"inside"))
        assert await drafts.entries("r") == [DraftEntry("a", None)]
        await drafts.delete("r")
        assert await drafts.entries("") == []
        with pytest.raises(NoDraft):
            await drafts.delete("r")

    in_drafts(work)


def test_parts_come_in_any_order_and_twice() -> None:
    async def work(drafts: Drafts, stores: Stores) -> None:
        session, sent = new_session(), dict[int, str]()
        for number in (3, 1, 2, 1):
            piece = LARGE[(number - 1) * 20_000 : number * 20_000 if number < 3 else None]
            sent[number] = await drafts.put_part(session, number, pieces(piece), "")
        file = await drafts.join("r/m.onnx", session, list(sent.items()))
        assert await content(stores, file) == LARGE
        assert await content(stores, await drafts.get("r/m.onnx")) == LARGE

    in_drafts(work)


def test_parts_that_have_come_count_for_no_limit_of_open_uploads() -> None:
    async def run() -> None:
        options = StoreOptions(uploads=UploadOptions(max_open=3, max_open_per_client=2))
        async with opened(MemoryStorage(), options) as stores:
            drafts, session, sent = Drafts(stores), new_session(), list[tuple[int, str]]()
            for number in range(1, 8):
                sent.append((number, await drafts.put_part(session, number, pieces(b"%d" % number), "ann")))
            assert await content(stores, await drafts.join("r/f", session, sent)) == b"1234567"

    asyncio.run(run())


def test_a_part_belongs_to_its_session_and_number() -> None:
    async def work(drafts: Drafts, _: Stores) -> None:
        session, other = new_session(), new_session()
        part = await drafts.put_part(session, 1, pieces(b"1"), "")
        for asked, number in ((other, 1), (session, 2)):
            with pytest.raises(UnknownPart):
                await drafts.join("r/f", asked, [(number, part)])
        for count in (0, 10_001):
            with pytest.raises(LimitExceeded):
                await drafts.join("r/f", session, [(1, part)] * count)
        with pytest.raises(NoDraft):
            await drafts.get("r/f")

    in_drafts(work)


def test_a_store_of_a_folder_has_its_files_and_writes_no_large_one_again() -> None:
    async def work(drafts: Drafts, stores: Stores) -> None:
        await drafts.put("0/r/artifacts/model/model.onnx", pieces(LARGE * 4))
        await drafts.put("0/r/artifacts/model/MLmodel", pieces(b"flavors: {}"))
        await drafts.put("0/r/artifacts/notes.txt", pieces(b"no part of it"))
        before = await stored(stores)
        made = await drafts.store("0/r/artifacts/model", IngestRequest(tags=("m:1",)))
        assert await stored(stores) - before < len(LARGE)
        assert {file.path: file.size for file in made.store.files} == {"MLmodel": 11, "model.onnx": 4 * len(LARGE)}
        again = await drafts.store("0/r/artifacts/model", IngestRequest())
        assert (again.store.id, again.created) == (made.store.id, False)
        with pytest.raises(NoDraft):
            await drafts.store("0/r/nothing", IngestRequest())

    in_drafts(work)


def test_a_folder_is_sealed_when_asked_and_again_when_it_changed() -> None:
    async def work(drafts: Drafts, stores: Stores) -> None:
        await drafts.put("7/r/model.onnx", pieces(LARGE))
        await drafts.put("7/r/sub/MLmodel", pieces(b"first"))
        first = await drafts.sealed("7/r")
        made = await count(stores)
        assert await drafts.sealed("7/r") == first
        assert await count(stores) == made  # nothing was written for it
        await drafts.put("7/r/sub/MLmodel", pieces(b"other"))
        changed = await drafts.sealed("7/r")
        assert await (await stores.view(changed)).file("sub/MLmodel").read(9) == b"other"
        await drafts.delete("7/r/sub")
        assert [file.path for file in (await stores.get(await drafts.sealed("7/r"))).files] == ["model.onnx"]
        await drafts.put("7/r/sub/MLmodel", pieces(b"first"))
        assert await drafts.sealed("7/r") == first

    in_drafts(work)


def test_a_store_that_was_removed_is_made_again() -> None:
    async def work(drafts: Drafts, stores: Stores) -> None:
        await drafts.put("7/r/MLmodel", pieces(b"flavors: {}"))
        store = await drafts.sealed("7/r")
        await stores.delete(store)
        assert await drafts.sealed("7/r") == store
        assert (await stores.get(store)).size == 11

    in_drafts(work)


def test_a_file_written_while_its_folder_is_read_is_sealed_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(drafts: Drafts, stores: Stores) -> None:
        await drafts.put("7/r/a", pieces(b"old"))
        read = DraftTable.files

        async def meanwhile(self: DraftTable, folder: str, most: int) -> dict[str, KeptFile]:
            found = await read(self, folder, most)
            await drafts.put("7/r/b", pieces(b"new"))
            return found

        with monkeypatch.context() as patch:
            patch.setattr(DraftTable, "files", meanwhile)
            first = await drafts.sealed("7/r")
        assert [file.path for file in (await stores.get(first)).files] == ["a"]
        assert [file.path for file in (await stores.get(await drafts.sealed("7/r"))).files] == ["a", "b"]

    in_drafts(work)


def test_a_folder_of_more_files_than_a_store_holds_is_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(drafts: Drafts, _: Stores) -> None:
        for number in range(4):
            await drafts.put(f"7/r/{number}", pieces(b""))
        with pytest.raises(LimitExceeded, match="choose a folder inside it"):
            await drafts.sealed("7")

    monkeypatch.setattr(records, "MAX_FILES", 3)
    in_drafts(work)


async def count(stores: Stores) -> int:
    return len(await objects_in(stores.storage))


async def stored(stores: Stores) -> int:
    return sum((await written(stores.storage)).values())


@pytest.mark.parametrize("path", ["../x", "/x", "a//b", "a/./b", "a/..", "", "a\\b", "a\0b", "x" * 1025])
def test_paths_that_climb_or_do_not_fit_are_refused(path: str) -> None:
    async def work(drafts: Drafts, _: Stores) -> None:
        with pytest.raises(InvalidInput):
            await drafts.put(path, pieces(b"x"))

    in_drafts(work)


def test_a_writer_that_dies_leaves_the_file_that_was_there() -> None:
    async def dying() -> AsyncIterator[bytes]:
        yield LARGE
        raise ConnectionError

    async def work(drafts: Drafts, stores: Stores) -> None:
        await drafts.put("r/f", pieces(b"old"))
        with pytest.raises(ConnectionError):
            await drafts.put("r/f", dying())
        assert await content(stores, await drafts.get("r/f")) == b"old"

    in_drafts(work)


def test_small_files_count_against_the_quota_of_their_space() -> None:
    async def run() -> None:
        options = StoreOptions(quota=Quota(stored_bytes=100_000))
        async with opened(storage := MemoryStorage(), options) as stores:
            drafts = Drafts(stores)

            async def used() -> int:
                """Bytes as they are counted, which are those that are there."""
                counted = (await usage_of(storage)).stored_bytes
                sql = "SELECT coalesce(sum(length(data)), 0) FROM kept_files"
                assert await stores.database.read(lambda tx: tx.all(sql)) == [(counted,)]
                return counted

            for _ in range(50):
                await drafts.put("0/run/artifacts/again", pieces(bytes(10_000)))
            assert await used() == 10_000
            for number in range(9):
                await drafts.put(f"0/run/artifacts/{number}", pieces(bytes(10_000)))
            with pytest.raises(QuotaExceeded):
                await drafts.put("0/run/artifacts/9", pieces(bytes(10_000)))
            assert await used() == 100_000
            await drafts.delete("0/run/artifacts/again")
            assert await used() == 90_000
            await drafts.put("0/run/artifacts/more", pieces(bytes(10_000)))
            await collect_garbage(storage)
            assert await used() == 100_000
            await drafts.delete("0/run")
            assert await used() == 0

    asyncio.run(run())
