"""The tensors of a store: what costs to make is made once for all ranges of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.support.protos.writer import varint
from tests.support.stores import field, in_memory, opened, read, upload

from protoslice.errors import CorruptModel, InvalidInput
from protoslice.formats import onnx
from protoslice.serving import OpenStore, StoreOptions
from protoslice.storage import MemoryStorage
from protoslice.storage.wrappers import Call, MeteredStorage
from protoslice.stores import Stores
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Tensor
from protoslice.views import models, tensors

IDS = np.random.default_rng(1).integers(0, 1 << 40, 300_000)


def model(*, dims: int = len(IDS)) -> bytes:
    """A model with some plain tensors, and one whose elements are varints."""
    ids: Any = TensorProto(name="ids", data_type=TensorProto.INT64, dims=[dims], int64_data=IDS)
    plain = [numpy_helper.from_array(np.full(50, number, np.float32), f"w{number}") for number in range(30)]
    made: Any = helper.make_model(helper.make_graph([], "g", [], [], [*plain, ids]))
    content: bytes = made.SerializeToString()
    return content


def bytes_read(calls: list[Call]) -> int:
    return sum(call.bytes_read for call in calls if call.name.startswith("get_range"))


def test_a_safetensors_file_is_made_once_and_kept() -> None:
    async def work(stores: Stores, _: object) -> None:
        store = await stores.view((await upload(stores, model())).store.id)
        first, second = await asyncio.gather(tensors.safetensors(store, []), tensors.safetensors(store, []))
        assert first is second is await tensors.safetensors(store, [])
        named = await tensors.safetensors(store, ["w1", "w2*"])
        assert named is await tensors.safetensors(store, ["w1", "w2*"])
        assert named.etag != first.etag
        for number in range(30):
            await tensors.safetensors(store, [f"w{number}"])
        assert await tensors.safetensors(store, []) is not first, "only so many are kept"

    in_memory(work, StoreOptions(open_stores_bytes=60_000))


def test_what_is_held_in_memory_weighs() -> None:
    """Numbers that stand one by one are brought together: of files of many of them the newest alone is kept."""
    one_by_one = b"\x38\x01" * 20_000
    initializer = b"\x08" + varint(20_000) + b"\x10\x07" + field(8, b"ids") + one_by_one
    model = b"\x08\x08" + field(7, field(2, b"graph") + field(5, initializer))

    async def work(stores: Stores, _: object) -> None:
        store = await stores.view((await upload(stores, model)).store.id)
        before = store.results.weight
        first = await tensors.safetensors(store, [])
        assert (await read(first)).endswith(np.ones(20_000, "<i8").tobytes())
        assert first is await tensors.safetensors(store, [])
        assert store.results.weight > before + 20_000
        await tensors.safetensors(store, ["ids"])
        assert first is not await tensors.safetensors(store, [])
        assert first.size == (await tensors.safetensors(store, [])).size

    in_memory(work, StoreOptions(open_stores_bytes=15_000))


def on_metered(work: Any, data: bytes) -> None:
    async def run() -> None:
        calls: list[Call] = []
        storage = MeteredStorage(MemoryStorage(), calls.append)
        async with opened(storage) as stores:
            info = (await upload(stores, data)).store
            store = await stores.view(info.id)
            calls.clear()
            await work(store, calls)

    asyncio.run(run())


def test_varints_are_counted_once_for_all_ranges_and_slices() -> None:
    async def work(store: OpenStore, calls: list[Call]) -> None:
        await asyncio.gather(*(tensors.one(store, "ids", None, "raw") for _ in range(4)))
        counting = bytes_read(calls)
        assert len(model()) * 0.9 < counting < len(model()) * 2, "four at once pass over them once"
        calls.clear()
        for number in range(0, len(IDS), 10_000):
            view = await tensors.one(store, "ids", f"{number}:{number + 10}", "raw")
            assert np.frombuffer(await read(view), "<i8").tolist() == IDS[number : number + 10].tolist()
        calls.clear()
        view = await tensors.one(store, "path:graph.initializer[30]", None, "raw")
        assert bytes_read(calls) == 0
        assert np.array_equal(np.frombuffer(await read(view), "<i8"), IDS)

    on_metered(work, model())


def test_what_is_refused_counts_nothing() -> None:
    async def work(store: OpenStore, calls: list[Call]) -> None:
        await tensors.page(store, name=None, dtype=None, limit=1, cursor=None)
        calls.clear()
        for slice_text, form in ((None, "pickle"), ("0:1,0:1", "raw")):
            with pytest.raises(InvalidInput):
                await tensors.one(store, "ids", slice_text, form)
        assert bytes_read(calls) == 0

    on_metered(work, model())


def test_varints_that_are_too_few_are_an_error_every_time() -> None:
    async def work(stores: Stores, _: object) -> None:
        store = await stores.view((await upload(stores, model(dims=len(IDS) + 1))).store.id)
        for _ in range(2):
            with pytest.raises(CorruptModel, match="300000 varints") as caught:
                await tensors.one(store, "ids", None, "raw")
            assert caught.value.path == "graph.initializer[30]"

    in_memory(work)


def test_statistics_are_made_once_for_all_who_ask() -> None:
    async def work(store: OpenStore, calls: list[Call]) -> None:
        asked = (tensors.one(store, "path:graph.initializer[30]", None, form) for form in ("stats", "stats"))
        one, other, _ = await asyncio.gather(*asked, tensors.one(store, "ids/stats", None, "raw"))
        assert await read(one) == await read(other)
        calls.clear()
        told = json.loads(await read(await tensors.one(store, "ids", None, "stats")))
        assert (told["min"], told["max"], told["looked_at"]) == (IDS.min(), IDS.max(), IDS.size)
        assert bytes_read(calls) == 0
        other = await tensors.one(store, "ids", None, "stats", 100)
        assert json.loads(await read(other))["looked_at"] == 64

    on_metered(work, model())


def test_statistics_stop_when_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def endless(*_: object) -> Iterator[None]:
        while True:
            begun.append(1)
            yield None

    monkeypatch.setattr("protoslice.views.tensors.statistics_job", endless)

    async def work(store: OpenStore, calls: list[Call]) -> None:
        task = asyncio.create_task(tensors.one(store, "ids", None, "stats"))
        while not begun:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        for _ in range(50):
            await asyncio.sleep(0.001)
        seen = len(begun)
        await asyncio.sleep(0.01)
        assert len(begun) == seen

    on_metered(work, model())


async def test_tensors_are_found_once_and_built_once_for_all_columns(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Summary, sorted lists and tree share them."""
    found, built = list[object](), list[int]()

    class Counting(Tensors):
        def __init__(self, count: int, make: Callable[[int], Tensor], key: Any = None) -> None:
            def counted(number: int) -> Tensor:
                built.append(number)
                return make(number)

            super().__init__(count, counted, key)
            found.append(self)

    monkeypatch.setattr(onnx, "Tensors", Counting)
    store = await stores.view((await upload(stores, model())).store.id)
    built.clear()
    found.clear()
    assert (await models.summary(store)).tensors == 31
    assert built == [0, *range(31)], "the first also when the graph is read"
    built.clear()
    for sort in ("size", "-size", "shape", "dtype", "-dtype", "name"):
        await tensors.page(store, name=None, dtype=None, limit=1, cursor=None, sort=sort)
    assert (await tensors.tree(store, "", 0, 100, 100)).children
    assert len(built) <= 31 + 2 * 6 + 31, "facts, a row of each page and the next, and tensors of the tree"
    assert len(found) == 1
