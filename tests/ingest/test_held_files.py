"""Files of few bytes lie in the manifest, and are read, shared and collected like others."""

from __future__ import annotations

import pytest
from tests.support.stores import (
    assert_whole,
    collect_garbage,
    in_files,
    in_memory,
    objects_in,
    onnx,
    opened,
    upload,
    visible,
)

from protoslice.catalog.manifest import LARGEST_HELD
from protoslice.errors import NotFound
from protoslice.storage import Storage
from protoslice.stores import IngestRequest, Stores

MODEL = onnx(10)
NOTES = {"held": b"note", "empty": b"", "twin": b"note"}


def files_of(size: int) -> dict[str, bytes]:
    """A model and a file, which have so many bytes together."""
    return {"model.onnx": MODEL, "rest": bytes(size - len(MODEL))}


@pytest.mark.parametrize("on", [in_memory, in_files])
def test_small_files_are_no_objects_and_are_read_from_the_manifest(on: object) -> None:
    async def work(stores: Stores, storage: Storage) -> None:
        files = {"model.onnx": MODEL, **NOTES}
        info = (await upload(stores, files)).store
        assert await objects_in(storage) == []
        async with opened(storage) as others:
            found = await assert_whole(others, info)
            assert {path: found[f"file {path}"] for path in files} == files
            view = (await others.view(info.id)).file("held")
            assert view.read_cached(1, 3) == b"ot", "bytes at hand are given at once"

    on(work)  # type: ignore[operator]


@pytest.mark.parametrize(("size", "objects"), [(LARGEST_HELD, 0), (LARGEST_HELD + 1, 1)])
async def test_the_bytes_of_all_files_together_decide(
    stores: Stores, storage: Storage, size: int, objects: int
) -> None:
    info = (await upload(stores, files_of(size))).store
    assert len(await objects_in(storage)) == objects
    await assert_whole(stores, info)


def test_where_bytes_lie_is_no_part_of_a_stores_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    async def made(stores: Stores, _: Storage) -> str:
        return (await upload(stores, NOTES | {"model.onnx": MODEL})).store.id

    held = in_memory(made)
    monkeypatch.setattr("protoslice.ingest.file_writer.LARGEST_HELD", -1)
    assert in_memory(made) == held


async def test_files_of_many_manifests_do_not_gather_in_one(stores: Stores, storage: Storage) -> None:
    taken = {}
    for number in range(3):
        info = (await upload(stores, {"a": bytes([number]) * (LARGEST_HELD // 2)})).store
        taken[f"f{number}"] = (await stores.files(info.id))["a"]
    async with await stores.ingest(IngestRequest()) as ingest:
        await ingest.take(taken)
        together = (await ingest.commit()).store
    assert len(await objects_in(storage)) == 1
    whole = await assert_whole(stores, together)
    assert whole["file f1"] == bytes([1]) * (LARGEST_HELD // 2)


async def test_a_collection_without_grace_leaves_a_held_store_and_takes_a_removed_one_whole(
    stores: Stores, storage: Storage
) -> None:
    stays, goes = [(await upload(stores, {"a": text})).store for text in (b"stays", b"goes")]
    await stores.delete(goes.id)
    await collect_garbage(storage, grace_seconds=-1)
    assert set(await visible(stores)) == {stays.id}
    await assert_whole(stores, stays)
    rows = await stores.database.read(lambda tx: tx.all("SELECT digest FROM stores"))
    assert rows == [(stays.id,)], "with its row the bytes of the other are gone"
    with pytest.raises(NotFound):
        await stores.restore(goes.id)


def test_held_files_are_sent_again_and_exist() -> None:
    async def work(stores: Stores, _: Storage) -> None:
        first, again = [await upload(stores, {"a": b"once"}) for _ in range(2)]
        assert (first.created, again.created) == (True, False)
        assert again.store.id == first.store.id

    in_memory(work)
