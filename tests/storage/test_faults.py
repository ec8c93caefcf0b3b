"""Storages that fail on order, and what is counted of them."""

import asyncio
from contextlib import aclosing

import pytest
from tests.support.faults import FaultyStorage, InjectedFault

from protoslice.errors import NotFound
from protoslice.storage import Call, MemoryStorage, MeteredStorage, ObjectKey, Storage

KEY = ObjectKey("a/b")
STEPS = ["writer", "write", "write", "commit", "abort", "stat", "stream", "stream", "delete"]


async def work(storage: Storage) -> None:
    async with await storage.writer(KEY) as writer:
        await writer.write(b"one")
        await writer.write(b"two")
        await writer.commit()
    await storage.stat(KEY)
    async with aclosing(storage.stream(KEY)) as pieces:
        assert [piece async for piece in pieces] == [b"onetwo"]
    await storage.delete(KEY)


def test_every_call_fails_once_and_then_none() -> None:
    failed = []
    for fail_at in range(1, 100):
        storage = FaultyStorage(MemoryStorage(), fail_at)
        try:
            asyncio.run(work(storage))
        except InjectedFault:
            failed.append(storage.calls[fail_at - 1])
        else:
            break
    assert failed == STEPS
    assert storage.calls == STEPS
    assert not storage.failed


@pytest.mark.parametrize(("after", "there"), [(False, False), (True, True)])
async def test_a_fault_comes_before_the_work_or_after_it(after: bool, there: bool) -> None:
    inner = MemoryStorage()
    with pytest.raises(InjectedFault):
        await FaultyStorage(inner, 1, after=after).put(KEY, b"x")
    assert bool((await inner.list()).items) == there


async def test_a_storage_may_stay_down() -> None:
    for stays_down, second in ((True, InjectedFault), (False, NotFound)):
        storage = FaultyStorage(MemoryStorage(), 1, stays_down=stays_down)
        with pytest.raises(InjectedFault):
            await storage.stat(KEY)
        with pytest.raises(second):
            await storage.stat(KEY)


def test_calls_are_told_with_what_they_gave_and_how_they_failed() -> None:
    calls: list[Call] = []

    async def run() -> None:
        storage = MeteredStorage(MemoryStorage(), calls.append)
        await storage.put(KEY, b"0123456789")
        await storage.get_range(KEY, 0, 4)
        await storage.get_ranges(KEY, [(0, 4), (5, 8)])
        async with aclosing(storage.stream(KEY)) as pieces:
            assert [piece async for piece in pieces] == [b"0123456789"]
        with pytest.raises(NotFound):
            await storage.stat(ObjectKey("missing"))

    asyncio.run(run())
    assert [(call.name, call.bytes_read, call.error) for call in calls] == [
        ("put", 0, None),
        ("get_range", 4, None),
        ("get_ranges", 7, None),
        ("stream", 10, None),
        ("stream", 0, None),
        ("stat", 0, "NotFound"),
    ]
    assert all(call.seconds >= 0 for call in calls)
