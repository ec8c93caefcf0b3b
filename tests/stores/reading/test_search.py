"""Pieces in stores that nobody named."""

from __future__ import annotations

import hashlib

import pytest
from tests.support.stores import in_memory, onnx, some, upload

from protoslice.facts import PiecePlace
from protoslice.storage import Storage
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
