"""Descriptor sets of types that stores have."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from tests.support.catalogues import catalogue_of
from tests.support.stores import in_memory, opened, read, upload

from protoslice import schema
from protoslice.catalog import open_database
from protoslice.catalog.schemas import SchemaTable
from protoslice.catalog.spaces import DEFAULT_SPACE
from protoslice.concurrency.results import Key, Results
from protoslice.errors import Conflict, InvalidInput, LimitExceeded, NotFound, Unsupported
from protoslice.schema.types import bundled_bytes
from protoslice.serving import StoreOptions, schemas
from protoslice.storage import FileStorage, MemoryStorage, Storage
from protoslice.stores import IngestRequest, Stores
from protoslice.views import documents


def descriptor_set(*names: str) -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="mine.proto", package="mine")
    for name in names:
        file.message_type.add(name=name).field.add(name="data", number=1, type=12, label=1)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


async def test_schemas(stores: Stores) -> None:
    data = descriptor_set("A", "B")
    info, new = await stores.schemas.put("mine", data)
    assert (new, info.messages, info.size) == (True, 2, len(data))
    assert await stores.schemas.get("mine") == (info, data)
    info, new = await stores.schemas.put("mine", descriptor_set("A"))
    assert (new, info.messages) == (False, 1)
    await stores.schemas.put("other", data)
    assert [item.name for item in (await stores.schemas.page()).items] == ["mine", "other"]
    page = await stores.schemas.page(limit=1)
    assert [item.name for item in (await stores.schemas.page(limit=1, cursor=page.next)).items] == ["other"]
    await stores.schemas.delete("mine")
    for call in (stores.schemas.get, stores.schemas.delete):
        with pytest.raises(NotFound, match="'mine'"):
            await call("mine")
    with pytest.raises(InvalidInput):
        await stores.schemas.put("a/b", data)
    with pytest.raises(InvalidInput):
        await stores.schemas.put("bad", b"\xff\xff")
    with pytest.raises(NotFound):
        await stores.schemas.get("bad")


async def test_a_store_keeps_the_schema_it_was_made_with(stores: Stores, storage: MemoryStorage) -> None:
    await stores.schemas.put("mine", descriptor_set("Thing"))
    request = IngestRequest(type="mine.Thing")
    info = (await upload(stores, {"x": b"\x0a\x03abc"}, request)).store
    await stores.schemas.delete("mine")
    async with opened(storage) as others:
        assert await read(await documents.merge((await others.view(info.id)), "data", None, None)) == b"abc"
        with pytest.raises(Unsupported, match=r"mine\.Thing"):
            await others.ingest(request)


def one_type(full_name: str, *fields: str, file_name: str = "x.proto") -> bytes:
    """Return a descriptor set of one type with fields of strings."""
    package, _, name = full_name.rpartition(".")
    file = descriptor_pb2.FileDescriptorProto(name=file_name, package=package)
    message = file.message_type.add(name=name)
    for number, each in enumerate(fields, 1):
        message.field.add(name=each, number=number, type=9, label=1)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


async def taken(stores: Stores, type_name: str) -> str:
    """Return the id of a small store of this type."""
    return (await upload(stores, {"x": b"\x0a\x03abc"}, IngestRequest(type=type_name))).store.id


async def test_a_type_is_declared_in_one_way(stores: Stores) -> None:
    await stores.schemas.put("b", one_type("mine.A", "x", "y"))
    await stores.schemas.put("c", one_type("mine.A", "x", "y", file_name="other.proto"))
    for name in ("a", "d"):
        with pytest.raises(
            Conflict, match=rf"mine\.A is declared differently by the schema '{name}' and the schema 'b'"
        ):
            await stores.schemas.put(name, one_type("mine.A", "y", "x"))
        with pytest.raises(NotFound):
            await stores.schemas.get(name)
    await stores.schemas.delete("c")
    created = (await stores.schemas.put("b", one_type("mine.A", "y", "x")))[1]
    assert not created, "under its own name a type may change"


async def test_what_is_bundled_means_what_it_means(stores: Stores) -> None:
    await stores.schemas.put("all", bundled_bytes())
    with pytest.raises(
        Conflict, match=r"onnx\.ModelProto is declared differently by the schema 'mine' and what is bundled"
    ):
        await stores.schemas.put("mine", one_type("onnx.ModelProto", "x"))
    # Sets contain the compiler's own files, which change with its version.
    await stores.schemas.put("mine", one_type("google.protobuf.FieldOptions", "x"))


async def test_of_two_who_declare_a_type_at_the_same_time_one_is_refused(tmp_path: Path, catalogue: str) -> None:
    """Each of two replicas checks its schema before it sees the other's."""
    async with AsyncExitStack() as stack:
        replicas = []
        for _ in range(2):
            database = await stack.enter_async_context(open_database(catalogue, "memory://"))
            stores = await Stores.open(FileStorage(str(tmp_path / "storage")), database)
            stack.push_async_callback(stores.close)
            replicas.append(stores)
        ways = {"a": ("x", "y"), "b": ("y", "x")}
        found = await asyncio.gather(
            *(
                stores.schemas.put(name, one_type("mine.A", *ways[name]))
                for stores, name in zip(replicas, ways, strict=True)
            ),
            return_exceptions=True,
        )
        refused = [each for each in found if isinstance(each, Conflict)]
        assert len(refused) == 1, found
        assert "mine.A is declared differently by the schema" in str(refused[0])
        assert len((await replicas[0].schemas.page()).items) == 1
        await taken(replicas[1], "mine.A")


