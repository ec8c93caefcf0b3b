"""Every view is what it says, and every range of it is a slice of the whole."""

import asyncio
import hashlib
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.catalogues import catalogue_of
from tests.support.golden import CHUNKED
from tests.support.stores import assert_whole, every_view, field, in_files, in_memory, onnx, opened, read, upload

import protoslice
from protoslice.errors import InvalidInput, LimitExceeded, NotFound, ProtosliceError, Unsupported
from protoslice.facts import ChunkEntry
from protoslice.server.api.encoding import encode_items
from protoslice.storage import FileStorage, MemoryStorage
from protoslice.stores import IngestRequest, OpenStore, StoreOptions, Stores

MODEL = onnx(100, 70_000, 2_300_000, 10, 1_048_576)
REQUEST = IngestRequest(min_chunk=50_000, max_chunk=1_000_000)
FILES = {
    "raw": {"model.onnx": MODEL, "notes": b"a text"},
    "plain cpb": {"x.cpb": (CHUNKED / "graph_large_constants.max100000.uncompressed.cpb").read_bytes()},
    "compressed cpb": {"x.cpb": (CHUNKED / "graph_large_constants.max70000.zstd.cpb").read_bytes()},
}


async def store_of(stores: Stores, name: str = "raw") -> OpenStore:
    return await stores.view((await upload(stores, FILES[name], REQUEST)).store.id)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("verify", [True, False])
@settings(max_examples=3)
@given(data=st.data())
def test_ranges_are_slices_of_the_whole(name: str, verify: bool, data: st.DataObject) -> None:
    async def work(stores: Stores, _: object) -> None:
        store = await store_of(stores, name)
        async for view_name, view in every_view(store):
            whole = await read(view)
            assert len(whole) == view.size
            for _ in range(4):
                start = data.draw(st.integers(0, view.size), view_name)
                end = data.draw(st.integers(start, view.size))
                assert await read(view, start, end) == whole[start:end]

    in_memory(work, StoreOptions(verify_reads=verify))
    in_files(work, StoreOptions(verify_reads=verify))


def test_edges_of_blocks_and_pieces() -> None:
    async def work(stores: Stores, _: FileStorage) -> None:
        view = (await store_of(stores)).file("model.onnx")
        for edge in (65536, 1 << 20, 2 << 20, view.size):
            for start in range(edge - 2, min(edge + 2, view.size)):
                for end in (start, start + 1, start + 3, edge + 65536, view.size):
                    assert await read(view, start, min(end, view.size)) == MODEL[start:end]

    in_files(work)


def test_a_view_comes_in_pieces_and_no_byte_twice() -> None:
    async def work(stores: Stores, _: FileStorage) -> None:
        store = await store_of(stores)
        async for _name, view in every_view(store):
            async with aclosing(view.pieces(1, view.size)) as pieces:
                sizes = [len(piece) async for piece in pieces]
            assert sum(sizes) == max(0, view.size - 1)
            assert max(sizes, default=0) <= 1 << 20

    in_files(work)


def test_every_view_says_what_it_is() -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        store = await store_of(stores)
        file, merge, metadata = store.file("model.onnx"), await store.merge("", None, None), await store.metadata()
        digest = hashlib.sha256(MODEL).digest()
        assert (file.sha256, file.message_type, file.filename) == (digest, "onnx.ModelProto", "model.onnx")
        assert (merge.sha256, merge.message_type, merge.kind) == (digest, "onnx.ModelProto", "message")
        assert store.file("notes").message_type is None
        assert metadata.message_type == "tensorflow.proto_splitter.ChunkMetadata"
        assert metadata.sha256 == hashlib.sha256(await read(metadata)).digest()
        name = await store.merge("graph.initializer[1].name", None, None)
        assert (name.kind, await read(name), name.media_type) == ("string", b"weight-1", "text/plain; charset=utf-8")
        raw = await store.merge("graph.initializer[1].raw_data", None, None)
        assert (raw.kind, raw.size, raw.media_type) == ("bytes", 70_000, "application/octet-stream")
        tensor = await store.merge('graph.initializer[name="weight-3"]', None, None)
        assert (tensor.kind, tensor.message_type) == ("message", "onnx.TensorProto")
        number = await store.merge("ir_version", None, None)
        assert (await read(number), number.media_type) == (b"8", "text/plain; charset=utf-8")
        assert (await store.cpb()).filename == "model.cpb"

    in_memory(work)


