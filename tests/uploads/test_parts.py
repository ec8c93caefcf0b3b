"""Parts: they are few for any size of requests, read as one, never twice without need, and collected at last."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from random import Random

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import golden
from tests.support.catalogues import catalogue_of
from tests.support.golden import CHUNKED
from tests.support.stores import (
    assert_whole,
    collect_garbage,
    field,
    in_memory,
    keys_in,
    objects_in,
    onnx,
    opened,
    read,
    upload,
    usage_of,
)

from protoslice import _core
from protoslice.catalog.manifest import Manifest, ObjectLocation, sums_of
from protoslice.concurrency.executor import Worker
from protoslice.detection import HEAD
from protoslice.errors import IntegrityError, NotFound, Unsupported
from protoslice.ingest.inspection import Inspection
from protoslice.schema import from_descriptor_set
from protoslice.serving import Representation, StoreOptions
from protoslice.serving.joined import open_file_object
from protoslice.serving.schemas import Types
from protoslice.storage import Call, MemoryStorage, MeteredStorage, ObjectKey, Span, Storage
from protoslice.stores import IngestRequest, Stores
from protoslice.stores.collection import Usage
from protoslice.uploads import Body, NewUpload, Upload, UploadOptions

BLOCK = 64 << 10


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def send(stores: Stores, data: bytes, sizes: Sequence[int], **wanted: object) -> Upload:
    """Upload `data` in bodies of these sizes, repeated in turn."""
    found = await stores.uploads.create(NewUpload(length=len(data), **({"path": "model.onnx"} | wanted)))  # type: ignore[arg-type]
    at, turn = 0, 0
    while at < len(data):
        body = Body(pieces=pieces(data[at : at + sizes[turn % len(sizes)]]), offset=at)
        found = await stores.uploads.append(found.id, body)
        at, turn = found.offset, turn + 1
    return found


async def test_little_at_a_time_makes_few_parts(stores: Stores, storage: MemoryStorage) -> None:
    data = onnx(250_000, seed=1)
    found = await send(stores, data, [300])
    assert len(found.parts) <= 50
    await collect_garbage(storage)
    assert {key for part in found.parts for key in part.keys} <= {*await objects_in(storage)}
    assert len(await objects_in(storage)) <= len(found.parts) + 1, "their sums lie in the record, and perhaps a state"
    await assert_whole(stores, (await stores.view(found.store or "")).info)


def test_a_long_body_is_cut_into_parts() -> None:
    data = onnx(6_000_000, seed=1)

    async def work(stores: Stores, _: MemoryStorage) -> None:
        found = await send(stores, data, [len(data)])
        assert [part.size for part in found.parts[:-1]] == [1 << 20] * (len(found.parts) - 1) or len(found.parts) > 1
        await assert_whole(stores, (await stores.view(found.store or "")).info)

    in_memory(work, StoreOptions(uploads=UploadOptions(part_bytes=1 << 20)))


def test_every_view_over_parts_is_what_it_is_over_one_object() -> None:
    data = onnx(400_000, 100_000, *[3000] * 50, seed=2)
    request = IngestRequest(min_chunk=20_000)

    async def views(sizes: Sequence[int] | None) -> dict[str, bytes]:
        async with opened(MemoryStorage(), StoreOptions(uploads=UploadOptions(part_bytes=70_000))) as stores:
            if sizes is None:
                info = (await upload(stores, data, request)).store
            else:
                found = await send(stores, data, sizes, request=request)
                assert len(found.parts) > 2
                info = (await stores.view(found.store or "")).info
            store = await stores.view(info.id)
            file = store.file("model.onnx")
            random = Random(1)
            for _ in range(200):
                start, end = sorted(random.randrange(len(data) + 1) for _ in range(2))
                assert await read(file, start, end) == data[start:end]
            return await assert_whole(stores, info)

    expected = asyncio.run(views(None))
    for sizes in ([100_000], [1, 65_536, 99_999], [30_000]):
        assert asyncio.run(views(sizes)) == expected


async def stored(storage: Storage, number: int, content: bytes) -> ObjectLocation:
    """Store part `number` with its checksums."""
    key = ObjectKey(f"objects/xx/{number:x}-00")
    sums = _core.BlockSums()
    sums.update(content)
    etag = await storage.put(key, content)
    await storage.put(sums_of(key), sums.finish())
    return ObjectLocation(len(content), key=str(key), etag=etag)


@settings(max_examples=60)
@given(st.lists(st.sampled_from([1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 150_000]), min_size=2, max_size=5), st.data())
def test_joined_objects_read_like_their_bytes(sizes: list[int], data: st.DataObject) -> None:
    whole = Random(1).randbytes(sum(sizes))

    async def work() -> None:
        storage, worker = MemoryStorage(), Worker(1)
        parts, at = [], 0
        for number, size in enumerate(sizes):
            parts.append(await stored(storage, number, whole[at : at + size]))
            at += size
        joined = await open_file_object(storage, ObjectLocation.joined(parts), worker, verify=True)
        assert joined.size == len(whole)
        offset = data.draw(st.integers(0, len(whole)))
        length = data.draw(st.integers(0, len(whole) - offset))
        assert await worker.run(lambda: joined.read(offset, length)) == whole[offset : offset + length]
        if length:
            low, high = joined.covering((offset, offset + length))
            assert low <= offset
            assert offset + length <= high
            assert [bytes(part) for part in await joined.fetch([(low, high), (low, low)])] == [whole[low:high], b""]
        key = ObjectKey(parts[-1].key or "")
        await storage.put(key, bytes(sizes[-1]))
        if any(whole[-sizes[-1] :]):
            with pytest.raises(IntegrityError):
                await joined.fetch([joined.covering((len(whole) - sizes[-1], len(whole)))])
        joined.close()
        await worker.close()

    asyncio.run(work())


def test_a_file_of_several_objects_has_no_attribute_that_fails() -> None:
    async def work() -> None:
        storage, worker = MemoryStorage(), Worker(1)
        parts = [await stored(storage, number, b"abc") for number in range(2)]
        joined = await open_file_object(storage, ObjectLocation.joined(parts), worker, verify=True)
        for name in dir(joined):
            getattr(joined, name)
        joined.close()
        await worker.close()

    asyncio.run(work())


def test_no_block_of_a_part_is_read_twice() -> None:
    """For any start of the parts: each write ends where a block of a part does."""
    sizes = [(2 << 20) + 12_345] * 3
    whole = Random(2).randbytes(sum(sizes))

    async def work() -> None:
        calls: list[Call] = []
        storage, worker = MeteredStorage(MemoryStorage(), calls.append), Worker(1)
        parts = [await stored(storage, number, whole[size * number :][:size]) for number, size in enumerate(sizes)]
        joined = await open_file_object(storage, ObjectLocation.joined(parts), worker, verify=True)
        calls.clear()
        view = Representation(_core.Rope([(0, 0, len(whole))]), [joined], "etag", "model.onnx")
        assert await read(view) == whole
        assert sum(call.bytes_read for call in calls) == len(whole)
        await worker.close()

    asyncio.run(work())


@settings(max_examples=40)
@given(st.lists(st.integers(1, 90_000), min_size=1, max_size=6), st.sampled_from(["model.onnx", "odd.bin", "a.txt"]))
def test_an_examination_may_be_left_after_any_piece(sizes: list[int], path: str) -> None:
    data = {"a.txt": b"name: 'x' " * 20_000}.get(path, onnx(80_000, 70_000, 200, seed=3))
    straight = Inspection(path, None, Types())
    straight.take(data)
    left = Inspection(path, None, Types())
    at = 0
    for size in [*sizes, len(data)]:
        left.take(data[at : at + size])
        at = min(at + size, len(data))
        saved = left.save()
        assert (saved is None) == (at < BLOCK)
        if saved is not None:
            left = Inspection.load(saved, path, None, Types())
            assert left.size == at
    one, other = straight.finish(), left.finish()
    assert (one.sha256, one.detection) == (other.sha256, other.detection)
    assert (one.scan and one.scan.index) == (other.scan and other.scan.index)


def test_a_failed_scan_is_remembered() -> None:
    data = onnx(100_000, seed=1)[:70_000] + b"\xff" * 200_000
    found = Inspection("model.onnx", None, Types())
    found.take(data)
    again = Inspection.load(found.save() or b"", "model.onnx", None, Types()).finish()
    first = found.finish()
    assert first.scan is not None
    assert again.scan is not None
    assert first.scan.error is not None
    assert repr(first.scan.error) == repr(again.scan.error)


def test_a_failed_scan_keeps_no_bytes() -> None:
    inspection = Inspection("a.onnx", None, Types())
    inspection.take(b"\xff" * (2 * HEAD))
    scan = inspection.finish().scan
    assert scan is not None
    assert scan.error is not None
    assert scan.error.__traceback__ is None  # frames hold scanned bytes


def test_a_state_of_something_else_is_refused() -> None:
    found = Inspection("model.onnx", None, Types())
    found.take(onnx(100_000))
    saved = found.save() or b""
    for path, wanted in (("other.onnx", None), ("model.onnx", "onnx.ModelProto")):
        with pytest.raises(Unsupported):
            Inspection.load(saved, path, wanted, Types())
    with pytest.raises(IntegrityError):
        Inspection.load(saved[:50] + b"!" + saved[51:], "model.onnx", None, Types())


@pytest.mark.parametrize(("before", "path"), [("blob", "model.onnx"), ("model.onnx", "blob"), ("blob", "a/b.bin")])
def test_a_state_of_another_path_will_do_for_a_file_that_is_scanned_alike(before: str, path: str) -> None:
    data = onnx(100_000, seed=4)
    found = Inspection(before, None, Types())
    found.take(data[:90_000])
    named = Inspection.load(found.save() or b"", path, None, Types(), data[:HEAD])
    assert named.size == 90_000
    named.take(data[90_000:])
    straight = Inspection(path, None, Types())
    straight.take(data)
    one, other = straight.finish(), named.finish()
    assert (one.sha256, one.detection) == (other.sha256, other.detection)
    assert (one.scan and (one.scan.type, one.scan.index)) == (other.scan and (other.scan.type, other.scan.index))


def test_a_state_of_another_path_is_refused_for_a_file_that_is_scanned_otherwise() -> None:
    data = b"".join(field(4, bytes(100)) for _ in range(1000))
    found = Inspection("blob", None, Types())
    found.take(data)
    saved = found.save() or b""
    with pytest.raises(Unsupported):
        Inspection.load(saved, "graph.caffemodel", None, Types(), data[:HEAD])
    assert Inspection.load(saved, "other", None, Types(), data[:HEAD]).size == len(data)


def test_a_state_is_not_gone_on_from_by_another_schema() -> None:
    """A schema may be replaced while an upload pauses, and a mixed index would belong to neither schema."""

    def named(*names: str) -> Types:
        file = descriptor_pb2.FileDescriptorProto(name="x", package="mine")
        message = file.message_type.add(name="Thing")
        for number, name in enumerate(names, 1):
            message.field.add(name=name, number=number, type=12, label=1)
        return Types(from_descriptor_set(descriptor_pb2.FileDescriptorSet(file=[file])).schema("mine.Thing"))

    found = Inspection("x.bin", "mine.Thing", named("a", "b"))
    found.take(b"".join(field(1 + each % 2, bytes(100)) for each in range(1000)))
    saved = found.save() or b""
    assert Inspection.load(saved, "x.bin", "mine.Thing", named("a", "b")).size == found.size
    with pytest.raises(Unsupported, match="another schema"):
        Inspection.load(saved, "x.bin", "mine.Thing", named("b", "a"))


def test_a_state_of_an_older_program_is_gone_on_from() -> None:
    """The state was saved when SHA-256 was our own code: uploads continue after an update of the program."""
    data = b"".join(b"\x0a\x64" + bytes((at + each) % 251 for each in range(100)) for at in range(1000))
    straight = Inspection("x.bin", None, Types())
    straight.take(data)
    resumed = Inspection.load(golden.stored("storage/inspection.state").read_bytes(), "x.bin", None, Types())
    assert resumed.size == 70_001
    resumed.take(data[70_001:])
    one, other = straight.finish(), resumed.finish()
    assert other.sha256 == hashlib.sha256(data).digest()
    assert other.scan is not None
    assert other.scan.index is not None
    assert one.detection is not None
    # The state keeps the old wording of the message.
    assert one == replace(other, detection=one.detection)


class Counting(MemoryStorage):
    """A storage that counts the read bytes of parts."""

    read = 0

    async def get_ranges(self, key: ObjectKey, spans: Sequence[Span], *, if_etag: str | None = None) -> Sequence[bytes]:
        found = await super().get_ranges(key, spans, if_etag=if_etag)
        self.read += sum(map(len, found))
        return found


def test_going_on_in_another_process_reads_little_again() -> None:
    data = onnx(*[40_000] * 100, seed=4)

    async def work() -> None:
        storage, again = Counting(), []
        async with opened(storage) as stores:
            found = await stores.uploads.create(NewUpload(length=len(data), path="model.onnx"))
        for at in range(0, len(data), 500_000):
            async with opened(storage) as stores:
                storage.read = 0
                found = await stores.uploads.append(found.id, Body(pieces=pieces(data[at : at + 500_000]), offset=at))
                again += [storage.read]
        assert found.state == "stored"
        assert max(again[:-1]) <= 100_000, again

    asyncio.run(work())


async def test_a_state_that_is_lost_costs_only_time(stores: Stores, storage: MemoryStorage) -> None:
    data = onnx(300_000, seed=5)
    found = await stores.uploads.create(NewUpload(length=len(data), path="model.onnx"))
    found = await stores.uploads.append(found.id, Body(pieces=pieces(data[:200_000]), offset=0))
    assert found.saved is not None
    await storage.delete(ObjectKey(found.saved.key))
    found = await stores.uploads.append(found.id, Body(pieces=pieces(data[200_000:]), offset=200_000))
    assert found.store == (await upload(stores, data)).store.id


def test_what_expired_is_collected_and_stores_of_uploads_are_not() -> None:
    data = onnx(200_000, seed=6)
    options = StoreOptions(uploads=UploadOptions(lifetime_seconds=3600, part_bytes=70_000))
    an_hour_later = lambda: time.time() + 3601  # noqa: E731

    async def work(stores: Stores, storage: MemoryStorage) -> None:
        stored = await send(stores, data, [90_000])
        open_one = await stores.uploads.create(NewUpload(length=len(data)))
        open_one = await stores.uploads.append(open_one.id, Body(pieces=pieces(data[:100_000]), offset=0))
        expiring = {key for part in open_one.parts for key in part.keys}
        assert expiring <= {*await objects_in(storage)}
        await collect_garbage(storage, grace_seconds=0, clock=an_hour_later)
        assert not expiring & {*await objects_in(storage)}
        info = (await stores.view(stored.store or "")).info
        await assert_whole(stores, info)
        with pytest.raises(NotFound):
            await stores.uploads.get(open_one.id)
        await stores.delete(info.id)
        await asyncio.sleep(0.002)
        await collect_garbage(storage, grace_seconds=0)
        assert await objects_in(storage) == []
        assert await usage_of(storage) == Usage(0, 0, 0)

    in_memory(work, options)


def test_a_store_keeps_its_objects_when_its_upload_is_removed_and_an_upload_those_of_its_store() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        first, second = [await send(stores, onnx(200_000, seed=seed), [90_000]) for seed in (6, 7)]
        await stores.uploads.remove(first.id)
        await stores.delete(second.store or "")
        await asyncio.sleep(0.002)
        await collect_garbage(storage, grace_seconds=0)
        await assert_whole(stores, (await stores.view(first.store or "")).info)
        assert {key for part in second.parts for key in part.keys} <= {*await objects_in(storage)}

    in_memory(work, StoreOptions(uploads=UploadOptions(part_bytes=70_000)))


async def test_an_upload_in_use_is_not_collected_within_the_grace(stores: Stores, storage: MemoryStorage) -> None:
    data = onnx(200_000, seed=7)
    found = await stores.uploads.create(NewUpload(length=len(data)))
    await stores.uploads.append(found.id, Body(pieces=pieces(data[:100_000]), offset=0))
    before = await keys_in(storage)
    await asyncio.sleep(0.002)
    await collect_garbage(storage, grace_seconds=0)
    assert await keys_in(storage) == before
    done = await stores.uploads.append(found.id, Body(pieces=pieces(data[100_000:]), offset=100_000))
    assert done.state == "stored"


async def test_a_damaged_record_is_an_error_and_harms_no_other(stores: Stores, storage: MemoryStorage) -> None:
    data = onnx(200_000, seed=7)
    broken = await stores.uploads.create(NewUpload(length=len(data)))
    await catalogue_of(storage).write(lambda tx: tx.run("UPDATE uploads SET record = '{}'"))
    with pytest.raises(IntegrityError):
        await stores.uploads.get(broken.id)
    assert (await send(stores, data, [90_000])).state == "stored"
    await collect_garbage(storage, grace_seconds=3600)


async def test_manifests_name_every_object_they_need(stores: Stores) -> None:
    data = onnx(200_000, seed=8)
    found = await send(stores, data, [90_000])
    manifest = (await stores.view(found.store or "")).manifest
    assert manifest.object_ids == {each for part in found.parts for each in part.object_ids}
    rows = await stores.database.read(lambda tx: tx.all("SELECT object FROM store_objects"))
    assert {object for (object,) in rows} == manifest.object_ids
    assert Manifest.decode(manifest.encode()) == manifest


@pytest.mark.parametrize("sizes", [[1000], [150_000]])
async def test_a_flipped_bit_in_a_part_is_never_given_out(
    stores: Stores, storage: MemoryStorage, sizes: list[int]
) -> None:
    data = onnx(250_000, seed=9)
    found = await send(stores, data, sizes)
    key = ObjectKey(found.parts[-1].key or "")
    content = bytearray(await storage.get_range(key, 0, found.parts[-1].size))
    content[len(content) // 2] ^= 1
    await storage.put(key, bytes(content))
    with pytest.raises(IntegrityError):
        await assert_whole(stores, (await stores.view(found.store or "")).info)


@pytest.mark.parametrize("name", ["graph_many_nodes.max20000.cpb", "graph_large_constants.max100000.uncompressed.cpb"])
async def test_chunked_protos_come_in_parts_too(stores: Stores, name: str) -> None:
    data = (CHUNKED / name).read_bytes()
    found = await send(stores, data, [len(data) // 3, 1000], path=name)
    assert len(found.parts) > 2
    info = (await stores.view(found.store or "")).info
    whole = await assert_whole(stores, info)
    await stores.delete(info.id)
    again = (await upload(stores, {name: data})).store
    assert again.id == info.id
    assert await assert_whole(stores, again) == whole


async def test_a_type_of_an_uploaded_schema(stores: Stores) -> None:
    data = onnx(200_000, seed=12)
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="own.proto", package="own", syntax="proto3")
    file.message_type.add(name="Thing").field.add(name="x", number=1, type=9, label=1)
    await stores.schemas.put("own", files.SerializeToString())
    found = await send(stores, data, [90_000], request=IngestRequest(type="own.Thing"))
    info = (await stores.view(found.store or "")).info
    assert info.type == "own.Thing"
    await assert_whole(stores, info)
    assert (await upload(stores, data, IngestRequest(type="own.Thing"))).store.id == info.id
