"""Descriptor sets beside the stores."""

import pytest
from google.protobuf import descriptor_pb2

from protoslice.errors import (
    InvalidInput,
    NotFound,
    ProtosliceError,
    Unsupported,
)
from protoslice.storage import MemoryStorage, Storage
from protoslice.stores import IngestRequest, Stores
from protoslice.testing.stores import in_files, in_memory, opened, read, upload


def descriptor_set(*names: str) -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="mine.proto", package="mine")
    for name in names:
        file.message_type.add(name=name).field.add(name="data", number=1, type=12, label=1)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


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
