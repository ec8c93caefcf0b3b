"""Tags: names that move, by compare-and-set."""

import asyncio

import pytest
from tests.support.stores import in_files, in_memory, keys_in, onnx, opened, some, upload, visible

from protoslice.errors import (
    Conflict,
    IntegrityError,
    InvalidInput,
    LimitExceeded,
    NotFound,
)
from protoslice.storage import Buffer, FileStorage, MemoryStorage, ObjectKey, Storage
from protoslice.stores import IngestRequest, Stores
from protoslice.stores.catalog import tags


def test_tags_are_set_and_compared() -> None:
    async def work(stores: Stores, _: Storage) -> None:
        one, two = await some(stores, 2)
        tag, new = await stores.put_tag("a", one)
        assert (new, tag.name, tag.store) == (True, "a", one)
        assert await stores.tag("a") == tag
        moved, new = await stores.put_tag("a", two[:20], if_match=tag.etag)
        assert (new, moved.store) == (False, two)
        assert moved.etag != tag.etag
        with pytest.raises(Conflict, match="changed"):
            await stores.put_tag("a", one, if_match=tag.etag)
        with pytest.raises(Conflict, match="exists"):
            await stores.put_tag("a", one, if_none_match=True)
        with pytest.raises(Conflict):
            await stores.put_tag("b", one, if_match=tag.etag)
        with pytest.raises(Conflict):
            await stores.delete_tag("a", if_match=tag.etag)
        assert (await stores.tag("a")).store == two
        await stores.put_tag("c", "a")
        assert (await stores.tag("c")).store == two
        assert (await stores.get(two)).tags == ("a", "c")
        await stores.delete_tag("a", if_match=moved.etag)
        with pytest.raises(NotFound, match="'a'"):
            await stores.delete_tag("a")
        assert (await stores.put_tag("a", one, if_none_match=True))[1]

    in_memory(work)
    in_files(work)


class Denying(MemoryStorage):
    """Reports its own success in changing a tag as a conflict, as a storage that retries may."""

    async def put(self, key: ObjectKey, data: Buffer, *, if_etag: str | None = None) -> str:
        etag = await super().put(key, data, if_etag=if_etag)
        if if_etag is not None and key.segments[0] == "tags":
            raise Conflict("it is another by now")
        return etag

    async def delete(self, key: ObjectKey, *, if_etag: str | None = None) -> None:
        await super().delete(key, if_etag=if_etag)
        if if_etag is not None and key.segments[0] == "tags":
            raise Conflict("it is another by now")


@pytest.mark.parametrize("matched", [False, True])
def test_a_tag_is_removed_where_the_storage_denies_its_own_success(*, matched: bool) -> None:
    async def run() -> None:
        storage = Denying()
        async with opened(storage) as stores:
            (one,) = await some(stores, 1)
            tag, _ = await stores.put_tag("a", one)
            await stores.delete_tag("a", if_match=tag.etag if matched else None)
            with pytest.raises(NotFound):
                await stores.delete_tag("a")
            assert await keys_in(storage, "tags") == []

    asyncio.run(run())


def test_a_store_of_many_tags_shows_the_first_of_them_and_lists_all() -> None:
    async def work(stores: Stores, storage: Storage) -> None:
        one, two = await some(stores, 2)
        names = [f"t{n:04}" for n in range(230)]
        for name in names:
            await stores.put_tag(name, one)
        for name in names[:20]:
            await stores.put_tag(name, two)
        assert (await stores.get(two)).tags == tuple(names[:20])
        assert len((await stores.get(one)).tags) == 80, "of the first 100 entries 20 are of tags that have moved on"
        seen: list[str] = []
        cursor: str | None = None
        while True:
            page = await stores.tags(store=one, limit=7, cursor=cursor)
            seen += [tag.name for tag in page.items]
            cursor = page.next
            if cursor is None:
                break
        assert seen == names[20:]
        with pytest.raises(NotFound):
            await stores.tags(store="nothing")
        assert (await stores.delete(one)).tags == tuple(names[20:])


def test_a_store_has_a_limit_of_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them go when the store is removed."""
    monkeypatch.setattr(tags, "TAGS_OF_A_STORE", 20)

    async def work(stores: Stores, _: Storage) -> None:
        one, two = await some(stores, 2)
        for number in range(20):
            await stores.put_tag(f"t:{number}", one)
        with pytest.raises(LimitExceeded, match="at most 20, "):
            await stores.put_tag("t:one-more", one)
        await stores.put_tag("t:0", one)
        await stores.put_tag("t:one-more", two)
        with pytest.raises(LimitExceeded, match="at most 20, "):
            await upload(stores, onnx(10, seed=0), IngestRequest(tags=("t:1", "t:again")))
        assert "t:again" not in (await stores.get(one)).tags

    in_memory(work)


def test_one_of_many_who_compare_wins() -> None:
    async def work(stores: Stores, _: Storage) -> None:
        ids = await some(stores, 5)
        fresh = await asyncio.gather(
            *(stores.put_tag("a", store_id, if_none_match=True) for store_id in ids), return_exceptions=True
        )
        assert sum(not isinstance(answer, Conflict) for answer in fresh) == 1
        etag = (await stores.tag("a")).etag
        moved = await asyncio.gather(
            *(stores.put_tag("a", store_id, if_match=etag) for store_id in ids), return_exceptions=True
        )
        winners = [answer for answer in moved if not isinstance(answer, BaseException)]
        assert len(winners) == 1
        assert await stores.tag("a") == winners[0][0]

    in_memory(work)
    in_files(work)


@pytest.mark.parametrize("name", ["", "a b", "é", "a/b", ".", "..", "-a", "a" * 129, "0123456789ab", "f" * 64, "a\n"])
def test_what_no_tag_is_called(name: str) -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        (store_id,) = await some(stores, 1)
        with pytest.raises(InvalidInput):
            await stores.put_tag(name, store_id)
        with pytest.raises((InvalidInput, NotFound)):
            await stores.tag(name)

    in_memory(work)


@pytest.mark.parametrize(
    "name", ["a", "9", "a:b@c~d+e-f._", "A" * 128, "resnet50:3", "0123456789a", "CON", "a..b", "con.txt"]
)
def test_what_a_tag_may_be_called(name: str) -> None:
    async def work(stores: Stores, _: FileStorage) -> None:
        (store_id,) = await some(stores, 1)
        await stores.put_tag(name, store_id)
        assert [tag.name for tag in (await stores.tags()).items] == [name]
        assert (await stores.get(name)).tags == (name,)

    in_files(work)


def test_tags_differ_by_case() -> None:
    async def work(stores: Stores, _: FileStorage) -> None:
        one, two = await some(stores, 2)
        await stores.put_tag("a", one)
        await stores.put_tag("A", two)
        assert ((await stores.get("a")).id, (await stores.get("A")).id) == (one, two)

    in_files(work)


def test_a_damaged_tag_harms_nobody_else_and_can_be_set_anew() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        one, two = await some(stores, 2)
        await stores.put_tag("good", one)
        await stores.put_tag("bad", two)
        await storage.put(ObjectKey("tags/bad"), b"{}")
        with pytest.raises(IntegrityError, match="'bad'"):
            await stores.tag("bad")
        with pytest.raises(IntegrityError):
            await stores.get("bad")
        assert (await stores.get("good")).tags == ("good",)
        assert set(await visible(stores)) == {one, two}
        assert (await upload(stores, onnx(3, seed=77))).created
        await stores.put_tag("bad", two)
        assert (await stores.get("bad")).id == two

    in_memory(work)
