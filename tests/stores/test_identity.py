"""One id, one content: a store's id contains everything that decides the bytes of its views.

A store of a chunked proto has the chunks of its file, and by sizes those of another plan. Ids of rows are unique within
a process; an id that another process uses too is not an error.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from google.protobuf import descriptor_pb2
from tests.support.chunked import METADATA
from tests.support.golden import CHUNKED
from tests.support.stores import (
    assert_whole,
    every_view,
    field,
    in_files,
    in_memory,
    onnx,
    opened,
    read,
    upload,
    visible,
)

from protoslice import _core, schema, versions
from protoslice.catalog import objects, stores
from protoslice.catalog.new_objects import BLOCK
from protoslice.catalog.objects import new_id
from protoslice.errors import Conflict, InvalidInput
from protoslice.facts import UNKNOWN, Store
from protoslice.ingest import publishing
from protoslice.riegeli import RecordReader
from protoslice.schema.types import bundled_bytes
from protoslice.storage import FileStorage, MemoryStorage
from protoslice.stores import IngestRequest, Stores
from protoslice.versions import Policy, store_id
from protoslice.views import chunks, documents

F = descriptor_pb2.FieldDescriptorProto
THING = field(1, b"N" * 40) + field(2, b"K" * 60) + field(3, field(1, b"x" * 90))
REQUEST = IngestRequest(type="mine.Thing", min_chunk=16, max_chunk=64)
PATHS = ("name", "key", "part", "part.name")


def things(*names: str, kind: F.Type.ValueType = F.TYPE_MESSAGE) -> bytes:
    """Return the descriptor set of `mine.Thing`: strings of these names, and a part that is a message or bytes."""
    file = descriptor_pb2.FileDescriptorProto(name="mine.proto", package="mine")
    message = file.message_type.add(name="Thing")
    for number, name in enumerate(names, 1):
        message.field.add(name=name, number=number, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    of = ".mine.Thing" if kind == F.TYPE_MESSAGE else None
    message.field.add(name="part", number=3, type=kind, label=F.LABEL_OPTIONAL, type_name=of)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


class Seen:
    """The contents seen for URLs and entity tags; each must have one content only."""

    def __init__(self) -> None:
        self.by_url: dict[str, bytes] = {}
        self.by_etag: dict[str, bytes] = {}

    async def look(self, stores: Stores, store_id: str) -> None:
        """Read every view of a store; compare it with earlier contents, and its digest with the bytes."""
        store = await stores.view(store_id)
        await chunks.chunks(store, limit=100, cursor=None)  # from now on digests are known
        async for name, view in every_view(store):
            await self.saw(f"{store_id} {name}", view.etag, await read(view), view.sha256)
        for path in PATHS:
            with suppress(Exception):
                view = await documents.merge(store, path, None, None)
                await self.saw(f"{store_id} merge {path}", view.etag, await read(view), view.sha256)

    async def saw(self, url: str, etag: str, data: bytes, digest: bytes | None) -> None:
        """Record the bytes of a URL under an entity tag."""
        assert self.by_url.setdefault(url, data) == data, f"the URL {url} stands for two contents"
        assert self.by_etag.setdefault(etag, data) == data, f"the entity tag of {url} stands for two contents"
        assert digest in {None, hashlib.sha256(data).digest()}, f"the digest of {url} is wrong"


def computed(info: Store) -> str:
    """Return the id that a client computes from the service's facts about a store."""
    policy = versions.Policy(
        root=info.root,
        type=None if info.type == UNKNOWN else info.type,
        min_chunk=info.min_chunk,
        max_chunk=info.max_chunk,
        schema=info.schema,
        planner=info.planner,
    )
    return versions.store_id([(file.path, file.size, file.sha256 or "") for file in info.files], policy)


@pytest.mark.parametrize(
    ("files", "schema", "planner"),
    [
        ({"model.onnx": onnx(3000)}, True, True),
        ({"graph.pbtxt": b'node { name: "a" op: "Const" }', "note.txt": b"hello"}, True, True),
        ({"x": bytes.fromhex("0a0161"), "y": b""}, False, True),
    ],
)
async def test_a_client_computes_the_id_from_what_is_shown(
    stores: Stores, files: dict[str, bytes], schema: bool, planner: bool
) -> None:
    info = (await upload(stores, files, IngestRequest(root=next(iter(files))))).store
    assert (info.schema is not None, info.planner is not None) == (schema, planner)
    assert computed(info) == info.id


