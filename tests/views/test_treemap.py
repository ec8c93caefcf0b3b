"""Treemaps show the largest parts and count the others, within their limits, for any proto.

Digests and hashes of chunks: long work stops with its callers, and continues where it stopped. Other programs can read
tar archives of stores, and only the files determine an archive.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import subprocess
import tarfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.support.stores import derived_in, field, in_memory, onnx, opened, read, upload

from protoslice import versions
from protoslice.errors import InvalidInput, NotFound
from protoslice.facts import File, Node
from protoslice.serving import OpenStore
from protoslice.sources.ropes import Rope
from protoslice.storage import MemoryStorage
from protoslice.storage.wrappers import Call, MeteredStorage
from protoslice.stores import IngestRequest, Stores
from protoslice.views import chunks, documents, models
from protoslice.views import chunks as module
from protoslice.views.documents import MOST_CELLS
from protoslice.views.models import tar_of


def treemap(data: bytes, path: str = "", depth: int = 16, min_share: float = 0.0) -> Node:
    async def work(stores: Stores, _: object) -> Node:
        store = await stores.view((await upload(stores, data)).store.id)
        return await documents.treemap(store, path, depth, min_share)

    return in_memory(work)


def below(node: Node) -> Iterator[Node]:
    for child in node.children:
        yield child
        yield from below(child)


def test_the_largest_come_first_and_the_others_are_counted() -> None:
    sizes = [*range(400), 90_000, 30_000, 60_000]
    found = treemap(onnx(*sizes), depth=3, min_share=0.05)
    graph = found.children[0]
    initializers = graph.children[0]
    assert (graph.path, initializers.path, initializers.count) == ("graph", "graph.initializer", 403)
    assert [node.path for node in initializers.children] == [f"graph.initializer[{n}]" for n in (400, 402, 401)]
    assert next(node.text for node in initializers.children) == '"weight-400"'
    assert initializers.more == 400
    assert all(not node.children and node.more is None for node in initializers.children)


def test_no_part_is_larger_than_its_whole() -> None:
    found = treemap(onnx(*range(0, 9000, 300)))
    for node in [found, *below(found)]:
        assert sum(child.size for child in node.children) <= node.size
        assert [child.size for child in node.children] == sorted((c.size for c in node.children), reverse=True)


def test_the_room_goes_to_where_the_bytes_are() -> None:
    found = treemap(onnx(*[10] * 3000, *[50_000] * 40))
    nodes = list(below(found))
    assert len(nodes) <= MOST_CELLS
    opened = [node for node in nodes if node.path.endswith(".raw_data") and node.size == 50_000]
    assert len(opened) == 40


def test_a_treemap_begins_at_any_path() -> None:
    found = treemap(onnx(100, 5000), "graph.initializer[1]", 1)
    assert (found.path, found.type, found.size > 5000) == ("graph.initializer[1]", "onnx.TensorProto", True)
    assert found.children[0].path == "graph.initializer[1].raw_data"
    whole = treemap(onnx(100, 5000), "graph.initializer", 1)
    assert [child.path for child in whole.children] == ["graph.initializer[1]", "graph.initializer[0]"]
    leaf = treemap(onnx(100, 5000), "graph.initializer[1].raw_data")
    assert (leaf.size, leaf.deeper, leaf.children) == (5000, False, ())
    with pytest.raises(NotFound):
        treemap(onnx(5), "graph.initializer[7]")


def test_bounds_are_kept() -> None:
    nested = b""
    for _ in range(60):
        nested = field(1, nested)
    treemap(nested)
    for depth, share in ((0, 0.1), (17, 0.1), (1, -0.1), (1, 1.5), (1, float("nan"))):
        with pytest.raises(InvalidInput):
            treemap(onnx(5), "", depth, share)


BLOCK = 64 << 10
MODEL = onnx(*[3 * BLOCK] * 40)
REQUEST = IngestRequest(min_chunk=50_000)


class Reads:
    """A counter of the bytes read from a store's objects, which notifies its waiters."""

    def __init__(self) -> None:
        self.bytes = 0

    def __call__(self, call: Call) -> None:
        if call.name.startswith("get_range"):
            self.bytes += call.bytes_read

    async def beyond(self, count: int) -> None:
        while self.bytes <= count:
            await asyncio.sleep(0)

    async def quiet(self) -> int:
        """Return the number of bytes once no more bytes are read."""
        before = -1
        while before != self.bytes:
            before = self.bytes
            await asyncio.sleep(0.1)
        return before


def on_store(work: Callable[[OpenStore, Reads], Awaitable[None]]) -> None:
    async def run() -> None:
        reads = Reads()
        async with opened(MeteredStorage(MemoryStorage(), reads)) as stores:
            store = await stores.view((await upload(stores, MODEL, REQUEST)).store.id)
            reads.bytes = 0
            await work(store, reads)

    asyncio.run(run())