def test_a_merge_is_planned_once_for_all_of_its_ranges() -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        store, other = await store_of(stores), await stores.view((await upload(stores, onnx(10))).store.id)
        masks: list[tuple[str, list[str] | None, int | None]] = [
            ("", ["graph.initializer.name"], None), ("graph", ["initializer.name"], None), ("", None, 60_000),
            ("", ["graph.initializer.name"], 60_000), ("", None, None),
        ]  # fmt: skip
        first = [await store.merge(*mask) for mask in masks]
        assert [await read(await store.merge(*mask)) for mask in masks] == [await read(view) for view in first]
        for mask, view in zip(masks, first, strict=True):
            assert (await store.merge(*mask)).rope is view.rope
        assert await read(await other.merge(*masks[0])) != await read(first[0])
        for n in range(100):
            await store.merge("", None, n)
        assert (await store.merge(*masks[0])).rope is not first[0].rope, "only so many are kept"

    in_memory(work, StoreOptions(open_stores_bytes=100_000))


def test_a_validator_names_one_content() -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        first = await store_of(stores)
        etags = [view.etag async for name, view in every_view(first) if name != "merge"]
        assert len(set(etags)) == len(etags)
        assert (await first.merge("", None, None)).etag == first.file("model.onnx").etag
        assert (await first.merge("", [], None)).etag == (await first.merge("", None, None)).etag
        assert (await first.merge("", ["graph"], None)).etag == (await first.merge("", ("graph",), None)).etag
        assert (await first.merge("", ["graph"], None)).etag != (await first.merge("", ["ir_version"], None)).etag
        async with opened(_) as others:
            again = await others.view(first.info.id)
            assert [view.etag async for name, view in every_view(again) if name != "merge"] == etags

    in_memory(work)


def test_views_agree_with_the_library() -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        store = await store_of(stores)
        with protoslice.open(MODEL, type="onnx.ModelProto") as proto:
            split = proto.split(min_chunk=50_000, max_chunk=1_000_000)
            assert await read(await store.metadata()) == split.metadata
            assert [await read(await store.chunk(n)) for n in range(len(split))] == [bytes(c.rope) for c in split]
            assert await read(await store.cpb()) == bytes(split.cpb())
            for arguments in [("graph", ["name"], None), ("", None, 64), ("", ["graph.initializer[*].name"], 5)]:
                assert await read(await store.merge(*arguments)) == bytes(proto.merge(*arguments))

    in_memory(work)


def test_chunks_have_their_digests_now_and_later() -> None:
    async def work(stores: Stores, storage: FileStorage) -> None:
        store = await store_of(stores)
        assert (await store.chunk(0)).sha256 is None
        infos: list[ChunkEntry] = []
        cursor: str | None = None
        while True:
            page = await store.chunks(limit=2, cursor=cursor)
            infos.extend(page.items)
            assert 0 < len(page.items) <= 2
            if (cursor := page.next) is None:
                break
        assert [info.index for info in infos] == list(range(store.info.chunks))
        for info in infos:
            view = await store.chunk(info.index)
            whole = await read(view)
            assert (info.size, info.sha256) == (len(whole), hashlib.sha256(whole).hexdigest())
            assert (info.kind, info.type, view.sha256) == (view.kind, view.message_type, hashlib.sha256(whole).digest())
        async with opened(storage) as others:
            again = await others.view(store.info.id)
            assert list((await again.chunks(limit=100, cursor=None)).items) == infos

    in_files(work)


def test_what_is_known_of_chunks_is_made_anew_when_it_is_damaged() -> None:
    async def work(stores: Stores, storage: FileStorage) -> None:
        store = await store_of(stores)
        infos = await store.chunks(limit=100, cursor=None)
        cpb = await read(await store.cpb())
        assert await catalogue_of(storage).write(lambda tx: tx.run("UPDATE derived SET data = :data", data=b"{}")) > 0
        async with opened(storage) as others:
            again = await others.view(store.info.id)
            assert await again.chunks(limit=100, cursor=None) == infos
            assert await read(await again.cpb()) == cpb

    in_files(work)


def test_tree() -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        store = await store_of(stores)
        top = await store.tree("", 1, 100, None)
        assert [node.name for node in top.items] == ["ir_version", "producer_name", "graph", "opset_import"]
        assert top.next is None
        paged = [await store.tree("", 1, 1, cursor) for cursor in (None, "1", "2", "3")]
        assert [page.items[0] for page in paged] == list(top.items)
        assert [page.next for page in paged] == ["1", "2", "3", None]
        deep = (await store.tree("", 4, 100, None)).items[2]
        assert {child.name for child in deep.children} == {"name", "initializer"}
        assert (await store.tree("", 1, 100, "4")).items == []

    in_memory(work)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda store: store.chunk(-1), NotFound),
        (lambda store: store.chunk(10**30), NotFound),
        (lambda store: store.merge("grap", None, None), NotFound),
        (lambda store: store.merge("graph.initializer[99]", None, None), NotFound),
        (lambda store: store.merge("graph..name", None, None), InvalidInput),
        (lambda store: store.merge("", ["graph["], None), InvalidInput),
        (lambda store: store.merge("", None, -1), ProtosliceError),
        (lambda store: store.merge("", None, 1 << 70), ProtosliceError),
        (lambda store: store.merge("graph.initializer", None, None), Unsupported),
        (lambda store: store.tree("", 0, 10, None), InvalidInput),
        (lambda store: store.tree("", 17, 10, None), InvalidInput),
        (lambda store: store.tree("", 1, 10, "x"), InvalidInput),
        (lambda store: store.tree("", 1, 10, "9" * 18), None),
        (lambda store: store.chunks(limit=10, cursor="-1"), InvalidInput),
        (lambda store: store.chunks(limit=10, cursor="²"), InvalidInput),
        (lambda store: store.chunks(limit=10, cursor="9" * 18), None),
    ],
)
def test_what_cannot_be_answered(call: object, error: type[Exception] | None) -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        store = await store_of(stores)
        if error is None:
            page = await call(store)  # type: ignore[operator]
            assert (list(page.items), page.next) == ([], None)
            return
        with pytest.raises(error):
            await call(store)  # type: ignore[operator]

    in_memory(work)


