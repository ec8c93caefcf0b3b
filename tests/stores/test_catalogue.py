"""Finding stores, naming them, removing them; schemas beside them."""

import asyncio
from contextlib import suppress

import pytest
from google.protobuf import descriptor_pb2

from protoslice.errors import (
    Conflict,
    CorruptModel,
    IntegrityError,
    InvalidInput,
    NotFound,
    ProtosliceError,
    Unsupported,
)
from protoslice.storage import FileStorage, MemoryStorage, ObjectKey, ObjectStat, Page, Storage
from protoslice.stores import IngestRequest, StoreOptions, Stores
from protoslice.testing.stores import assert_whole, in_files, in_memory, keys_in, onnx, opened, read, upload, visible


async def some(stores: Stores, count: int) -> list[str]:
    """The ids of as many stores, oldest first."""
    return [(await upload(stores, onnx(10, seed=seed))).store.id for seed in range(count)]


def descriptor_set(*names: str) -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="mine.proto", package="mine")
    for name in names:
        file.message_type.add(name=name).field.add(name="data", number=1, type=12, label=1)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
def test_pages_of_stores_newest_first(limit: int) -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        ids = await some(stores, 7)
        seen: list[str] = []
        cursor: str | None = None
        while True:
            page = await stores.list(limit=limit, cursor=cursor)
            assert 0 < len(page.items) <= limit
            seen.extend(info.id for info in page.items)
            if (cursor := page.next) is None:
                break
        assert seen == ids[::-1]

    in_memory(work)


def test_a_list_goes_on_where_it_was_though_stores_have_gone() -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        ids = await some(stores, 6)
        page = await stores.list(limit=2)
        await stores.delete(page.items[-1].id)
        rest = await stores.list(limit=10, cursor=page.next)
        assert [info.id for info in rest.items] == ids[3::-1]

    in_memory(work)


@pytest.mark.parametrize("cursor", ["", "x", "../x", "0" * 64 + "0", "ffff", "-" * 80])
def test_cursors_nobody_gave(cursor: str) -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        await some(stores, 1)
        with pytest.raises(InvalidInput, match="cursor"):
            await stores.list(cursor=cursor)

    in_memory(work)


def test_lists_by_tag_and_type() -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        one = (await upload(stores, onnx(1, seed=1), IngestRequest(tags=("net:1", "other")))).store.id
        two = (await upload(stores, onnx(1, seed=2), IngestRequest(tags=("net:2",)))).store.id
        odd = (await upload(stores, {"odd": b"\x92\x4e\x03abc"})).store.id
        assert [info.id for info in (await stores.list(tag="net:")).items] == [two, one]
        assert [info.id for info in (await stores.list(tag="net:1")).items] == [one]
        assert [info.id for info in (await stores.list(tag="none")).items] == []
        assert [info.id for info in (await stores.list(type="onnx.ModelProto")).items] == [two, one]
        assert [info.id for info in (await stores.list(type="unknown")).items] == [odd]
        assert [info.id for info in (await stores.list(type="onnx.ModelProto", tag="oth")).items] == [one]
        page = await stores.list(tag="net:", limit=1)
        assert [info.id for info in (await stores.list(tag="net:", limit=1, cursor=page.next)).items] == [one]

    in_memory(work)


def test_what_a_store_may_be_called_by() -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        store_id = (await upload(stores, onnx(5), IngestRequest(tags=("resnet50:3",)))).store.id
        for ref in (store_id, store_id[:12], store_id[:63], "resnet50:3"):
            assert (await stores.get(ref)).id == store_id
            assert (await stores.view(ref)).info.id == store_id
        other = "f" * 64 if store_id[0] != "f" else "0" * 64
        for ref in (other, other[:12], "resnet50:4", store_id[:-1] + ("0" if store_id[-1] != "0" else "1")):
            with pytest.raises(NotFound):
                await stores.get(ref)
        for ref in (store_id[:11] + "!", "", ".", "../x", "a b", "é", "a" * 129, "-a"):
            with pytest.raises(InvalidInput):
                await stores.get(ref)

    in_memory(work)