def test_hashing_stops_with_its_caller_and_goes_on_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE", 2 * BLOCK)

    async def work(store: OpenStore, reads: Reads) -> None:
        task = asyncio.create_task(chunks.cpb(store))
        await reads.beyond(len(MODEL) // 4)
        task.cancel()
        assert await reads.quiet() < len(MODEL) // 2
        whole = await read(await chunks.cpb(store))
        async with opened(MemoryStorage()) as others:
            other = await others.view((await upload(others, MODEL, REQUEST)).store.id)
            assert whole == await read(await chunks.cpb(other))

    on_store(work)


def test_what_was_hashed_is_not_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE", 2 * BLOCK)
    all_bytes: list[int] = []

    async def at_once(store: OpenStore, reads: Reads) -> None:
        await chunks.cpb(store)
        all_bytes.append(reads.bytes)

    async def work(store: OpenStore, reads: Reads) -> None:
        task = asyncio.create_task(chunks.cpb(store))
        await reads.beyond(all_bytes[0] // 2)
        task.cancel()
        await reads.quiet()
        reads.bytes = 0
        await chunks.cpb(store)
        assert reads.bytes < 0.6 * all_bytes[0]

    on_store(at_once)
    on_store(work)


def test_one_who_leaves_takes_nothing_from_the_other() -> None:
    async def work(store: OpenStore, reads: Reads) -> None:
        leaving, staying = (asyncio.create_task(chunks.cpb(store)) for _ in range(2))
        await reads.beyond(0)
        leaving.cancel()
        assert (await staying).size > len(MODEL)

    on_store(work)


def test_two_who_ask_for_a_digest_read_the_chunk_once() -> None:
    async def work(store: OpenStore, reads: Reads) -> None:
        chunk = next(n for n in range(100) if chunks.own_chunks(store).one(n).size >= BLOCK)
        first, second = await asyncio.gather(*(chunks.chunks(store, limit=1, cursor=str(chunk)) for _ in range(2)))
        size = first.items[0].size
        assert first == second
        assert reads.bytes <= size + 2 * BLOCK
        assert first.items[0].sha256 == hashlib.sha256(await read(chunks.own_chunks(store).one(chunk))).hexdigest()

    on_store(work)


async def test_a_page_writes_the_digests_that_it_made_and_not_those_of_all_chunks() -> None:
    many, storage = onnx(*[64] * 1600), MemoryStorage()
    cursors = [str(first) for first in range(0, 1600, 100)]
    async with opened(storage) as stores:
        store = await stores.view((await upload(stores, many, IngestRequest(min_chunk=1))).store.id)
        assert len((await chunks.planned(store)).plan) > 1600
        pages = [await chunks.chunks(store, limit=100, cursor=cursor) for cursor in cursors[:-1]]
        before = await derived_in(storage)
        pages.append(await chunks.chunks(store, limit=100, cursor=cursors[-1]))
        after = await derived_in(storage)
        wrote = sum(len(data) for name, data in after.items() if data != before.get(name))
        assert 100 * 32 <= wrote <= 34_000  # at most two groups of 512 digests
    async with opened(storage) as stores:
        again = await stores.view(store.info.id)
        assert [await chunks.chunks(again, limit=100, cursor=cursor) for cursor in cursors] == pages
    assert await derived_in(storage) == after


FILES = {
    "saved_model.pb": b"",
    "variables/variables.index": b"i" * 511,
    "variables/variables.data-00000-of-00001": b"v" * 512,
    "größe/日本": b"b" * 513,
    "long/" + "n" * 150 + "/" + "o" * 150: b"o",
    "a=b c": b"x" * 1025,
}


class Zeros:
    """A source of `size` zeros, which takes no memory."""

    def __init__(self, size: int) -> None:
        self.size = size

    def read(self, offset: int, length: int) -> bytes:
        """Return the zeros of a range."""
        return bytes(length)


async def archived(stores: Stores, files: dict[str, bytes]) -> tuple[OpenStore, bytes, str]:
    """Return a store of `files`, its archive, and the archive's entity tag."""
    store = await stores.view((await upload(stores, files)).store.id)
    found = await models.archive(store)
    data = await read(found)
    assert len(data) == found.size
    return store, data, found.etag


def test_the_files_of_an_archive_are_those_of_the_store() -> None:
    async def work(stores: Stores, _: object) -> None:
        _, data, _ = await archived(stores, FILES)
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            members = {member.name: member for member in tar}
            assert {name: tar.extractfile(found).read() for name, found in members.items()} == FILES  # type: ignore[union-attr]
        assert {(found.mode, found.uid, found.mtime) for found in members.values()} == {(0o644, 0, 0)}

    in_memory(work)


def test_debians_tar_unpacks_it(tmp_path: Path) -> None:
    async def work(stores: Stores, _: object) -> None:
        _, data, _ = await archived(stores, FILES)
        subprocess.run(["tar", "-xf", "-"], input=data, cwd=tmp_path, check=True)

    in_memory(work)
    assert {
        str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    } == FILES


def test_the_order_of_an_upload_makes_no_difference() -> None:
    found: list[tuple[bytes, str]] = []

    async def work(stores: Stores, _: object) -> None:
        files = FILES if not found else dict(reversed(FILES.items()))
        _, data, etag = await archived(stores, files)
        found.append((data, etag))

    in_memory(work)
    in_memory(work)
    assert found[0] == found[1]


def test_an_archive_of_another_version_has_another_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(stores: Stores, _: object) -> None:
        store, _, etag = await archived(stores, FILES)
        monkeypatch.setattr("protoslice.views.models.ARCHIVES", versions.ARCHIVES + 1)
        assert (await models.archive(store)).etag != etag

    in_memory(work)


def test_files_beyond_eight_gibibytes_have_their_size() -> None:
    sizes = {"a": (8 << 30) - 1, "b": 8 << 30, "c": (1 << 40) + 1, "d": 1}
    rope = Rope(tar_of([File(path, size, None) for path, size in sizes.items()]), [*map(Zeros, sizes.values())])
    with tarfile.open(fileobj=rope.open()) as tar:
        assert {member.name: member.size for member in tar} == sizes


def test_an_archive_of_no_files_ends() -> None:
    with tarfile.open(fileobj=Rope(tar_of([]), []).open()) as tar:
        assert tar.getnames() == []
