"""Pieces in stores that the client did not name: whole files, and parts found by the index of pieces."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.rows import Counting
from tests.support.stores import collect_a_day_later, derived_in, onnx, opened, some, upload

from protoslice.facts import PiecePlace
from protoslice.storage import MemoryStorage, Storage
from protoslice.stores import Stores
from protoslice.views import pieces as search
from protoslice.views.pieces import table_of

TENSOR = 70_000
LARGE = onnx(2 << 20)
SHA256 = hashlib.sha256(LARGE).hexdigest()


async def test_a_whole_file_is_found_in_whatever_store(stores: Stores) -> None:
    store = (await upload(stores, {"a/model.onnx": LARGE, "b": b"b"})).store
    await some(stores, 3)
    wanted = {SHA256: len(LARGE), hashlib.sha256(b"b").hexdigest(): 1}
    assert await stores.locate(wanted, None) == [PiecePlace(SHA256, len(LARGE), store.id, "a/model.onnx", 0)]
    assert await stores.locate({SHA256: len(LARGE) + 1}, None) == []


async def test_a_file_is_found_in_an_older_store_when_the_newer_is_gone(stores: Stores) -> None:
    old = (await upload(stores, {"one": LARGE})).store
    new = (await upload(stores, {"two": LARGE})).store
    assert [place.store for place in await stores.locate({SHA256: len(LARGE)}, None)] == [new.id]
    await stores.delete(new.id)
    assert [place.store for place in await stores.locate({SHA256: len(LARGE)}, None)] == [old.id]
    await stores.delete(old.id)
    assert await stores.locate({SHA256: len(LARGE)}, None) == []


async def test_the_largest_of_many_are_looked_up(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_FILES", 1)
    larger = onnx(3 << 20)
    await upload(stores, {"one": LARGE, "two": larger})
    wanted = {SHA256: len(LARGE), hashlib.sha256(larger).hexdigest(): len(larger)}
    assert [place.file for place in await stores.locate(wanted, None)] == ["two"]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give stores of a few hundred kilobytes entries."""
    monkeypatch.setattr(search, "LEAST_INDEXED", 200_000)


async def with_pieces(stores: Stores, seeds: Sequence[int], name: str = "m.bin") -> str:
    """Return the id of a store of one-piece files, whose table has been made."""
    files = {f"{name}.{number}": piece(seed) for number, seed in enumerate(seeds)}
    store = (await upload(stores, files)).store.id
    (await table_of(await stores.view(store))).page(1, None)
    return store