def test_a_beginning_of_several_ids_is_not_enough() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        store_id = (await upload(stores, onnx(5))).store.id
        twin = store_id[:20] + ("0" if store_id[20] != "0" else "1") * 44
        await storage.put(ObjectKey(f"stores/{twin}"), b"")
        with pytest.raises(InvalidInput, match="several"):
            await stores.get(store_id[:20])
        assert (await stores.get(store_id[:21])).id == store_id

    in_memory(work)


def test_a_store_that_is_deleted_is_gone_with_its_tags() -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        ids = await some(stores, 2)
        await stores.put_tag("a", ids[0])
        await stores.put_tag("b", ids[1])
        await stores.view(ids[0])
        await stores.delete("a")
        assert set(await visible(stores)) == {ids[1]}
        assert [tag.name for tag in (await stores.tags()).items] == ["b"]
        for call in (stores.get, stores.view, stores.delete):
            with pytest.raises(NotFound):
                await call(ids[0])
        with pytest.raises(NotFound):
            await stores.put_tag("c", ids[0])
        again = await upload(stores, onnx(10, seed=0))
        assert (again.store.id, again.created, again.store.tags) == (ids[0], True, ())
        await assert_whole(stores, again.store)

    in_memory(work)


def test_a_store_deleted_elsewhere_and_sent_again_is_read_where_it_lies_now() -> None:
    async def work(ours: Stores, storage: MemoryStorage) -> None:
        async with opened(storage) as theirs:
            info = (await upload(ours, onnx(90_000))).store
            await assert_whole(ours, info)
            await theirs.delete(info.id)
            assert (await upload(theirs, onnx(90_000))).created
            await asyncio.sleep(0.002)
            await theirs.collect_garbage(grace_seconds=0)
            await assert_whole(ours, info)
            assert set(await visible(ours)) == {info.id}

    in_memory(work)


class Forgetful(MemoryStorage):
    """Loses the answer to the first creation of a manifest, as a remote storage may that tries again by itself."""

    lost = False

    async def put_if_absent(self, key: ObjectKey, data: bytes | bytearray | memoryview) -> str:
        etag = await super().put_if_absent(key, data)
        if key.segments[0] == "stores" and not self.lost:
            self.lost = True
            raise Conflict("it exists")
        return etag


def test_a_store_that_seems_to_be_there_already_may_be_our_own() -> None:
    async def run() -> None:
        storage = Forgetful()
        storage.lost = True
        async with opened(storage) as ours, opened(storage) as theirs:
            info = (await upload(ours, onnx(90_000))).store
            await assert_whole(ours, info)
            await theirs.delete(info.id)
            storage.lost = False
            assert (await upload(ours, onnx(90_000))).created
            await assert_whole(ours, info)

    asyncio.run(run())


class Vanishing(MemoryStorage):
    """Removes a manifest right after it has stood in the way of another."""

    vanish = False

    async def put_if_absent(self, key: ObjectKey, data: bytes | bytearray | memoryview) -> str:
        try:
            return await super().put_if_absent(key, data)
        except Conflict:
            if self.vanish and key.segments[0] == "stores":
                await self.delete(key)
            raise


def test_an_upload_whose_double_is_deleted_meanwhile_makes_the_store() -> None:
    async def run() -> None:
        storage = Vanishing()
        async with opened(storage) as stores:
            await upload(stores, onnx(90_000))
            storage.vanish = True
            again = await upload(stores, onnx(90_000))
            assert again.created
            await assert_whole(stores, again.store)

    asyncio.run(run())


def test_a_store_cut_down_twice_at_once() -> None:
    async def work(ours: Stores, storage: MemoryStorage) -> None:
        async with opened(storage) as theirs:
            info = (await upload(ours, onnx(90_000))).store
            answers = await asyncio.gather(ours.delete(info.id), theirs.delete(info.id), return_exceptions=True)
            assert all(answer is None or isinstance(answer, NotFound) for answer in answers)
            assert None in answers
            assert await visible(ours) == await visible(theirs) == {}
            await asyncio.sleep(0.002)
            await ours.collect_garbage(grace_seconds=0)
            assert await keys_in(storage) == ["protoslice.json"]

    in_memory(work)


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