def test_no_file_of_that_name() -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        with pytest.raises(NotFound, match="no file 'model'"):
            (await store_of(stores)).file("model")

    in_memory(work)


def test_reading_whole_has_a_limit() -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        view = (await store_of(stores)).file("model.onnx")
        assert await view.read(len(MODEL)) == MODEL
        with pytest.raises(LimitExceeded, match="ask for a part"):
            await view.read(len(MODEL) - 1)

    in_memory(work)


def test_many_readers_of_one_store_open_it_once() -> None:
    async def work(stores: Stores, _: FileStorage) -> None:
        info = (await upload(stores, FILES["raw"], REQUEST)).store
        views = await asyncio.gather(*(stores.view(info.id) for _ in range(20)))
        assert len({id(view) for view in views}) == 1
        wholes = await asyncio.gather(*(read(view.file("model.onnx")) for view in views))
        assert set(wholes) == {MODEL}

    in_files(work)


def test_few_stores_are_kept_open_and_a_reader_does_not_notice() -> None:
    async def work(stores: Stores, _: FileStorage) -> None:
        infos = [(await upload(stores, onnx(3_000_000, seed=seed), REQUEST)).store for seed in range(4)]
        view = (await stores.view(infos[0].id)).file("model.onnx")
        async with aclosing(view.pieces(0, view.size)) as pieces:
            parts = [bytes(await anext(pieces))]
            for info in infos[1:]:
                await assert_whole(stores, info)
            parts.extend([bytes(piece) async for piece in pieces])
        assert b"".join(parts) == onnx(3_000_000, seed=0)

    in_files(work, StoreOptions(open_stores=1))


def test_pages_of_a_tree_and_of_tensors_are_bounded_by_bytes() -> None:
    """A thousand tensors whose names take 4 kB each."""

    async def work(stores: Stores, _: MemoryStorage) -> None:
        initializers = b"".join(field(5, b"\x10\x01" + field(8, b"%03d" % n + b"x" * 4000)) for n in range(1000))
        store = await stores.view((await upload(stores, b"\x08\x08" + field(7, initializers))).store.id)
        names: list[str] = []
        cursor: str | None = None
        while True:
            page = await store.tensors.page(name=None, dtype=None, limit=1000, cursor=cursor)
            assert len(encode_items(page.items)) <= 3 << 19
            names += [each.name[:3] for each in page.items]
            if (cursor := page.next) is None:
                break
        assert names == [f"{number:03}" for number in range(1000)]
        some = await store.tensors.page(name="*x", dtype=None, limit=1000, cursor=None)
        assert len(encode_items(some.items)) <= 1 << 20
        assert some.next == str(len(some.items))

    in_memory(work)


def test_a_page_of_a_tree_whose_type_has_a_long_name() -> None:
    from google.protobuf import descriptor_pb2

    name = "T" * 1000
    file = descriptor_pb2.FileDescriptorProto(name="long.proto", package="long", syntax="proto3")
    element = file.message_type.add(name=name)
    element.field.add(name="text", number=1, type=9, label=1)
    file.message_type.add(name="Root").field.add(name="each", number=1, type=11, label=3, type_name=f".long.{name}")
    schema = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()

    async def work(stores: Stores, _: MemoryStorage) -> None:
        await stores.schemas.put("long", schema)
        data = b"".join(field(1, field(1, b"%d" % number)) for number in range(3000))
        store = await stores.view((await upload(stores, {"x": data}, IngestRequest(type="long.Root"))).store.id)
        count = 0
        cursor: str | None = None
        while True:
            page = await store.tree("each", 1, 3000, cursor)
            assert len(encode_items(page.items)) <= 3 << 19
            count += len(page.items)
            if (cursor := page.next) is None:
                break
        assert count == 3000

    in_memory(work)
