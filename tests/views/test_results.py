"""What is computed of stores is kept within the one bound that an operator sets."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any, Final

import numpy as np
import pytest
from onnx import helper, numpy_helper
from tests.support.stores import opened, upload

from protoslice.concurrency.results import Key, Results
from protoslice.graphs import GraphQuery
from protoslice.serving import OpenStore, StoreOptions
from protoslice.storage import MemoryStorage
from protoslice.stores import Stores
from protoslice.views import documents, models, tensors, texts
from protoslice.views.texts import TextView

STORES: Final = 100
TEXT: Final = 20_000
"""Bytes of the JSON of a page."""


async def _text(store: OpenStore) -> object:
    async def made() -> TextView:
        return TextView.of(store.info.id.encode() * (TEXT // 64))

    return await texts.text(store, ("page",), made)


VIEWS: Final[tuple[Callable[[OpenStore], Awaitable[object]], ...]] = (
    _text,
    lambda store: tensors.listed(store),
    lambda store: tensors.page(store, name=None, dtype=None, limit=5, cursor=None, sort="-size"),
    lambda store: tensors.tree(store, "", 0, 100, 20),
    lambda store: tensors.one(store, "w1", None, "stats"),
    lambda store: tensors.safetensors(store, []),
    lambda store: tensors.shards(store, shard_bytes=1000),
    lambda store: models.onnx_file(store, "model.onnx", (), (), 1),
    lambda store: models.graph_part(store, GraphQuery()),
    lambda store: models.graph_level(store, None, 0, None),
    lambda store: documents.merge(store, "graph", ["initializer.name"], None),
    lambda store: models.archive(store),
)


def model(seed: int) -> bytes:
    """Return a model of a few nodes and tensors."""
    plain = [numpy_helper.from_array(np.full(50, seed + n, "f4"), f"w{n}") for n in range(10)]
    nodes = [helper.make_node("Add", [f"v{n}", f"w{n}"], [f"v{n + 1}"], name=f"add{n}") for n in range(10)]
    made: Any = helper.make_model(helper.make_graph(nodes, "g", [], [], plain))
    content: bytes = made.SerializeToString()
    return content


async def test_memory_and_hits_of_a_hundred_stores_follow_the_bound(
    stores: Stores, storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[Key]()
    put = Results.put

    def noted(self: Results, key: Key, value: object, weight: int) -> None:
        made.append(key)
        put(self, key, value, weight)

    monkeypatch.setattr(Results, "put", noted)
    ids = [(await upload(stores, model(seed))).store.id for seed in range(STORES)]
    found = list[tuple[int, int, int]]()
    for room in (500_000, 3 << 20, 64 << 20):
        chance = random.Random(7)
        async with opened(storage, StoreOptions(open_stores=STORES, open_stores_bytes=room)) as readers:
            tracemalloc.start()
            for id in ids:
                store = await readers.view(id)
                for view in VIEWS:
                    await view(store)
            made.clear()
            results, misses = store.results, 0
            for _ in range(300):
                # Some stores are asked for much more often than others.
                store, view = await readers.view(ids[min(int(chance.expovariate(0.1)), 99)]), chance.choice(VIEWS)
                made.clear()
                await view(store)
                misses += bool(made)
                made.clear()
                await view(store)
                assert made == [], "the newest of a kind stays"
                own = sum(each for key, (_, each) in results._kept.items() if key[0] == store.manifest.row)
                assert results.weight <= max(room, own)
            found.append((misses, results.weight, tracemalloc.get_traced_memory()[0]))
            tracemalloc.stop()
    (little, some, all_of_it), weights, memory = zip(*found, strict=True)
    assert little > 1.4 * some > all_of_it == 0, "hits follow the bound"
    for less, more in ((0, 1), (1, 2)):
        # What the engine holds is weighed and not traced.
        assert 0.2 < (memory[more] - memory[less]) / (weights[more] - weights[less]) < 2, found
