"""No caller learns or changes anything in a space that it has no scope in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.server.access.worlds.calls import CALLS
from tests.server.access.worlds.leaks import LEAKS
from tests.server.access.worlds.world import each_call, history, leaks, refusals_of_own
from tests.support.receiver import Receiver, running_receiver

from protoslice.server.access.rules import RULES
from protoslice.server.pages import built

LENGTH = 300


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with running_receiver() as receiver:
        yield receiver


def test_every_route_is_called() -> None:
    assert {call.route for call in CALLS} - {""} == set(RULES), "each route needs a line in worlds/calls.py"


def test_each_call_reaches_what_the_caller_has(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two refusals are equal too: a call proves something only if an owner of what it names gets more."""
    # The page is there also in a checkout without one that `make web` built.
    monkeypatch.setattr(built, "_first", lambda: {"script": "main.js", "style": "style.css"})
    assert refusals_of_own(receiver.url) == []


@pytest.mark.parametrize("seed", range(3))
def test_equal_calls_get_equal_answers_in_two_worlds(seed: int, receiver: Receiver) -> None:
    """Equal calls get equal answers beside full and empty spaces, which stay as they are."""
    assert leaks(history(seed, LENGTH), receiver.url) == []


@pytest.mark.parametrize("name", LEAKS)
@pytest.mark.long
def test_a_hole_in_the_wall_is_seen(name: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    LEAKS[name].plant(monkeypatch)
    assert [each for each in leaks(each_call(*LEAKS[name].routes), receiver.url) if "steps were" not in each]
