"""One id, one content: whatever decides which bytes the views of a store give is in its id."""

from __future__ import annotations

import hashlib
from contextlib import suppress

import pytest
from google.protobuf import descriptor_pb2
from tests.support.stores import every_view, field, onnx, opened, read, upload

from protoslice import schema, versions
from protoslice.errors import Conflict
from protoslice.facts import UNKNOWN, Store
from protoslice.schema.types import bundled_bytes
from protoslice.storage import MemoryStorage
from protoslice.stores import IngestRequest, Stores
from protoslice.views import chunks, documents

F = descriptor_pb2.FieldDescriptorProto
THING = field(1, b"N" * 40) + field(2, b"K" * 60) + field(3, field(1, b"x" * 90))
REQUEST = IngestRequest(type="mine.Thing", min_chunk=16, max_chunk=64)
PATHS = ("name", "key", "part", "part.name")


def things(*names: str, kind: F.Type.ValueType = F.TYPE_MESSAGE) -> bytes:
    """Descriptor set of `mine.Thing`: strings of these names, and a part that is a message or bytes."""
    file = descriptor_pb2.FileDescriptorProto(name="mine.proto", package="mine")
    message = file.message_type.add(name="Thing")
    for number, name in enumerate(names, 1):
        message.field.add(name=name, number=number, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    of = ".mine.Thing" if kind == F.TYPE_MESSAGE else None
    message.field.add(name="part", number=3, type=kind, label=F.LABEL_OPTIONAL, type_name=of)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


class Seen:
    """Contents seen for URLs and entity tags: each must stand for one content only."""

    def __init__(self) -> None:
        self.by_url: dict[str, bytes] = {}
        self.by_etag: dict[str, bytes] = {}

    async def look(self, stores: Stores, store_id: str) -> None:
        """Read every view of a store, compare it with what was seen before, and its digest with the bytes."""
        store = await stores.view(store_id)
        await chunks.chunks(store, limit=100, cursor=None)  # from now on digests are known
        async for name, view in every_view(store):
            await self.saw(f"{store_id} {name}", view.etag, await read(view), view.sha256)
        for path in PATHS:
            with suppress(Exception):
                view = await documents.merge(store, path, None, None)
                await self.saw(f"{store_id} merge {path}", view.etag, await read(view), view.sha256)

    async def saw(self, url: str, etag: str, data: bytes, digest: bytes | None) -> None:
        """Note the bytes of a URL under an entity tag."""
        assert self.by_url.setdefault(url, data) == data, f"the URL {url} stands for two contents"
        assert self.by_etag.setdefault(etag, data) == data, f"the entity tag of {url} stands for two contents"
        assert digest in {None, hashlib.sha256(data).digest()}, f"the digest of {url} is wrong"


def computed(info: Store) -> str:
    """The id that a client computes from what the service shows of a store."""
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
    """Names decide nothing: a schema that sorts first and declares the same type differently is not taken."""
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
    """The bundled types of a later program, in which two fields of ONNX's model have changed their names."""
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
