"""Ids of rows: unique within a process; an id that another process has too is not an error."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

import pytest
from tests.support.stores import assert_whole, in_memory, onnx, opened, upload, visible

from protoslice.catalog import objects, stores
from protoslice.catalog.new_objects import BLOCK
from protoslice.catalog.objects import new_id
from protoslice.ingest import publishing
from protoslice.storage import MemoryStorage
from protoslice.stores import Stores


def test_ids_of_one_process_differ_and_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "time", SimpleNamespace(time_ns=lambda: 1_800_000_000_000_000_000))
    monkeypatch.setattr(objects, "_ids", objects._Ids())
    ids = [new_id() for _ in range(100_000)]
    assert ids == sorted(set(ids))
    assert 0 < ids[-1] < 1 << 63


async def test_objects_of_another_process_that_have_the_same_ids_are_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = MemoryStorage()
    async with opened(storage) as ours, opened(storage) as theirs:
        ids = count(1)
        monkeypatch.setattr(objects, "new_id", lambda: next(ids))
        await upload(ours, onnx(9000, seed=1))
        ids = count(BLOCK)  # the last of theirs, and the next ones
        for seed in (2, 3):
            await upload(theirs, onnx(9000, seed=seed))
        for info in (await visible(ours)).values():
            await assert_whole(ours, info)
        assert len(await visible(ours)) == 3


def test_a_store_of_another_process_that_has_the_same_id_is_no_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(ours: Stores, _: MemoryStorage) -> None:
        monkeypatch.setattr(publishing, "new_id", lambda: 7)
        ids = count(7)
        monkeypatch.setattr(stores, "new_id", lambda: next(ids))
        for seed in range(3):
            assert (await upload(ours, onnx(10, seed=seed))).created
        assert len(await visible(ours)) == 3

    in_memory(work)