async def test_an_extension_that_one_schema_knows_is_no_matter_of_names(stores: Stores) -> None:
    """Both schemas declare the type alike, but by one of them messages show more: neither is preferred."""

    def extended(*extensions: str) -> bytes:
        file = descriptor_pb2.FileDescriptorProto(name="x.proto", package="mine")
        file.message_type.add(name="A").extension_range.add(start=100, end=200)
        for number, name in enumerate(extensions, 100):
            file.extension.add(name=name, number=number, type=9, label=1, extendee=".mine.A")
        return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()

    await stores.schemas.put("b", extended("note"))
    await stores.schemas.put("a", extended())
    with pytest.raises(Conflict, match=r"mine\.A is declared differently by the schema 'a' .* the schema 'b'"):
        await taken(stores, "mine.A")


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the descriptor sets that are parsed; none of them is parsed on the event loop."""
    found: list[bytes] = []
    real: Callable[[bytes], schema.MessageTypes] = schema.from_descriptor_set

    def parse(data: bytes) -> schema.MessageTypes:
        assert threading.current_thread() is not threading.main_thread(), "a set is parsed on the loop"
        found.append(data)
        return real(data)

    monkeypatch.setattr(schema, "from_descriptor_set", parse)
    return found


async def test_a_set_is_parsed_once_however_often_it_is_looked_into(
    stores: Stores, storage: MemoryStorage, parsed: list[bytes]
) -> None:
    sets = {f"s{number}": one_type(f"mine.T{number}", "x") for number in range(6)}
    for name, data in sets.items():
        await stores.schemas.put(name, data)
    parsed.clear()
    for _ in range(3):
        with pytest.raises(Unsupported, match=r"no\.Such"):
            await taken(stores, "no.Such")
    assert parsed == [], "what a type is called tells that nobody declares it"
    ids = [await taken(stores, "mine.T3") for _ in range(3)]
    assert parsed == [sets["s3"]], "the one that declares it, once"
    parsed.clear()
    async with opened(storage) as others:
        await asyncio.gather(*(others.view(ids[0]) for _ in range(5)))
        assert len(parsed) == 1, "what the store is read by is kept with it"
        parsed.clear()
        both = asyncio.gather(*(others.schemas.page() for _ in range(2)))
        assert [len(page.items) for page in await both] == [6, 6]
        assert sorted(parsed) == sorted(sets.values()), "each of them, once, by two who ask at once"


async def test_stores_of_one_type_share_what_they_are_read_by(
    stores: Stores, storage: MemoryStorage, parsed: list[bytes]
) -> None:
    await stores.schemas.put("mine", one_type("mine.A", "x"))
    request = IngestRequest(type="mine.A")
    ids = [(await upload(stores, {"x": bytes([10, 1, 65 + each])}, request)).store.id for each in range(4)]
    parsed.clear()
    async with opened(storage) as others:
        views = [await others.view(each) for each in ids]
        assert len(parsed) == 1
        assert len({view.descriptor_set() for view in views}) == 1


def test_no_more_is_held_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    held = dict[Results, set[Key]]()
    real = Results.put

    def put(self: Results, key: Key, value: object, weight: int) -> None:
        real(self, key, value, weight)
        if isinstance(value, schema.MessageTypes | schema.TypeSchema):
            held.setdefault(self, set()).add(key)
            assert weight >= 20_000, "about what it takes"

    monkeypatch.setattr(Results, "put", put)

    async def work(stores: Stores, _: Storage) -> None:
        for number in range(12):
            fields = (f"a_field_of_some_length_{each}" for each in range(300))
            await stores.schemas.put(f"s{number}", one_type(f"mine.T{number}", *fields))
            await taken(stores, f"mine.T{number}")
        ((results, keys),) = held.items()
        assert len(keys) == 24
        assert 0 < sum(results.find(key) is not None for key in keys) < 10

    in_memory(work, StoreOptions(open_stores_bytes=200_000))


@pytest.mark.parametrize(("limit", "most", "said"), [("MAX_TYPES", 3, "3 types"), ("MAX_BYTES", 120, "120 bytes")])
async def test_all_schemas_together_have_room_for_so_much(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, said: str
) -> None:
    monkeypatch.setattr(schemas, limit, most)
    for number in range(3):
        await stores.schemas.put(f"s{number}", one_type(f"mine.T{number}", "x"))
    with pytest.raises(LimitExceeded, match=said):
        await stores.schemas.put("s3", one_type("mine.T3", "x"))
    await stores.schemas.put("s2", one_type("mine.T3", "x"))
    await stores.schemas.delete("s1")
    await stores.schemas.put("s3", one_type("mine.T4", "x"))


async def test_a_schema_that_no_program_of_ours_would_take_harms_no_other(
    stores: Stores, storage: MemoryStorage
) -> None:
    records = SchemaTable(catalogue_of(storage), DEFAULT_SPACE)
    await records.put("a", one_type("mine." + "A" * 2000, "x"), {})
    await stores.schemas.put("b", one_type("mine.B", "x"))
    await taken(stores, "mine.B")
    assert [(info.name, info.messages) for info in (await stores.schemas.page()).items] == [("a", 0), ("b", 1)]
    await stores.schemas.delete("a")


async def test_a_type_that_reaches_too_much_is_refused_before_it_is_written(
    stores: Stores, storage: MemoryStorage
) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="x", package="p" * 900)
    for number in range(10_000):
        file.message_type.add(name=f"M{number}").field.add(name="f", number=1, label=1, type_name=f"M{number + 1}")
    file.message_type.add(name="M10000")
    large = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    await stores.schemas.put("large", large)
    with pytest.raises(LimitExceeded, match="1048576 bytes"):
        await taken(stores, f"{file.package}.M0")
    await taken(stores, f"{file.package}.M9999")
