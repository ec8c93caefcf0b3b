"""Places in total and for each client: they are returned, and refused with a message."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Never

import pytest

from protoslice.concurrency.shares import LOOK_SECONDS, QueuedShares, Shares
from protoslice.errors import ClientLimit, TooMany


def test_a_client_has_its_share_and_all_together_no_more_than_there_is() -> None:
    shares = Shares(3, 2, "dances")
    for _ in range(2):  # any number of times, since places are returned
        with ExitStack() as held:
            held.enter_context(shares.one("a"))
            held.enter_context(shares.one("a"))
            with pytest.raises(ClientLimit, match="This client has reached its limit of 2 dances") as each:
                held.enter_context(shares.one("a"))
            held.enter_context(shares.one("b"))
            with pytest.raises(TooMany, match="The service has reached its limit of 3 dances") as most:
                held.enter_context(shares.one("c"))
            assert (each.value.limit, most.value.limit, type(most.value)) == (2, 3, TooMany)


def test_a_failure_gives_its_place_back() -> None:
    shares = Shares(1, 1, "dances")
    with pytest.raises(RuntimeError), shares.one("a"):
        raise RuntimeError
    with shares.one("a"):
        pass


def test_nobody_is_refused_without_a_limit() -> None:
    free, unnamed = Shares(0, 0, "dances"), Shares(0, 1, "dances")
    with ExitStack() as held:
        for _ in range(100):
            held.enter_context(free.one("a"))
            held.enter_context(unnamed.one(""))


def test_clients_are_forgotten_when_nothing_is_left_of_them() -> None:
    shares = Shares(0, 1, "things")
    for number in range(1000):
        shares.take(f"client {number}")
    for number in range(1000):
        with pytest.raises(ClientLimit):
            shares.take(f"client {number}")
        shares.give(f"client {number}")
    assert shares._of == {}


class Sender:
    """The work of a client that sends as many bytes as a test sets, in time windows that the test advances."""

    def __init__(self, shares: QueuedShares, client: str) -> None:
        self.received, self.waited = 0, 0.0
        self.preempted = self.has_place = False
        self.end, self.gone = asyncio.Event(), asyncio.Event()
        self.task = asyncio.create_task(self._run(shares, client))

    async def _run(self, shares: QueuedShares, client: str) -> None:
        async with shares.queued(client, self):
            self.has_place = True
            await self.end.wait()
        self.has_place = False

    def progress(self) -> tuple[int, float]:
        return self.received, self.waited

    def preempt(self) -> None:
        self.preempted = True
        self.end.set()

    async def left(self) -> Never:
        await self.gone.wait()
        raise ConnectionResetError

    def sends(self, received: int, waited: float = LOOK_SECONDS) -> None:
        self.received += received
        self.waited += waited


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def queue(most: int, each: int, seconds: float = 1000) -> QueuedShares:
    return QueuedShares(most, each, "dances", seconds=seconds, slowest=1000)


async def test_the_next_place_is_for_the_client_with_the_fewest() -> None:
    shares = queue(4, 3)
    a = [Sender(shares, "a") for _ in range(6)]
    await settled()
    b, c = Sender(shares, "b"), Sender(shares, "c")
    await settled()
    more, last = Sender(shares, "c"), Sender(shares, "b")
    await settled()
    assert [each.has_place for each in (*a, b, c, more, last)] == [*[True] * 3, *[False] * 3, True, *[False] * 3]
    for ended, begun in ((a[0], c), (a[1], a[3]), (c, more), (b, last)):  # at equal numbers, the earliest client
        ended.end.set()
        await settled()
        assert begun.has_place
    for each in (*a, more, last):
        each.end.set()
    await asyncio.gather(*(each.task for each in (*a, more, last)))
    assert (shares._of, shares._waiting, shares._works) == ({}, {}, {})


@pytest.mark.parametrize("handed", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("how", ["cancelled", "left"])
async def test_who_waits_no_more_takes_no_place(how: str, handed: bool) -> None:
    shares = queue(1, 0)
    first, second, third = (Sender(shares, each) for each in "abc")
    await settled()
    if handed:
        first.end.set()
        await asyncio.sleep(0)  # the place is granted in this turn of the loop, and taken in the next
    if how == "cancelled":
        second.task.cancel()
    else:
        second.gone.set()
    await settled()
    first.end.set()
    await settled()
    assert third.has_place
    third.end.set()
    await asyncio.gather(second.task, third.task, return_exceptions=True)
    assert (shares._of, shares._waiting) == ({}, {})


async def test_a_place_that_is_not_free_in_time_is_refused_in_words() -> None:
    shares = queue(2, 1, seconds=0.01)
    held = [Sender(shares, each) for each in "ab"]
    await settled()
    with pytest.raises(ClientLimit, match="This client has reached its limit of 1 dances"):
        await Sender(shares, "a").task
    with pytest.raises(TooMany, match="The service has reached its limit of 2 dances"):
        await Sender(shares, "c").task
    for each in held:
        each.end.set()


@pytest.mark.parametrize(
    ("clients", "sent", "waits", "ended"),
    [
        ("aabb", (0, 1, 9**9, 9**9), "c", {0}),
        ("aabb", (0, 1, 9**9, 9**9), "cd", {0, 1}),
        ("aaab", (79_000, 70_000, 9**9, 9**9), "c", {1}),
        ("aaab", (79_000, 70_000, 60_000, 9**9), "cccc", {2}),
        ("aabb", (81_000, 9**9, 9**9, 9**9), "c", set()),
        ("abcd", (79_000, 70_000, 9**9, 9**9), "e", set()),
        ("aabc", (0, 9**9, 9**9, 9**9), "a", {0}),
        ("aabb", (9**9, 9**9, 9**9, 9**9), "cccc", set()),
    ],
    ids=["stalled", "both", "slow", "even", "fast", "last", "own", "all fast"],
)
async def test_the_slowest_gives_way_to_who_waits(
    clients: str, sent: tuple[int, ...], waits: str, ended: set[int]
) -> None:
    """Stalled work always gives way; slow work does where its client has more; progressing work never does."""
    shares = queue(4, 0)
    works = [Sender(shares, each) for each in clients]
    await settled()
    waiting = [Sender(shares, each) for each in waits]
    await settled()
    for work, received in zip(works, sent, strict=True):
        work.sends(received)
    shares.look()
    assert {number for number, work in enumerate(works) if work.preempted} == ended
    await settled()
    assert sum(each.has_place for each in waiting) == len(ended)
    for each in (*works, *waiting):
        each.end.set()
        each.task.cancel()


async def test_nothing_is_preempted_while_none_wait_or_the_service_is_slow() -> None:
    shares = queue(1, 0)
    work = Sender(shares, "a")
    await settled()
    work.sends(0)
    shares.look()
    assert not work.preempted
    waiting = Sender(shares, "b")
    await settled()
    work.sends(10, 0.1)  # for the rest of the time, the bytes were being written
    shares.look()
    assert not work.preempted
    work.sends(0)
    shares.look()
    await settled()
    assert (work.preempted, waiting.has_place) == (True, True)
    waiting.end.set()
