"""Computed results of stores are kept within the one bound that an operator sets.

The tables of pieces cover the files, are made once, and are made again when they are damaged.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pytest
from onnx import helper, numpy_helper
from tests.support.catalogues import catalogue_of
from tests.support.golden import CHUNKED
from tests.support.interrupted import (
    FaultyDatabase,
    FaultyStorage,
    InjectedFault,
    InterruptedDatabase,
    Interruption,
    at_every_call,
)
from tests.support.stores import (
    collect_garbage,
    derived_in,
    in_memory,
    keys_of,
    objects_in,
    onnx,
    opened,
    read,
    records_apart,
    upload,
)

from protoslice.catalog import derived
from protoslice.catalog.manifest import checked
from protoslice.concurrency.results import Key, Results
from protoslice.errors import DatabaseUnavailable, IntegrityError, InvalidInput, NotFound
from protoslice.facts import Piece
from protoslice.graphs import GraphQuery
from protoslice.pieces import LONGEST
from protoslice.serving import OpenStore, StoreOptions
from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.storage.wrappers import MeteredStorage
from protoslice.stores import IngestRequest, Stores
from protoslice.versions import PIECES
from protoslice.views import documents, models, tensors, texts
from protoslice.views.pieces import table_of
from protoslice.views.texts import TextView

STORES: Final = 100
TEXT: Final = 20_000
"""The bytes of a page's JSON."""


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
                # Some stores are requested much more often than others.
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
        # The engine's memory is weighed and not traced.
        assert 0.2 < (memory[more] - memory[less]) / (weights[more] - weights[less]) < 2, found


MODEL = onnx(100, 70_000, 2_300_000, 10, LONGEST + 5, 1_048_576)
FILES = {
    "raw": {"model.onnx": MODEL, "notes": b"a text", "empty": b"", "weights": bytes(2 * LONGEST + 1)},
    "chunked": {"x.cpb": (CHUNKED / "graph_large_constants.max100000.uncompressed.cpb").read_bytes()},
    "no proto": {"text.pbtxt": b'node { name: "a" op: "Const" }\n'},
}
REQUEST = IngestRequest(min_chunk=60_000)


async def pieces_of(stores: Stores, ref: str, limit: int = 1000) -> list[Piece]:
    found, cursor = list[Piece](), None
    while True:
        page = (await table_of(await stores.view(ref))).page(limit, cursor)
        found += page.items
        cursor = page.next
        if cursor is None:
            return found


@pytest.mark.parametrize("name", FILES)
async def test_they_cover_every_file(stores: Stores, name: str) -> None:
    store = (await upload(stores, FILES[name], REQUEST)).store
    pieces = await pieces_of(stores, store.id)
    assert pieces == await pieces_of(stores, store.id, limit=2)
    for path, data in FILES[name].items():
        own = [piece for piece in pieces if piece.file == path]
        assert b"".join(data[piece.offset : piece.offset + piece.size] for piece in own) == data
        assert [piece.sha256 for piece in own] == [
            hashlib.sha256(data[piece.offset : piece.offset + piece.size]).hexdigest() for piece in own
        ]


async def test_an_insertion_moves_the_pieces_of_tensors_unchanged(stores: Stores) -> None:
    first = (await upload(stores, {"m.onnx": MODEL}, REQUEST)).store
    longer = MODEL.replace(b"seed-0", b"seed-00000000")
    longer = longer.replace(b"\x12\x06seed-00000000", b"\x12\x0dseed-00000000")
    second = (await upload(stores, {"m.onnx": longer}, REQUEST)).store
    assert second.size == first.size + 7
    kept = {piece.sha256: piece for piece in await pieces_of(stores, first.id)}
    again = [piece for piece in await pieces_of(stores, second.id) if piece.sha256 in kept]
    assert sum(piece.size for piece in again) > 0.99 * len(MODEL)
    assert all(piece.offset == kept[piece.sha256].offset + 7 for piece in again)


async def test_a_damaged_table_is_made_anew(stores: Stores, storage: MemoryStorage) -> None:
    store = (await upload(stores, FILES["raw"], REQUEST)).store
    pieces = await pieces_of(stores, store.id)
    await stores.database.write(lambda tx: tx.run("UPDATE derived SET data = :data", data=b"damaged"))
    async with opened(storage) as fresh:
        assert await pieces_of(fresh, store.id) == pieces
    (found,) = (await derived_in(storage)).values()
    assert found != b"damaged"


async def test_a_large_table_is_an_object_and_made_anew_when_that_is_damaged(
    stores: Stores, storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived, "LARGEST_ROW", 0)
    store = (await upload(stores, FILES["raw"], REQUEST)).store
    pieces = await pieces_of(stores, store.id)
    for _ in range(2):
        (row,) = await stores.database.read(
            lambda tx: tx.all("SELECT o.key FROM derived d JOIN objects o ON o.space = d.space AND o.id = d.object")
        )
        await storage.put(ObjectKey(row[0]), b"damaged")
        async with opened(storage) as fresh:
            assert await pieces_of(fresh, store.id) == pieces
    before = len(await objects_in(storage))
    await collect_garbage(storage)
    assert len(await objects_in(storage)) == before - 2, "the damaged ones"


async def test_a_table_that_cannot_be_kept_is_told_all_the_same() -> None:
    storage = MemoryStorage()
    async with opened(storage) as stores:
        store = (await upload(stores, FILES["raw"], REQUEST)).store
    told = 0
    for fail_at in range(1, 40):
        faulty = FaultyStorage(storage, 10_000)
        async with opened(faulty, database=FaultyDatabase(catalogue_of(storage), faulty)) as stores:
            await stores.view(store.id)
            faulty._fail_at = len(faulty.calls) + fail_at
            with suppress(InjectedFault, DatabaseUnavailable):  # and nothing half made is kept
                assert len(await pieces_of(stores, store.id)) > 5
                told += 1
            if not faulty.failed:
                break
        async with opened(storage) as stores:
            assert sum(piece.size for piece in await pieces_of(stores, store.id)) == store.size
            await stores.database.write(lambda tx: tx.run("DELETE FROM derived"))
    assert told > 1