def test_pages_of_tags() -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        (store_id,) = await some(stores, 1)
        names = [*(f"t{n}" for n in range(7)), "t~:@+"]
        for name in names:
            await stores.put_tag(name, store_id)
        seen: list[str] = []
        cursor: str | None = None
        while True:
            page = await stores.tags(limit=3, cursor=cursor)
            seen.extend(tag.name for tag in page.items)
            if (cursor := page.next) is None:
                break
        assert sorted(seen) == sorted(names)
        for bad in ("a/b", ""):
            with pytest.raises(InvalidInput):
                await stores.tags(cursor=bad)

    in_memory(work)


def test_tags_that_come_and_go_disturb_no_reader() -> None:
    async def work(stores: Stores, storage: Storage) -> None:
        one, two = await some(stores, 2)
        done = False

        async def restless(name: str) -> None:
            while not done:
                await stores.put_tag(name, two)
                await stores.put_tag(name, one)
                await stores.delete_tag(name)
                await asyncio.sleep(0)

        async with opened(storage) as others:
            tasks = [asyncio.create_task(restless(name)) for name in ("a", "b")]
            await others.put_tag("fixed", one)
            for _ in range(60):
                assert "fixed" in (await others.get(one)).tags
                assert {info.id for info in (await others.list()).items} == {one, two}
                assert "fixed" in {tag.name for tag in (await others.tags()).items}
                await asyncio.sleep(0)
                with suppress(NotFound):
                    assert (await others.tag("a")).store in {one, two}
            done = True
            await asyncio.gather(*tasks)

    in_files(work)
    in_memory(work)


class Restless(MemoryStorage):
    """Sets a tag anew, or removes one, whenever tags have been listed or looked at."""

    store = ""

    async def list(self, prefix: ObjectKey | None = None, *, after: ObjectKey | None = None, limit: int = 1000) -> Page:
        page = await super().list(prefix, after=after, limit=limit)
        if self.store and prefix == ObjectKey("tags"):
            await self.put(ObjectKey("tags/moved"), self._objects[ObjectKey("tags/moved")].data)
            await self.delete(ObjectKey("tags/gone"))
        return page

    async def stat(self, key: ObjectKey) -> ObjectStat:
        stat = await super().stat(key)
        if self.store and key == ObjectKey("tags/moved"):
            await self.put(key, self._objects[key].data)
            self.store = ""
        return stat


def test_tags_that_change_between_a_list_and_its_reading() -> None:
    async def run() -> None:
        storage = Restless()
        async with opened(storage) as stores:
            (store_id,) = await some(stores, 1)
            for name in ("gone", "here", "moved"):
                await stores.put_tag(name, store_id)
        async with opened(storage) as stores:
            storage.store = store_id
            assert [tag.name for tag in (await stores.tags()).items] == ["here", "moved"]
        async with opened(storage) as stores:
            storage.store = store_id
            assert (await stores.tag("moved")).store == store_id
            assert (await stores.get(store_id)).tags == ("here", "moved")

    asyncio.run(run())


def test_schemas() -> None:
    async def work(stores: Stores, _: Storage) -> None:
        data = descriptor_set("A", "B")
        info, new = await stores.put_schema("mine", data)
        assert (new, info.messages, info.size) == (True, 2, len(data))
        assert await stores.schema("mine") == (info, data)
        info, new = await stores.put_schema("mine", descriptor_set("A"))
        assert (new, info.messages) == (False, 1)
        await stores.put_schema("other", data)
        assert [item.name for item in (await stores.schemas()).items] == ["mine", "other"]
        page = await stores.schemas(limit=1)
        assert [item.name for item in (await stores.schemas(limit=1, cursor=page.next)).items] == ["other"]
        await stores.delete_schema("mine")
        for call in (stores.schema, stores.delete_schema):
            with pytest.raises(NotFound, match="'mine'"):
                await call("mine")
        with pytest.raises(InvalidInput):
            await stores.put_schema("a/b", data)
        with pytest.raises(ProtosliceError):
            await stores.put_schema("bad", b"\xff\xff")
        with pytest.raises(NotFound):
            await stores.schema("bad")

    in_memory(work)
    in_files(work)


