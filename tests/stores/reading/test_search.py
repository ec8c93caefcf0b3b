"""Pieces in stores that nobody named."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from tests.support.seeded import Counting, seed
from tests.support.stores import in_memory, onnx, opened, some, upload

from protoslice.facts import PiecePlace
from protoslice.storage import MemoryStorage, Storage
from protoslice.stores import Stores
from protoslice.stores.reading import search

LARGE = onnx(2 << 20)
SHA256 = hashlib.sha256(LARGE).hexdigest()


def test_a_whole_file_is_found_in_a_store_that_is_not_among_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protoslice.stores.service.NEWEST", 2)

    async def work(stores: Stores, _: Storage) -> None:
        store = (await upload(stores, {"a/model.onnx": LARGE, "b": b"b"})).store
        await some(stores, 3)
        wanted = {SHA256: len(LARGE), hashlib.sha256(b"b").hexdigest(): 1}
        assert await stores.locate(wanted, None) == [PiecePlace(SHA256, len(LARGE), store.id, "a/model.onnx", 0)]
        assert await stores.locate({SHA256: len(LARGE) + 1}, None) == []

    in_memory(work)


def test_a_file_is_found_in_an_older_store_when_the_newer_is_gone() -> None:
    async def work(stores: Stores, _: Storage) -> None:
        old = (await upload(stores, {"one": LARGE})).store
        new = (await upload(stores, {"two": LARGE})).store
        assert [place.store for place in await stores.locate({SHA256: len(LARGE)}, None)] == [new.id]
        await stores.delete(new.id)
        assert [place.store for place in await stores.locate({SHA256: len(LARGE)}, None)] == [old.id]
        await stores.delete(old.id)
        assert await stores.locate({SHA256: len(LARGE)}, None) == []

    in_memory(work)


def test_the_largest_of_many_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_FILES", 1)

    async def work(stores: Stores, _: Storage) -> None:
        larger = onnx(3 << 20)
        await upload(stores, {"one": LARGE, "two": larger})
        wanted = {SHA256: len(LARGE), hashlib.sha256(larger).hexdigest(): len(larger)}
        assert [place.file for place in await stores.locate(wanted, None)] == ["two"]

    in_memory(work)


@pytest.mark.parametrize("stores", [20, 60])
def test_pieces_that_nobody_has_cost_a_listing_and_a_look_at_each_of_the_newest(stores: int) -> None:
    async def run() -> Counting:
        counting = Counting(MemoryStorage())
        await seed(counting, stores)
        async with opened(counting) as fresh:
            counting.calls.clear()
            assert await fresh.locate({"5" * 64: 100}, None) == []
        return counting

    assert asyncio.run(run()).calls == {("list", "indexes"): 1, ("stat", "derived"): 16}


def test_pieces_are_found_in_the_newest_stores_whose_tables_are_there_and_not_in_one_that_is_gone() -> None:
    async def work(stores: Stores, _: Storage) -> None:
        content = onnx(300_000)
        old, new = [(await upload(stores, {"a": content, "b": bytes([number])})).store for number in (1, 2)]
        for each in (old, new):
            pieces = (await stores.pieces(each.id, limit=10, cursor=None)).items
        wanted = {pieces[0].sha256: pieces[0].size}
        assert [place.store for place in await stores.locate(wanted, None)] == [new.id]
        await stores.delete(new.id)
        assert [place.store for place in await stores.locate(wanted, None)] == [old.id], "its entry is there still"

    in_memory(work)