def test_who_stops_waiting_does_not_stop_it() -> None:
    async def work(stores: Stores, _: object) -> None:
        store = (await upload(stores, FILES["raw"], REQUEST)).store
        waiting = [asyncio.create_task(pieces_of(stores, store.id)) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting[0].cancel()
        done = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(done[0], asyncio.CancelledError)
        assert done[1] == done[2] == await pieces_of(stores, store.id)

    in_memory(work)


async def test_they_are_found_by_digest(stores: Stores) -> None:
    store = (await upload(stores, FILES["raw"], REQUEST)).store
    wanted = {piece.sha256: piece.size for piece in await pieces_of(stores, store.id)}
    for refs in ([store.id], None):
        places = await stores.locate(wanted | {"0" * 64: 1}, refs)
        assert {place.sha256 for place in places} == wanted.keys()
        for place in places:
            view = (await stores.view(place.store)).file(place.file)
            data = await read(view, place.offset, place.offset + place.size)
            assert hashlib.sha256(data).hexdigest() == place.sha256
    assert await stores.locate(wanted, []) == []
    with pytest.raises(NotFound):
        await stores.locate(wanted, ["nothing"])
    with pytest.raises(InvalidInput):
        (await table_of(await stores.view(store.id))).page(3, "-1")


@pytest.fixture
def _all_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give pieces of any store entries."""
    for name, value in (("LEAST_SAMPLED", 1), ("LEAST_INDEXED", 1), ("_FEWEST", 1000)):
        monkeypatch.setattr(f"protoslice.views.pieces.{name}", value)


@pytest.mark.usefixtures("_all_indexed")
async def test_without_a_name_only_known_tables_are_looked_in(stores: Stores) -> None:
    store = (await upload(stores, FILES["raw"], REQUEST)).store
    sha256 = hashlib.sha256(b"a text").hexdigest()
    assert await stores.locate({sha256: 6}, None) == []
    (place,) = await stores.locate({sha256: 6}, [store.id])
    assert (place.store, place.file, place.offset) == (store.id, "notes", 0)
    assert await stores.locate({sha256: 6}, None) == [place]


@pytest.mark.usefixtures("_all_indexed")
@records_apart()
def test_without_a_name_a_damaged_store_is_passed_over() -> None:
    async def run() -> None:
        storage = MemoryStorage()
        sha256 = hashlib.sha256(b"a text").hexdigest()
        async with opened(storage) as stores:
            sound = (await upload(stores, FILES["raw"], REQUEST)).store
            damaged = (await upload(stores, FILES["chunked"] | {"notes": b"a text"}, REQUEST)).store
            for store in (sound, damaged):
                await pieces_of(stores, store.id)
        async with opened(storage) as stores:
            await storage.put((await keys_of(stores, damaged.id))["index"], b"damaged")
        async with opened(storage) as stores:
            (place,) = await stores.locate({sha256: 6}, None)
            assert place.store == sound.id
            with pytest.raises(IntegrityError):
                await stores.locate({sha256: 6}, [damaged.id])

    asyncio.run(run())


@pytest.mark.usefixtures("_all_indexed")
def test_without_a_name_a_store_removed_meanwhile_is_passed_over() -> None:
    found = set[bool]()

    async def at(number: int) -> bool:
        storage = MemoryStorage()
        async with opened(storage) as theirs:
            kept = (await upload(theirs, FILES["raw"], REQUEST)).store
            removed = (await upload(theirs, FILES["chunked"] | {"notes": b"a text"}, REQUEST)).store
            for store in (kept, removed):
                await pieces_of(theirs, store.id)
            interruption = Interruption(lambda: theirs.delete(removed.id))
            async with opened(storage, database=InterruptedDatabase(catalogue_of(storage), interruption)) as ours:
                interruption.arm(number)
                (place,) = await ours.locate({hashlib.sha256(b"a text").hexdigest(): 6}, None)
                assert place.store in {kept.id, removed.id}
                found.add(place.store == kept.id)
        return interruption.reached

    asyncio.run(at_every_call(at, 3))
    assert found == {True, False}


async def test_a_table_is_digested_once_for_all_of_its_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    async with opened(storage) as stores:
        store = (await upload(stores, FILES["raw"], REQUEST)).store
        pieces = await pieces_of(stores, store.id)
    loaded = list[str]()

    def noting(sealed: bytes, name: str) -> bytes:
        loaded.append(name)
        return checked(sealed, name)

    monkeypatch.setattr(derived, "checked", noting)
    async with opened(storage) as stores:
        assert await pieces_of(stores, store.id, limit=1) == pieces
        assert loaded == [f"pieces-{PIECES}"]


def test_a_file_that_is_one_piece_is_not_read_again() -> None:
    """The file's digest is known from its ingest; reading it again took half a minute for thousands of files."""

    async def work(_: Stores, __: object) -> None:
        calls: list[str] = []
        storage = MeteredStorage(MemoryStorage(), lambda call: calls.append(call.name))
        async with opened(storage) as stores:
            store = (await upload(stores, {"m.onnx": onnx(10)} | {f"f{n}": b"x" * n for n in range(200)})).store
            await stores.view(store.id)
            calls.clear()
            assert len(await pieces_of(stores, store.id)) == 200
            assert calls == []

    in_memory(work)