async def test_a_schema_cannot_make_a_type_of_another_mean_something_else(stores: Stores) -> None:
    """Names decide nothing: a schema that sorts first and declares the same type differently is not used."""
    await stores.schemas.put("mine", things("name", "key"))
    with pytest.raises(Conflict, match=r"mine\.Thing.*'0'.*'mine'"):
        await stores.schemas.put("0", things("key", "name"))
    info = (await upload(stores, THING, REQUEST)).store
    assert await read(await documents.merge((await stores.view(info.id)), "name", None, None)) == b"N" * 40


@pytest.mark.parametrize("other", [things("key", "name"), things("name", "key", kind=F.TYPE_BYTES)])
async def test_a_store_sent_again_under_another_schema_is_another_store(
    stores: Stores, storage: MemoryStorage, other: bytes
) -> None:
    seen, ids = Seen(), set()
    for data in (things("name", "key"), other, things("name", "key")):
        await stores.schemas.put("mine", data)
        info = (await upload(stores, THING, REQUEST)).store
        ids.add(info.id)
        await seen.look(stores, info.id)
        async with opened(storage) as others:
            await seen.look(others, info.id)
        await stores.delete(info.id)
        await stores.schemas.delete("mine")
    assert len(ids) == 2
    assert len(seen.by_url) > 20


async def test_a_schema_that_is_replaced_changes_no_store(stores: Stores, storage: MemoryStorage) -> None:
    seen = Seen()
    await stores.schemas.put("mine", things("name", "key"))
    old = (await upload(stores, THING, REQUEST)).store
    await seen.look(stores, old.id)
    await stores.schemas.put("mine", things("key", "name"))
    new = (await upload(stores, THING, REQUEST)).store
    async with opened(storage) as others:
        for each in (old, new):
            await seen.look(others, each.id)
        assert await read(await documents.merge((await others.view(old.id)), "name", None, None)) == b"N" * 40
        assert await read(await documents.merge((await others.view(new.id)), "name", None, None)) == b"K" * 60
    assert old.id != new.id


def _upgraded() -> schema.MessageTypes:
    """Return the bundled types of a later program, in which two fields of ONNX's model have other names."""
    later = descriptor_pb2.FileDescriptorSet.FromString(bundled_bytes())
    (model,) = (each for file in later.file for each in file.message_type if each.name == "ModelProto")
    fields = {each.name: each for each in model.field}
    fields["producer_name"].name, fields["producer_version"].name = "producer_version", "producer_name"
    return schema.from_descriptor_set(later)


