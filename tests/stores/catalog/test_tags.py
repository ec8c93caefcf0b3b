"""Tags: names that move, by compare-and-set."""

import asyncio

import pytest
from tests.support.stores import in_files, in_memory, onnx, some, upload

from protoslice.catalog import tags
from protoslice.errors import Conflict, InvalidInput, LimitExceeded, NotFound
from protoslice.storage import FileStorage, MemoryStorage, Storage
from protoslice.stores import IngestRequest, Stores


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


def test_a_store_of_many_tags_shows_the_first_of_them_and_lists_all() -> None:
    async def work(stores: Stores, storage: Storage) -> None:
        one, two = await some(stores, 2)
        names = [f"t{n:04}" for n in range(230)]
        for name in names:
            await stores.put_tag(name, one)
        for name in names[:20]:
            await stores.put_tag(name, two)
        assert (await stores.get(two)).tags == tuple(names[:20])
        assert (await stores.get(one)).tags == tuple(names[20:120])
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

    in_memory(work)


def test_a_store_has_a_limit_of_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them go when the store is removed."""
    monkeypatch.setattr(tags, "TAGS_OF_A_STORE", 20)

    async def work(stores: Stores, _: Storage) -> None:
        one, two = await some(stores, 2)
        for number in range(20):
            await stores.put_tag(f"t:{number}", one)
        with pytest.raises(LimitExceeded, match="already has 20 tags"):
            await stores.put_tag("t:one-more", one)
        await stores.put_tag("t:0", one)
        await stores.put_tag("t:one-more", two)
        with pytest.raises(LimitExceeded, match="already has 20 tags"):
            await upload(stores, onnx(10, seed=0), IngestRequest(tags=("t:1", "t:again")))
        assert "t:again" not in (await stores.get(one)).tags

    in_memory(work)


def test_a_tag_has_another_entity_tag_whenever_it_is_set() -> None:
    """Also when it comes to point where it did before: a condition on the first state fails."""

    async def work(stores: Stores, _: Storage) -> None:
        one, two = await some(stores, 2)
        etags = [(await stores.put_tag("a", store))[0].etag for store in (one, one, two, one)]
        await stores.delete_tag("a")
        etags.append((await stores.put_tag("a", one))[0].etag)
        assert len(set(etags)) == 5
        with pytest.raises(Conflict):
            await stores.put_tag("a", two, if_match=etags[0])

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
