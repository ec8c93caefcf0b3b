"""A store of a chunked proto has the chunks that came with it, and by sizes those of another plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.chunked import METADATA
from tests.support.golden import CHUNKED
from tests.support.stores import every_view, in_files, onnx, opened, read, upload

from protoslice import _core
from protoslice.errors import InvalidInput
from protoslice.riegeli import RecordReader
from protoslice.storage import FileStorage
from protoslice.stores import IngestRequest, Stores
from protoslice.versions import Policy, store_id
from protoslice.views import chunks

FILES = (
    CHUNKED / "graph_large_constants.max100000.uncompressed.cpb",
    CHUNKED / "graph_large_constants.max70000.zstd.cpb",
    CHUNKED / "savedmodel_plain.max4000.cpb",
)
REQUEST = IngestRequest(min_chunk=500, max_chunk=5000)
BY_SIZES = replace(REQUEST, plan="policy")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_views_are_those_of_the_file(path: Path) -> None:
    with path.open("rb") as file:
        *records, last = RecordReader(file).read_records()

    async def work(stores: Stores, storage: FileStorage) -> None:
        info = (await upload(stores, {"x.cpb": path.read_bytes()}, REQUEST)).store
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
    kept = await stores.view((await upload(stores, {"x.cpb": path.read_bytes()}, REQUEST)).store.id)
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
    """A store planned by sizes keeps the id that it always had; the plan that came makes another store."""
    data = FILES[0].read_bytes()
    kept, by_sizes = [(await upload(stores, {"x.cpb": data}, each)).store for each in (REQUEST, BY_SIZES)]
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
    raw = [(await upload(stores, onnx(3000), each)).store for each in (REQUEST, BY_SIZES)]
    assert raw[0].id == raw[1].id, "other files have no plan of their own"
    store = await stores.view(raw[0].id)
    assert (await chunks.cpb(store, "policy")).etag == (await chunks.cpb(store)).etag


@pytest.mark.parametrize("plan", ["", "file", "Policy", "policy "])
async def test_other_plans_are_refused(stores: Stores, plan: str) -> None:
    with pytest.raises(InvalidInput, match="Invalid plan"):
        await upload(stores, onnx(3000), replace(REQUEST, plan=plan))
    store = await stores.view((await upload(stores, onnx(3000), REQUEST)).store.id)
    with pytest.raises(InvalidInput, match="Invalid plan"):
        await chunks.metadata(store, plan)
