"""Circuit breaker: a storage that fails or is silent is not asked; one bad object changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Final, TypeVar

import pytest
from tests.stores.simulation.loop import SimulatedLoop

from protoslice.errors import CircuitOpen, NotFound, StorageDenied, StorageUnavailable
from protoslice.storage import MemoryStorage, ObjectKey, Storage
from protoslice.storage.wrappers.circuit import (
    FAILURES,
    LONGEST_PAUSE_SECONDS,
    PROBE_SECONDS,
    SILENCE_SECONDS,
    CircuitBreaker,
)
from protoslice.storage.wrappers.interceptor import InterceptedStorage
from protoslice.testing import Raw, RawThroughStorage, StorageConformance, assert_forwards

T = TypeVar("T")
KEY = ObjectKey("a/b.pb")
BAD = ObjectKey("a/bad.pb")


class Patient(InterceptedStorage):
    """Storage that fails with `error`, for one key or all, or hangs until `answers` is set."""

    def __init__(self) -> None:
        super().__init__(MemoryStorage())
        self.error: Exception | None = None
        self.only: ObjectKey | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked = 0

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        self.asked += 1
        await self.answers.wait()
        if self.error is not None and self.only in (None, key):
            raise self.error
        return await call()


class TestCircuitBreaker(StorageConformance):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
        inner = MemoryStorage()
        yield CircuitBreaker(inner), RawThroughStorage(inner)


def test_every_method_is_passed_on() -> None:
    assert_forwards(CircuitBreaker)


async def _until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_true():
            await asyncio.sleep(0.001)


async def _fail(storage: Storage, times: int, key: ObjectKey = KEY) -> None:
    for _ in range(times):
        with pytest.raises(StorageUnavailable):
            await storage.stat(key)


def test_a_dead_storage_is_not_asked_and_one_that_answers_again_is() -> None:
    async def work() -> None:
        patient = Patient()
        async with CircuitBreaker(patient, probe_seconds=0.05) as storage:
            await storage.put(KEY, b"there")
            patient.error = StorageUnavailable("dead")
            await _fail(storage, FAILURES)
            await _until(lambda: storage.is_open)
            before = patient.asked
            for call in (lambda: storage.stat(KEY), lambda: storage.list(), lambda: anext(storage.stream(KEY))):
                with pytest.raises(CircuitOpen):
                    await call()
            assert (patient.asked, storage.refused, storage.openings) == (before, 3, 1)
            patient.error = None
            await _until(lambda: not storage.is_open)
            assert await storage.get_range(KEY, 0, 5) == b"there"

    asyncio.run(work())


def test_an_object_that_always_fails_refuses_nobody_else() -> None:
    async def work() -> None:
        patient = Patient()
        async with CircuitBreaker(patient, probe_seconds=0.05) as storage:
            await storage.put(KEY, b"there")
            patient.error, patient.only = StorageUnavailable("this one"), BAD
            await _fail(storage, 3 * FAILURES, BAD)
            for _ in range(3):
                await asyncio.sleep(0)
                assert (await storage.stat(KEY)).size == 5
            assert storage.openings == 0

    asyncio.run(work())


@pytest.mark.parametrize("error", [NotFound("none"), StorageDenied("no")])
def test_a_refusal_is_an_answer(error: Exception) -> None:
    async def work() -> None:
        patient = Patient()
        async with CircuitBreaker(patient) as storage:
            patient.error = StorageUnavailable("dead")
            await _fail(storage, FAILURES - 1)
            patient.error = error
            with pytest.raises(type(error)):
                await storage.stat(KEY)
            patient.error = StorageUnavailable("dead")
            await _fail(storage, FAILURES - 1)
            await asyncio.sleep(0)
            assert (storage.is_open, storage.openings) == (False, 0)

    asyncio.run(work())


def test_a_storage_that_hangs_is_found_out_by_its_silence() -> None:
    async def work() -> None:
        patient = Patient()
        async with CircuitBreaker(patient, silence_seconds=0.02, probe_seconds=0.02) as storage:
            patient.answers.clear()
            waiting = asyncio.create_task(storage.put(KEY, b"there"))
            await asyncio.sleep(0.05)
            late = asyncio.create_task(storage.stat(KEY))
            await _until(lambda: storage.is_open)
            with pytest.raises(CircuitOpen):
                await storage.stat(KEY)
            patient.answers.set()
            await asyncio.gather(waiting, late)  # calls under way end as the storage ends them
            await _until(lambda: not storage.is_open)

    asyncio.run(work())


def test_work_that_began_before_is_not_refused() -> None:
    async def work() -> None:
        patient = Patient()
        async with CircuitBreaker(patient, probe_seconds=0.05) as storage:
            await storage.put(KEY, bytes(3 << 20))
            writer = await storage.writer(BAD)
            async with aclosing(storage.stream(KEY)) as pieces:
                size = len(await anext(pieces))
                patient.error = StorageUnavailable("dead")
                await _fail(storage, FAILURES)
                await _until(lambda: storage.is_open)
                patient.error, before = None, patient.asked
                size += sum([len(piece) async for piece in pieces])
                await writer.abort()
                assert size == 3 << 20
                assert patient.asked > before

    asyncio.run(work())


def test_closing_ends_the_probes() -> None:
    async def work() -> None:
        patient = Patient()
        storage = CircuitBreaker(patient, probe_seconds=0.001)
        patient.error = StorageUnavailable("dead")
        await _fail(storage, FAILURES)
        await _until(lambda: storage.is_open)
        await storage.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(work())


SLOW: Final = 14.0
"""Seconds to each answer of a slow storage: less than any deadline of a read."""


class Slow(InterceptedStorage):
    """Storage that answers each call after some seconds."""

    def __init__(self) -> None:
        super().__init__(MemoryStorage())
        self.seconds = 0.0

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        await asyncio.sleep(self.seconds)
        return await call()


def in_virtual_time(work: Callable[[Slow, CircuitBreaker], Awaitable[None]]) -> None:
    """Do `work` with a storage that becomes slow, by a clock that waits for nobody."""

    async def run() -> None:
        slow = Slow()
        async with CircuitBreaker(slow) as storage:
            await storage.put(KEY, b"there")
            slow.seconds = SLOW
            await work(slow, storage)

    loop = SimulatedLoop()
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


async def _look(storage: Storage) -> tuple[bool, float]:
    """True when a call was answered, False when it was refused; and the seconds that it took."""
    time = asyncio.get_running_loop().time
    begun = time()
    try:
        await storage.stat(KEY)
    except CircuitOpen:
        return False, time() - begun
    return True, time() - begun


def test_a_storage_of_slow_answers_costs_callers_one_answer_or_nothing() -> None:
    async def work(slow: Slow, storage: CircuitBreaker) -> None:
        async def at(second: int) -> tuple[bool, float]:
            await asyncio.sleep(second)
            return await _look(storage)

        found = await asyncio.gather(*map(at, range(60)))
        answered = [second for second, (was, _) in enumerate(found) if was]
        noticed = SILENCE_SECONDS + 1 + PROBE_SECONDS  # by the first call after the silence, and a probe
        assert answered == list(range(len(answered)))
        assert noticed <= len(answered) <= noticed + 1
        assert {took for was, took in found if was} == {SLOW}
        assert {took for was, took in found if not was} == {0}, "refused at once"
        assert storage.openings == 1, "slow answers to probes close nothing"
        slow.seconds = 0
        await asyncio.sleep(LONGEST_PAUSE_SECONDS + PROBE_SECONDS)
        assert await _look(storage) == (True, 0)

    in_virtual_time(work)


def test_one_caller_in_turn_waits_for_two_slow_answers_and_not_for_all() -> None:
    async def work(_: Slow, storage: CircuitBreaker) -> None:
        found = [await _look(storage) for _ in range(6)]
        assert found == [(True, SLOW)] * 2 + [(False, 0)] * 4

    in_virtual_time(work)


def test_a_slow_call_of_a_storage_that_answers_others_opens_nothing() -> None:
    async def work(slow: Slow, storage: CircuitBreaker) -> None:
        waiting = asyncio.create_task(_look(storage))
        await asyncio.sleep(1)
        slow.seconds = 0.1
        assert await waiting == (True, SLOW)
        assert [was for was, _ in [await _look(storage) for _ in range(60)]] == [True] * 60
        assert storage.openings == 0

    in_virtual_time(work)