def test_a_store_keeps_the_schema_it_was_made_with() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        await stores.put_schema("mine", descriptor_set("Thing"))
        request = IngestRequest(type="mine.Thing")
        info = (await upload(stores, {"x": b"\x0a\x03abc"}, request)).store
        await stores.delete_schema("mine")
        async with opened(storage) as others:
            assert await read(await (await others.view(info.id)).merge("data", None, None)) == b"abc"
            with pytest.raises(Unsupported, match=r"mine\.Thing"):
                await others.ingest(request)

    in_memory(work)


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


def test_a_damaged_manifest_harms_no_other_store_and_can_be_deleted() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        one, two = await some(stores, 2)
        await storage.put(ObjectKey(f"stores/{one}"), b"{}")
        async with opened(storage) as others:
            with pytest.raises(IntegrityError):
                await others.get(one)
            with pytest.raises(IntegrityError):
                await others.view(one)
            assert set(await visible(others)) == {two}
            await others.delete(one)
            with pytest.raises(NotFound):
                await others.get(one)
            await asyncio.sleep(0.002)
            await others.collect_garbage(grace_seconds=0)
            assert len({key.split("/")[1] for key in await keys_in(storage, "objects")}) == 1
            assert (await upload(others, onnx(10, seed=0))).store.id == one

    in_memory(work)


def test_a_store_whose_object_is_gone_is_damaged_not_missing() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        info = (await upload(stores, onnx(90_000))).store
        for name in ("index", "file-0.sums", "file-0"):
            (key,) = [key for key in await keys_in(storage, "objects") if key.endswith("/" + name)]
            await storage.delete(ObjectKey(key))
            async with opened(storage) as others:
                with pytest.raises(CorruptModel, match="missing"):
                    await assert_whole(others, info)

    in_memory(work)


def test_a_storage_of_another_layout_is_refused() -> None:
    async def run() -> None:
        storage = MemoryStorage()
        await storage.put(ObjectKey("protoslice.json"), b'{"layout":2}')
        with pytest.raises(Unsupported, match="another version"):
            await Stores.open(storage)

    asyncio.run(run())


class Careless(MemoryStorage):
    """Ignores conditions, as many servers do that speak S3."""

    async def put_if_absent(self, key: ObjectKey, data: bytes | bytearray | memoryview) -> str:
        return await self.put(key, data)


def test_a_storage_without_conditions_serves_and_takes_nothing_in() -> None:
    async def run() -> None:
        storage = Careless()
        await storage.put(ObjectKey("protoslice.json"), b'{"layout":1}')
        async with opened(storage) as stores:
            assert await visible(stores) == {}
            calls = (
                lambda: stores.ingest(IngestRequest()),
                lambda: stores.register({}, IngestRequest()),
                lambda: stores.delete("a"),
                lambda: stores.put_tag("a", "b"),
                lambda: stores.delete_tag("a"),
                lambda: stores.put_schema("a", b""),
                lambda: stores.delete_schema("a"),
                stores.collect_garbage,
            )
            for call in calls:
                with pytest.raises(Unsupported, match="create-if-absent"):
                    await call()

    asyncio.run(run())


def test_readiness() -> None:
    async def run(stores: Stores, _: FileStorage) -> None:
        await stores.ready()

    async def full(stores: Stores, _: FileStorage) -> None:
        with pytest.raises(ProtosliceError, match="nearly full"):
            await stores.ready()

    in_files(run, StoreOptions(space_watermark_bytes=0))
    in_files(full, StoreOptions(space_watermark_bytes=1 << 60))
