"""Places in all and for each client: given back, and refused in words."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from protoslice.concurrency.shares import Shares
from protoslice.errors import ClientLimit, TooMany


def test_a_client_has_its_share_and_all_together_no_more_than_there_is() -> None:
    shares = Shares(3, 2, "dances")
    for _ in range(2):  # as often as one likes, since places are given back
        with ExitStack() as held:
            held.enter_context(shares.one("a"))
            held.enter_context(shares.one("a"))
            with pytest.raises(ClientLimit, match="Limit per client reached: 2 dances") as each:
                held.enter_context(shares.one("a"))
            held.enter_context(shares.one("b"))
            with pytest.raises(TooMany, match="Limit reached: 3 dances") as most:
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
