"""A storage belongs to one catalogue, and a program refuses any other pair with a sentence that says what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.catalogues import InlineDatabase, catalogue_of
from tests.support.stores import keys_in, onnx, open_stores, opened, upload, visible

from protoslice.catalog.marker import LAYOUT, MARKER, check_storage
from protoslice.errors import NotFound, Unsupported
from protoslice.storage import FileStorage, MemoryStorage
from protoslice.stores import Stores


@pytest.mark.parametrize(
    ("marker", "layout"),
    [
        (b'{"layout":1}', "1"),
        (b'{"layout":3}', "3"),
        (b'{"layout":2,"upgrading":1}', "2"),
        (b'{"layout":5,"catalogue":"aa"}', "5"),
    ],
)
async def test_a_storage_of_another_layout_is_refused(marker: bytes, layout: str) -> None:
    storage = MemoryStorage()
    await storage.put(MARKER, marker)
    with pytest.raises(Unsupported) as refused:
        await open_stores(storage)
    assert refused.value.message == (
        f"This storage was written by another version of Protoslice (layout {layout}, not {LAYOUT}), which this "
        "one cannot read: use that version, or a new storage"
    )
    assert await keys_in(storage) == [MARKER.text], "nothing was written"
    assert (await storage.get(MARKER)).data == marker


async def test_a_storage_of_another_database_is_refused(tmp_path: Path) -> None:
    """An operator who loses the catalogue, or names a wrong one, would see an empty service and collect nothing."""
    async with FileStorage(str(tmp_path)) as storage:
        async with opened(storage) as stores:
            info = (await upload(stores, onnx(90_000))).store
        with pytest.raises(Unsupported) as refused:
            await open_stores(storage, database=InlineDatabase())
        assert refused.value.message == (
            "This storage belongs to another database: set PROTOSLICE_DATABASE to the one it was created with, or "
            "restore that from a backup"
        )
        async with opened(storage) as stores:
            assert set(await visible(stores)) == {info.id}


@pytest.mark.parametrize("marker", [b"{}", b"not JSON", b"[]", b"", b"[" * 100_000])
async def test_a_damaged_marker_is_named(marker: bytes) -> None:
    storage = MemoryStorage()
    await storage.put(MARKER, marker)
    with pytest.raises(Unsupported, match="of this storage is damaged"):
        await open_stores(storage)


async def test_an_empty_storage_is_refused_by_a_database_with_stores() -> None:
    storage, other = MemoryStorage(), MemoryStorage()
    async with opened(storage) as stores:
        await upload(stores, onnx(5000))
    with pytest.raises(Unsupported, match="This storage is empty"):
        await check_storage(other, catalogue_of(storage), mark=True)
    assert await keys_in(other) == []


async def test_a_new_storage_is_marked_with_its_catalogue() -> None:
    storage = MemoryStorage()
    async with opened(storage):
        said = json.loads((await storage.get(MARKER)).data)
    row = await catalogue_of(storage).read(lambda tx: tx.first("SELECT catalogue_id FROM meta"))
    assert row is not None
    assert said == {"layout": LAYOUT, "catalogue": bytes(row[0]).hex()}


async def test_a_storage_that_is_only_looked_at_is_not_marked() -> None:
    storage = MemoryStorage()
    for look in (
        check_storage(storage, None, mark=False),
        check_storage(storage, catalogue_of(storage), mark=False),
        Stores.open(storage, catalogue_of(storage), create=False),
    ):
        with pytest.raises(NotFound, match="contains no stores"):
            await look
    assert await keys_in(storage) == []


async def test_without_a_database_the_layout_alone_is_checked() -> None:
    storage = MemoryStorage()
    async with opened(storage):
        await check_storage(storage, None, mark=False)
    await storage.put(MARKER, b'{"layout":3}')
    with pytest.raises(Unsupported, match="layout 3, not 4"):
        await check_storage(storage, None, mark=False)
