"""Every view has the right content, and every range of a view is a slice of the whole."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.catalogues import catalogue_of
from tests.support.golden import CHUNKED
from tests.support.stores import assert_whole, every_view, field, in_files, in_memory, onnx, opened, read, upload

import protoslice
from protoslice.catalog.paging import ResultPage
from protoslice.errors import InvalidInput, LimitExceeded, NotFound, ProtosliceError, Unsupported
from protoslice.facts import ChunkEntry, Difference, TensorEntry
from protoslice.server.api.encoding import encode_items
from protoslice.serving import OpenStore, StoreOptions
from protoslice.storage import FileStorage, MemoryStorage
from protoslice.stores import IngestRequest, Stores
from protoslice.views import chunks, documents, tensors
from protoslice.views.comparisons import compare

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


async def test_every_view_says_what_it_is(stores: Stores) -> None:
    store = await store_of(stores)
    file, merge, metadata = (
        store.file("model.onnx"),
        await documents.merge(store, "", None, None),
        await chunks.metadata(store),
    )
    digest = hashlib.sha256(MODEL).digest()
    assert (file.sha256, file.message_type, file.filename) == (digest, "onnx.ModelProto", "model.onnx")
    assert (merge.sha256, merge.message_type, merge.kind) == (digest, "onnx.ModelProto", "message")
    assert store.file("notes").message_type is None
    assert metadata.message_type == "tensorflow.proto_splitter.ChunkMetadata"
    assert metadata.sha256 == hashlib.sha256(await read(metadata)).digest()
    name = await documents.merge(store, "graph.initializer[1].name", None, None)
    assert (name.kind, await read(name), name.media_type) == ("string", b"weight-1", "text/plain; charset=utf-8")
    raw = await documents.merge(store, "graph.initializer[1].raw_data", None, None)
    assert (raw.kind, raw.size, raw.media_type) == ("bytes", 70_000, "application/octet-stream")
    tensor = await documents.merge(store, 'graph.initializer[name="weight-3"]', None, None)
    assert (tensor.kind, tensor.message_type) == ("message", "onnx.TensorProto")
    number = await documents.merge(store, "ir_version", None, None)
    assert (await read(number), number.media_type) == (b"8", "text/plain; charset=utf-8")
    assert (await chunks.cpb(store)).filename == "model.cpb"


def test_a_merge_is_planned_once_for_all_of_its_ranges() -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        store, other = await store_of(stores), await stores.view((await upload(stores, onnx(10))).store.id)
        masks: list[tuple[str, list[str] | None, int | None]] = [
            ("", ["graph.initializer.name"], None), ("graph", ["initializer.name"], None), ("", None, 60_000),
            ("", ["graph.initializer.name"], 60_000), ("", None, None),
        ]  # fmt: skip
        first = [await documents.merge(store, *mask) for mask in masks]
        assert [await read(await documents.merge(store, *mask)) for mask in masks] == [
            await read(view) for view in first
        ]
        for mask, view in zip(masks, first, strict=True):
            assert (await documents.merge(store, *mask)).rope is view.rope
        assert await read(await documents.merge(other, *masks[0])) != await read(first[0])
        for n in range(100):
            await documents.merge(store, "", None, n)
        assert (await documents.merge(store, *masks[0])).rope is not first[0].rope, "only so many are kept"

    in_memory(work, StoreOptions(open_stores_bytes=100_000))


def test_a_validator_names_one_content() -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        first = await store_of(stores)
        etags = [view.etag async for name, view in every_view(first) if name != "merge"]
        assert len(set(etags)) == len(etags)
        assert (await documents.merge(first, "", None, None)).etag == first.file("model.onnx").etag
        assert (await documents.merge(first, "", [], None)).etag == (await documents.merge(first, "", None, None)).etag
        assert (await documents.merge(first, "", ["graph"], None)).etag == (
            await documents.merge(first, "", ("graph",), None)
        ).etag
        assert (await documents.merge(first, "", ["graph"], None)).etag != (
            await documents.merge(first, "", ["ir_version"], None)
        ).etag
        async with opened(_) as others:
            again = await others.view(first.info.id)
            assert [view.etag async for name, view in every_view(again) if name != "merge"] == etags

    in_memory(work)


async def test_views_agree_with_the_library(stores: Stores) -> None:
    store = await store_of(stores)
    with protoslice.open(MODEL, type="onnx.ModelProto") as proto:
        split = proto.split(min_chunk=50_000, max_chunk=1_000_000)
        assert await read(await chunks.metadata(store)) == split.metadata
        assert [await read(await chunks.chunk(store, n)) for n in range(len(split))] == [bytes(c.rope) for c in split]
        assert await read(await chunks.cpb(store)) == bytes(split.cpb())
        for arguments in [("graph", ["name"], None), ("", None, 64), ("", ["graph.initializer[*].name"], 5)]:
            assert await read(await documents.merge(store, *arguments)) == bytes(proto.merge(*arguments))


def test_chunks_have_their_digests_now_and_later() -> None:
    async def work(stores: Stores, storage: FileStorage) -> None:
        store = await store_of(stores)
        assert (await chunks.chunk(store, 0)).sha256 is None
        infos: list[ChunkEntry] = []
        cursor: str | None = None
        while True:
            page = await chunks.chunks(store, limit=2, cursor=cursor)
            infos.extend(page.items)
            assert 0 < len(page.items) <= 2
            if (cursor := page.next) is None:
                break
        assert [info.index for info in infos] == list(range(store.info.chunks))
        for info in infos:
            view = await chunks.chunk(store, info.index)
            whole = await read(view)
            assert (info.size, info.sha256) == (len(whole), hashlib.sha256(whole).hexdigest())
            assert (info.kind, info.type, view.sha256) == (view.kind, view.message_type, hashlib.sha256(whole).digest())
        async with opened(storage) as others:
            again = await others.view(store.info.id)
            assert list((await chunks.chunks(again, limit=100, cursor=None)).items) == infos

    in_files(work)


def test_what_is_known_of_chunks_is_made_anew_when_it_is_damaged() -> None:
    async def work(stores: Stores, storage: FileStorage) -> None:
        store = await store_of(stores)
        infos = await chunks.chunks(store, limit=100, cursor=None)
        cpb = await read(await chunks.cpb(store))
        assert await catalogue_of(storage).write(lambda tx: tx.run("UPDATE derived SET data = :data", data=b"{}")) > 0
        async with opened(storage) as others:
            again = await others.view(store.info.id)
            assert await chunks.chunks(again, limit=100, cursor=None) == infos
            assert await read(await chunks.cpb(again)) == cpb

    in_files(work)


async def test_tree(stores: Stores) -> None:
    store = await store_of(stores)
    top = await documents.tree(store, "", 1, 100, None)
    assert [node.name for node in top.items] == ["ir_version", "producer_name", "graph", "opset_import"]
    assert top.next is None
    paged = [await documents.tree(store, "", 1, 1, cursor) for cursor in (None, "1", "2", "3")]
    assert [page.items[0] for page in paged] == list(top.items)
    assert [page.next for page in paged] == ["1", "2", "3", None]
    deep = (await documents.tree(store, "", 4, 100, None)).items[2]
    assert {child.name for child in deep.children} == {"name", "initializer"}
    assert (await documents.tree(store, "", 1, 100, "4")).items == []


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda store: chunks.chunk(store, -1), NotFound),
        (lambda store: chunks.chunk(store, 10**30), NotFound),
        (lambda store: documents.merge(store, "grap", None, None), NotFound),
        (lambda store: documents.merge(store, "graph.initializer[99]", None, None), NotFound),
        (lambda store: documents.merge(store, "graph..name", None, None), InvalidInput),
        (lambda store: documents.merge(store, "", ["graph["], None), InvalidInput),
        (lambda store: documents.merge(store, "", None, -1), ProtosliceError),
        (lambda store: documents.merge(store, "", None, 1 << 70), ProtosliceError),
        (lambda store: documents.merge(store, "graph.initializer", None, None), Unsupported),
        (lambda store: documents.tree(store, "", 0, 10, None), InvalidInput),
        (lambda store: documents.tree(store, "", 17, 10, None), InvalidInput),
        (lambda store: documents.tree(store, "", 1, 10, "x"), InvalidInput),
        (lambda store: documents.tree(store, "", 1, 10, "9" * 18), None),
        (lambda store: chunks.chunks(store, limit=10, cursor="-1"), InvalidInput),
        (lambda store: chunks.chunks(store, limit=10, cursor="²"), InvalidInput),
        (lambda store: chunks.chunks(store, limit=10, cursor="9" * 18), None),
    ],
)
async def test_what_cannot_be_answered(stores: Stores, call: object, error: type[Exception] | None) -> None:
    store = await store_of(stores)
    if error is None:
        page = await call(store)  # type: ignore[operator]
        assert (list(page.items), page.next) == ([], None)
        return
    with pytest.raises(error):
        await call(store)  # type: ignore[operator]


async def test_no_file_of_that_name(stores: Stores) -> None:
    with pytest.raises(NotFound, match="no file 'model'"):
        (await store_of(stores)).file("model")


async def test_reading_whole_has_a_limit(stores: Stores) -> None:
    view = (await store_of(stores)).file("model.onnx")
    assert await view.read(len(MODEL)) == MODEL
    with pytest.raises(LimitExceeded, match="ask for a part"):
        await view.read(len(MODEL) - 1)


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


async def page_of_tensors(store: OpenStore, _: OpenStore, cursor: str | None) -> ResultPage[TensorEntry]:
    return await tensors.page(store, name=None, dtype=None, limit=1000, cursor=cursor)


async def page_of_matching(store: OpenStore, _: OpenStore, cursor: str | None) -> ResultPage[TensorEntry]:
    return await tensors.page(store, name="*x", dtype=None, limit=1000, cursor=cursor)


async def page_of_differences(store: OpenStore, empty: OpenStore, cursor: str | None) -> ResultPage[Difference]:
    return (await compare(empty, store)).page(1000, cursor)


@pytest.mark.parametrize("page_of", [page_of_tensors, page_of_matching, page_of_differences])
async def test_pages_are_bounded_by_bytes(stores: Stores, page_of: Callable[..., Awaitable[ResultPage[Any]]]) -> None:
    """A thousand tensors whose names take 4 kB each."""
    initializers = b"".join(field(5, b"\x10\x01" + field(8, b"%03d" % n + b"x" * 4000)) for n in range(1000))
    files = b"\x08\x08" + field(7, initializers), onnx()
    store, empty = [await stores.view((await upload(stores, data)).store.id) for data in files]
    names: list[str] = []
    cursor: str | None = None
    while True:
        page = await page_of(store, empty, cursor)
        assert len(encode_items(page.items)) <= 3 << 19
        names += [each.name if isinstance(each, TensorEntry) else each.path for each in page.items]
        if (cursor := page.next) is None:
            break
    assert sorted(name[:3] for name in names if "x" * 4000 in name) == [f"{number:03}" for number in range(1000)]


async def test_a_page_of_a_tree_whose_type_has_a_long_name(stores: Stores) -> None:
    from google.protobuf import descriptor_pb2

    name = "T" * 1000
    file = descriptor_pb2.FileDescriptorProto(name="long.proto", package="long", syntax="proto3")
    element = file.message_type.add(name=name)
    element.field.add(name="text", number=1, type=9, label=1)
    file.message_type.add(name="Root").field.add(name="each", number=1, type=11, label=3, type_name=f".long.{name}")
    schema = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    await stores.schemas.put("long", schema)
    data = b"".join(field(1, field(1, b"%d" % number)) for number in range(3000))
    store = await stores.view((await upload(stores, {"x": data}, IngestRequest(type="long.Root"))).store.id)
    count = 0
    cursor: str | None = None
    while True:
        page = await documents.tree(store, "each", 1, 3000, cursor)
        assert len(encode_items(page.items)) <= 3 << 19
        count += len(page.items)
        if (cursor := page.next) is None:
            break
    assert count == 3000