def piece(seed: int) -> bytes:
    """Return the content of one piece."""
    return (b"%d " % seed) * (TENSOR // len(b"%d " % seed))


def asked(seeds: Sequence[int]) -> dict[str, int]:
    """Return the pieces to request by digest, with their sizes."""
    return {hashlib.sha256(piece(seed)).hexdigest(): len(piece(seed)) for seed in seeds}


async def test_pieces_are_found_in_a_store_behind_any_number_of_newer_ones(stores: Stores) -> None:
    old = await with_pieces(stores, range(20))
    for number in range(1, 20):
        await with_pieces(stores, range(100 * number, 100 * number + 4))
    found = await stores.locate(asked(range(10, 30)), None)
    assert {place.store for place in found} == {old}
    assert {place.sha256 for place in found} == asked(range(10, 20)).keys()


async def test_the_store_with_most_in_common_is_looked_in_first_and_others_for_what_it_lacks(stores: Stores) -> None:
    most = await with_pieces(stores, range(8))
    rest = await with_pieces(stores, [*range(6, 12)])
    await with_pieces(stores, [7, 8, 901, 902])
    found = await stores.locate(asked(range(12)), None)
    assert {place.sha256 for place in found} == asked(range(12)).keys()
    assert [place.store for place in found] == [most] * 8 + [rest] * 4


async def transactions(storage: Storage, wanted: dict[str, int]) -> tuple[int, Counting]:
    """Return a search's transactions and calls in a process with nothing in memory; assert that it found all."""
    counting = Counting(storage)
    async with opened(counting) as fresh:
        counting.calls.clear()
        catalogue_of(storage).transactions.clear()
        assert len(await fresh.locate(wanted, None)) in {0, len(wanted)}
        return catalogue_of(storage).transactions.total(), counting


@pytest.mark.parametrize("stores", [3, 30])
def test_pieces_that_nobody_has_cost_one_transaction(stores: int) -> None:
    async def run() -> tuple[int, Counting]:
        storage = MemoryStorage()
        async with opened(storage) as others:
            for number in range(stores):
                await with_pieces(others, range(100 * number, 100 * number + 4))
        return await transactions(storage, asked(range(5000, 5005)))

    count, counting = asyncio.run(run())
    assert (count, dict(counting.calls)) == (1, {})


@pytest.mark.parametrize("stores", [9, 90])
def test_any_number_of_stores_may_have_a_piece(stores: int) -> None:
    async def run() -> tuple[int, Counting]:
        storage = MemoryStorage()
        async with opened(storage) as others:
            for number in range(stores):
                await with_pieces(others, [0, 1, 2, 100 * number + 50])
        return await transactions(storage, asked(range(3)))

    count, counting = asyncio.run(run())
    assert count == 3, "the stores of the pieces, then one of the stores, and its table"
    assert dict(counting.calls) == {}


async def test_more_pieces_than_are_looked_up_are_found_by_the_lowest(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "ASKED", 6)
    await with_pieces(stores, range(60))
    assert len(await stores.locate(asked(range(70)), None)) == 60


def test_a_file_is_found_in_a_store_that_holds_much_more() -> None:
    pieces = [(hashlib.sha256(b"%d" % number).digest(), 1 << 20) for number in range(64_000)]
    chosen = set(search.sampled(pieces))
    assert len(chosen) == 1000
    lowest = sorted(digest for digest, _ in pieces[30_000:31_000])[: search.ASKED]
    assert len(chosen & set(lowest)) > 5


def test_entries_of_a_small_store_are_none() -> None:
    assert search.sampled([(bytes(32), 199_999), (b"1" * 32, 1000)]) == []
    assert search.sampled([(bytes(32), 199_999), (b"1" * 32, 1000), (b"2" * 32, 70_000)]) == [bytes(32), b"2" * 32]


async def indexed(stores: Stores) -> dict[str, int]:
    """Return the number of pieces by which each store is found."""
    sql = "SELECT s.digest, count(*) FROM pieces p JOIN stores s ON s.space = p.space AND s.id = p.store GROUP BY 1"
    return await stores.database.read(lambda tx: dict(tx.all(sql)))


async def test_a_store_that_is_gone_is_not_told_and_its_entries_are_collected(stores: Stores, storage: Storage) -> None:
    kept, gone = await with_pieces(stores, range(6)), await with_pieces(stores, range(3, 12))
    await stores.delete(gone)
    assert {place.store for place in await stores.locate(asked(range(3, 12)), None)} == {kept}
    assert await indexed(stores) == {kept: 6, gone: 8}
    await collect_a_day_later(storage)
    assert await indexed(stores) == {kept: 6}
    rows = await stores.database.read(lambda tx: tx.all("SELECT count(*) FROM pieces"))
    assert rows[0][0] == 6
    assert len(await stores.locate(asked(range(6)), None)) == 6


async def test_a_store_that_was_restored_is_found(stores: Stores, storage: Storage) -> None:
    store = await with_pieces(stores, range(6))
    await stores.delete(store)
    assert await stores.locate(asked(range(6)), None) == []
    await stores.restore(store)
    await collect_a_day_later(storage)
    assert len(await stores.locate(asked(range(6)), None)) == 6


async def test_a_store_that_came_again_is_found_once_its_table_is_made(stores: Stores, storage: Storage) -> None:
    store = await with_pieces(stores, range(6))
    await stores.delete(store)
    again = await upload(stores, {f"m.bin.{number}": piece(number) for number in range(6)})
    assert (again.created, again.store.id) == (True, store)
    (await table_of(await stores.view(store))).page(1, None)
    await collect_a_day_later(storage)
    assert len(await stores.locate(asked(range(6)), None)) == 6


async def test_a_store_without_a_table_costs_no_reading_of_files(stores: Stores, storage: Storage) -> None:
    await upload(stores, {f"m.bin.{number}": piece(number) for number in range(6)})
    count, counting = await transactions(storage, asked(range(6)))
    assert (count, dict(counting.calls)) == (1, {})
    assert await derived_in(storage) == {}