async def test_an_upgrade_with_another_bundled_type_changes_no_store(
    stores: Stores, storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, data = Seen(), onnx(3000, seed=7)
    request = IngestRequest(min_chunk=64, max_chunk=4096)
    old = (await upload(stores, data, request)).store
    await seen.look(stores, old.id)
    later = _upgraded()
    monkeypatch.setattr("protoslice.schema.types.bundled", lambda: later)
    monkeypatch.setattr("protoslice.schema.bundled", lambda: later)
    async with opened(storage) as others:
        await seen.look(others, old.id)
        assert await read(await documents.merge((await others.view(old.id)), "producer_name", None, None)) == b"seed-7"
        new = (await upload(others, data, request)).store
        assert new.id != old.id, "the later program reads the same file by another schema"
        await seen.look(others, new.id)
        assert (
            await read(await documents.merge((await others.view(new.id)), "producer_version", None, None)) == b"seed-7"
        )


async def test_another_planner_makes_another_store(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    old = (await upload(stores, onnx(3000))).store
    monkeypatch.setattr("protoslice.ingest.publishing.PLANNER", old.planner + 1 if old.planner else 0)
    new = (await upload(stores, onnx(3000))).store
    assert (new.planner, new.id == old.id) == ((old.planner or 0) + 1, False)


FILES = (
    CHUNKED / "graph_large_constants.max100000.uncompressed.cpb",
    CHUNKED / "graph_large_constants.max70000.zstd.cpb",
    CHUNKED / "savedmodel_plain.max4000.cpb",
)
PLANNED = IngestRequest(min_chunk=500, max_chunk=5000)
BY_SIZES = replace(PLANNED, plan="policy")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_views_are_those_of_the_file(path: Path) -> None:
    with path.open("rb") as file:
        *records, last = RecordReader(file).read_records()

    async def work(stores: Stores, storage: FileStorage) -> None:
        info = (await upload(stores, {"x.cpb": path.read_bytes()}, PLANNED)).store
        assert info.chunks == len(records) == len(METADATA.FromString(last).chunks)
        async with opened(storage) as others:
            for each in (stores, others):
                store = await each.view(info.id)
                assert [await read(await chunks.chunk(store, n)) for n in range(info.chunks)] == records
                assert await read(await chunks.metadata(store)) == last
                cpb = await chunks.cpb(store)
                assert await read(cpb) == path.read_bytes()
                assert (cpb.etag, cpb.sha256) == (store.file("x.cpb").etag, store.file("x.cpb").sha256)
                page = await chunks.chunks(store, limit=1000, cursor=None)
                assert [entry.size for entry in page.items] == [len(record) for record in records]

    in_files(work)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
async def test_by_sizes_the_views_are_those_of_a_store_that_was_planned_so(stores: Stores, path: Path) -> None:
    kept = await stores.view((await upload(stores, {"x.cpb": path.read_bytes()}, PLANNED)).store.id)
    by_sizes = await stores.view((await upload(stores, {"x.cpb": path.read_bytes()}, BY_SIZES)).store.id)
    assert by_sizes.info.chunks > 1
    assert by_sizes.info.chunks != kept.info.chunks
    views = {name: view async for name, view in every_view(kept)}
    for name in ["metadata", "cpb", *(f"chunk {n}" for n in range(by_sizes.info.chunks))]:
        number = int(name[6:]) if name.startswith("chunk ") else None
        other = await (chunks.chunk(by_sizes, number) if number is not None else getattr(chunks, name)(by_sizes))
        assert await read(views[f"policy {name}"]) == await read(other), name
    tables = [await chunks.chunks(store, limit=1000, cursor=None, plan="policy") for store in (kept, by_sizes)]
    assert tables[0] == tables[1]
    etags = [view.etag for name, view in views.items() if name not in {"cpb", "merge"}]
    assert len(set(etags)) == len(etags), "a plan by sizes has entity tags of its own"
    assert all(view.versioned == name.startswith("policy") for name, view in views.items())


async def test_the_id_says_which_plan_a_store_has(stores: Stores) -> None:
    """A store planned by sizes keeps its id in all versions; the file's own plan makes another store."""
    data = FILES[0].read_bytes()
    kept, by_sizes = [(await upload(stores, {"x.cpb": data}, each)).store for each in (PLANNED, BY_SIZES)]
    assert (kept.planner, by_sizes.planner) == (_core.Plan.KEPT_VERSION, _core.Plan.MERGED_VERSION)
    for info in (kept, by_sizes):
        policy = Policy(
            root=info.root,
            type=info.type,
            min_chunk=500,
            max_chunk=5000,
            schema=info.schema,
            planner=info.planner,
        )
        assert store_id([(file.path, file.size, file.sha256 or "") for file in info.files], policy) == info.id
    raw = [(await upload(stores, onnx(3000), each)).store for each in (PLANNED, BY_SIZES)]
    assert raw[0].id == raw[1].id, "other files have no plan of their own"
    store = await stores.view(raw[0].id)
    assert (await chunks.cpb(store, "policy")).etag == (await chunks.cpb(store)).etag


@pytest.mark.parametrize("plan", ["", "file", "Policy", "policy "])
async def test_other_plans_are_refused(stores: Stores, plan: str) -> None:
    with pytest.raises(InvalidInput, match="Invalid plan"):
        await upload(stores, onnx(3000), replace(PLANNED, plan=plan))
    store = await stores.view((await upload(stores, onnx(3000), PLANNED)).store.id)
    with pytest.raises(InvalidInput, match="Invalid plan"):
        await chunks.metadata(store, plan)


def test_ids_of_one_process_differ_and_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "time", SimpleNamespace(time_ns=lambda: 1_800_000_000_000_000_000))
    monkeypatch.setattr(objects, "_ids", objects._Ids())
    ids = [new_id() for _ in range(100_000)]
    assert ids == sorted(set(ids))
    assert 0 < ids[-1] < 1 << 63


async def test_objects_of_another_process_that_have_the_same_ids_are_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = MemoryStorage()
    async with opened(storage) as ours, opened(storage) as theirs:
        ids = count(1)
        monkeypatch.setattr(objects, "new_id", lambda: next(ids))
        await upload(ours, onnx(9000, seed=1))
        ids = count(BLOCK)  # the other process's last ids, and the next ones
        for seed in (2, 3):
            await upload(theirs, onnx(9000, seed=seed))
        for info in (await visible(ours)).values():
            await assert_whole(ours, info)
        assert len(await visible(ours)) == 3


def test_a_store_of_another_process_that_has_the_same_id_is_no_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(ours: Stores, _: MemoryStorage) -> None:
        monkeypatch.setattr(publishing, "new_id", lambda: 7)
        ids = count(7)
        monkeypatch.setattr(stores, "new_id", lambda: next(ids))
        for seed in range(3):
            assert (await upload(ours, onnx(10, seed=seed))).created
        assert len(await visible(ours)) == 3

    in_memory(work)
