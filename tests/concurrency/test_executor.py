"""Long work runs slice by slice, in separate lanes, and stops when no request waits for it.

Background work: loops run until their context ends, and start again after a failure.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from protoslice.concurrency import Job, chores, coarse, finish
from protoslice.concurrency.chores import background
from protoslice.concurrency.executor import Executor, Worker
from protoslice.concurrency.results import SingleFlight
from protoslice.errors import NotFound, StorageUnavailable


@asynccontextmanager
async def opened_worker(threads: int = 4) -> AsyncIterator[Worker]:
    worker = Worker(threads)
    try:
        yield worker
    finally:
        await worker.close()


class Counted:
    """Work of many slices; each slice waits for `go_on`."""

    def __init__(self, slices: int = 1000) -> None:
        self.begun = 0
        self.go_on = threading.Semaphore(0)
        self._slices = slices

    def __iter__(self) -> Iterator[int]:
        for number in range(self._slices):
            self.begun += 1
            self.go_on.acquire()
            yield number


async def until(fact: Callable[[], bool]) -> None:
    while not fact():
        await asyncio.sleep(0.001)


async def all_of(worker: Worker, work: Iterator[int]) -> list[int]:
    return [each async for each in worker.iterate(work)]


@pytest.mark.parametrize("threads", [1, 2, 4])
async def test_steps_are_all_there_and_in_order(threads: int) -> None:
    async with opened_worker(threads) as worker:
        assert await all_of(worker, iter(range(100))) == list(range(100))


async def test_short_work_has_threads_however_much_long_work_there_is() -> None:
    async with opened_worker() as worker:
        works = [Counted() for _ in range(20)]
        tasks = [asyncio.create_task(all_of(worker, iter(each))) for each in works]
        await until(lambda: sum(each.begun for each in works) == 2)
        assert await asyncio.wait_for(worker.run(lambda: "short"), 10) == "short"
        assert sum(each.begun for each in works) == 2, "half of the threads are for short work"
        for task in tasks:
            task.cancel()
        for each in works:
            each.go_on.release()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_long_works_take_turns() -> None:
    order: list[str] = []

    def slices(name: str) -> Iterator[int]:
        for number in range(5):
            order.append(name)
            yield number

    async with opened_worker(threads=1) as worker:
        await asyncio.gather(all_of(worker, slices("a")), all_of(worker, slices("b")))
    assert order == ["a", "b"] * 5


async def test_jobs_take_turns_and_return_their_results() -> None:
    order: list[str] = []

    def job(name: str) -> Job[str]:
        for _ in range(3):
            order.append(name)
            yield
        return name

    def failing() -> Job[str]:
        yield
        raise NotFound("it is gone")

    async with opened_worker(threads=1) as worker:
        assert [*await asyncio.gather(worker.finish(job("a")), worker.finish(job("b")))] == ["a", "b"]
        with pytest.raises(NotFound, match="gone"):
            await worker.finish(failing())
    assert order == ["a", "b"] * 3
    assert finish(job("c")) == finish(coarse(job("c"), 2)) == "c"
    assert len([*coarse(job("c"), 2)]) == 1


async def test_no_slice_begins_that_nobody_waits_for() -> None:
    async with opened_worker() as worker:
        counted = Counted()
        task = asyncio.create_task(all_of(worker, iter(counted)))
        for number in range(1, 4):
            await until(lambda number=number: counted.begun == number)  # type: ignore[misc]
            if number < 3:
                counted.go_on.release()
        task.cancel()
        counted.go_on.release(10)
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.gather(*(worker.run_long(lambda: None) for _ in range(4)))
        assert counted.begun <= 4, "the slice under way may come to its end"


async def test_a_lane_is_free_again_after_errors_and_after_callers_that_left() -> None:
    async with opened_worker() as worker:

        def fails() -> None:
            raise NotFound("it fails")

        for _ in range(8):
            with pytest.raises(NotFound):
                await worker.run_long(fails)
            task = asyncio.create_task(worker.run_long(lambda: None))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert await asyncio.wait_for(worker.run_long(lambda: 1), 10) == 1


async def test_the_last_who_waits_stops_it() -> None:
    once: SingleFlight[str, int] = SingleFlight()
    ended: list[str] = []

    async def make() -> int:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("stopped")
            raise
        return 1

    first, second = (asyncio.create_task(once.get("x", make, cancellable=True)) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.sleep(0.01)
    assert ended == []
    second.cancel()
    await asyncio.sleep(0.01)
    assert ended == ["stopped"]

    async def quick() -> int:
        return 2

    assert await once.get("x", quick) == 2


async def test_calls_that_hang_are_left_behind_and_new_ones_refused() -> None:
    hanging, release = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        release.wait()

    executor = Executor(1, "hanging")
    waiting = asyncio.ensure_future(executor.run(hang))
    await until(hanging.is_set)
    executor.abandon()  # does not wait: `hang` has not been released
    with pytest.raises(StorageUnavailable):
        await executor.run(lambda: None)
    release.set()
    await waiting


async def test_background_runs_each_loop_until_its_context_ends() -> None:
    state = dict[str, str]()

    async def loop(name: str) -> None:
        state[name] = "running"
        try:
            await asyncio.Event().wait()
        finally:
            state[name] = "ended"

    async with background({"one": lambda: loop("one"), "two": lambda: loop("two")}):
        await asyncio.sleep(0)
        assert state == {"one": "running", "two": "running"}
    assert state == {"one": "ended", "two": "ended"}


async def test_background_starts_a_failed_loop_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chores, "RESTART_SECONDS", 0)
    begun, again = list[int](), asyncio.Event()

    async def loop() -> None:
        begun.append(1)
        if len(begun) < 3:
            raise ValueError("a fault")
        again.set()

    async with background({"one": loop}):
        await again.wait()
    assert len(begun) == 3
