"""Small files are stored in the manifest, and are read, shared and collected like others.

Packs: a folder of many small files costs little more than one file, and reads the same.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.catalogues import catalogue_of
from tests.support.stores import (
    assert_whole,
    collect_garbage,
    in_files,
    in_memory,
    keys_in,
    keys_of,
    objects_in,
    onnx,
    opened,
    read,
    upload,
    visible,
)

from protoslice.catalog.derived import DerivedSources, DerivedTable
from protoslice.catalog.manifest import LARGEST_HELD
from protoslice.catalog.spaces import DEFAULT_SPACE
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.results import Results
from protoslice.concurrency.shares import Shares
from protoslice.errors import IntegrityError, NotFound
from protoslice.ingest import file_writer
from protoslice.ingest.file_writer import BATCH
from protoslice.serving import StoreOptions
from protoslice.serving.opened import OpenStore
from protoslice.serving.stored import SUM_BLOCK
from protoslice.storage import FileStorage, MemoryStorage, Storage
from protoslice.storage.wrappers import Call, MeteredStorage
from protoslice.stores import IngestRequest, Stores

MODEL = onnx(10)
NOTES = {"held": b"note", "empty": b"", "twin": b"note"}


def files_of(size: int) -> dict[str, bytes]:
    """Return a model and a file, which have this many bytes together."""
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


SIZES = st.lists(
    st.sampled_from([0, 1, 100, SUM_BLOCK - 1, SUM_BLOCK, 150_000, BATCH - 1, BATCH, 1_300_000]), max_size=6
)


def folder(sizes: list[int]) -> dict[str, bytes]:
    """Return a model and files of these sizes."""
    random = Random(0)
    return {"model.onnx": onnx(10)} | {f"f{number}": random.randbytes(size) for number, size in enumerate(sizes)}


@settings(max_examples=25)
@given(sizes=SIZES, verify=st.booleans(), on_disk=st.booleans(), data=st.data())
def test_every_range_of_every_file_is_what_it_was(
    sizes: list[int], verify: bool, on_disk: bool, data: st.DataObject
) -> None:
    files = folder(sizes)

    async def work(stores: Stores, storage: Storage) -> None:
        info = (await upload(stores, files)).store
        async with opened(storage, StoreOptions(verify_reads=verify)) as others:
            await assert_whole(others, info)
            store = await others.view(info.id)
            for path, content in files.items():
                start = data.draw(st.integers(0, len(content)))
                end = data.draw(st.integers(start, len(content)))
                view = store.file(path)
                assert await read(view, start, end) == content[start:end]
                cached = view.read_cached(start, end) if start < end else None
                assert cached is None or bytes(cached) == content[start:end]

    (in_files if on_disk else in_memory)(work)


def test_many_files_cost_few_calls_to_take_in_and_to_open() -> None:
    async def count(files: int) -> tuple[int, int]:
        calls: Counter[str] = Counter()

        def observe(call: Call) -> None:
            calls[call.name] += 1

        storage = MeteredStorage(MemoryStorage(), observe)
        async with opened(storage) as stores:
            calls.clear()
            info = (await upload(stores, folder([300] * files))).store
            taken = calls.total()
            await assert_whole(stores, info)
        async with opened(storage) as stores:
            calls.clear()
            await stores.view(info.id)
            return taken, calls.total()

    async def work(_: Stores, __: Storage) -> None:
        few, many = await count(20), await count(500)
        assert many == few

    in_memory(work)


def test_a_store_of_many_files_holds_few_open() -> None:
    async def work(stores: Stores, storage: FileStorage) -> None:
        info = (await upload(stores, folder([10] * 300))).store
        before = len(os.listdir("/proc/self/fd"))
        await stores.view(info.id)
        assert len(os.listdir("/proc/self/fd")) - before < 10

    in_files(work)


async def test_small_files_lie_in_one_object_and_each_large_one_alone(stores: Stores, storage: MemoryStorage) -> None:
    files = {"a": bytes(BATCH), "b": b"b" * 10, "c": bytes(BATCH + 1), "d": b"d" * 20, "model.onnx": onnx(10)}
    info = (await upload(stores, files)).store
    assert len(await objects_in(storage)) == 3
    keys = {path: ref.location for path, ref in (await stores.files(info.id)).items()}
    assert len({key for path in ("b", "d", "model.onnx") for key in keys[path].keys}) == 1
    assert len({key for path in ("a", "b", "c") for key in keys[path].keys}) == 3
    await assert_whole(stores, info)


async def test_a_pack_that_is_full_is_followed_by_another(stores: Stores, storage: MemoryStorage) -> None:
    with patch.object(file_writer, "FULL_PACK", 1000):
        info = (await upload(stores, folder([400] * 10))).store
    assert len(await objects_in(storage)) == 4
    await assert_whole(stores, info)


async def test_damage_to_one_file_is_found_by_whoever_reads_it(stores: Stores, storage: MemoryStorage) -> None:
    files = folder([3 * SUM_BLOCK, 3 * SUM_BLOCK])
    info = (await upload(stores, files)).store
    key = (await keys_of(stores, info.id))["file-0"]
    content = bytearray(await storage.get_range(key, 0, (await storage.stat(key)).size))
    content[-1] ^= 1
    await storage.put(key, bytes(content))
    async with opened(storage) as others:
        store = await others.view(info.id)
        assert await read(store.file("f0")) == files["f0"]
        assert await read(store.file("f1"), 0, SUM_BLOCK) == files["f1"][:SUM_BLOCK]
        with pytest.raises(IntegrityError, match=key.text):
            await read(store.file("f1"))


async def test_an_upload_that_is_given_up_leaves_no_pack(stores: Stores, storage: MemoryStorage) -> None:
    async with await stores.ingest(IngestRequest()) as ingest:
        sink = await ingest.file("a")
        await sink.write(b"small")
        await sink.close()
    assert await keys_in(storage, "objects") == []


async def test_a_store_is_not_opened_with_a_file_too_few(stores: Stores, storage: MemoryStorage) -> None:
    """A file that was not opened would silently be missing from the store."""
    info = (await upload(stores, folder([10, 10]))).store
    store = await stores.view(info.id)
    worker = Worker(1)
    opened_files = [store.file(file.path).sources[0] for file in store.manifest.files]
    records = DerivedTable(catalogue_of(storage), DEFAULT_SPACE)
    derived = DerivedSources(records, storage, stores.new_objects, worker).of(store.manifest.row)
    results, passes = Results(1), Shares(1, 1, "passes")
    with pytest.raises(ValueError, match="shorter"):
        OpenStore(
            store.manifest,
            opened_files[:-1],  # type: ignore[arg-type]
            None,
            worker,
            derived,
            results,
            passes,
            stores.schemas.own_type,
        )
    await worker.close()
