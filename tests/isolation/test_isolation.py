"""No caller learns or changes anything in a space that it has no scope in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from tests.isolation.leaks import LEAKS
from tests.isolation.runs import Content, allowed, each_call, history, leaks, refusals_of_own, shown
from tests.support.calls import CALLS, RULES, Call
from tests.support.receiver import Receiver, running_receiver

from protoslice.server.auth.permissions import Scope
from protoslice.server.pages import html

LENGTH = 300
SCOPES: Final = (
    (Scope.WRITE, Scope.REGISTER, Scope.SCHEMAS),
    (Scope.DELETE,),
    (Scope.WRITE, Scope.DELETE),
)
"""Scopes of callers who may not read."""
CONTENTS: Final = (Content(), Content(name="secret-two"), Content(salt=" in another world"))
NAMED_WHOLE: Final = {
    "PUT /v1/tags/{tag}",
    "DELETE /v1/stores/{ref}",
    "DELETE /v2/{name:path}/manifests/{ref}",
    "DELETE /v2/{name:path}/blobs/{digest}",
}
"""Routes that act on content by its whole id or digest, and so tell those who know it whether it is there."""


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with running_receiver() as receiver:
        yield receiver


def test_every_route_is_called() -> None:
    called = {call.route for call in CALLS}
    missing = [row.replace("{ref}", "{store}") for row in RULES if row not in called]
    assert not missing, "\n".join(["add a line to tests/support/calls.py:", *missing])


def test_each_call_reaches_what_the_caller_has(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two refusals are equal too: a call proves something only if an owner of what it names gets more."""
    # The page is there also in a checkout without one that `make web` built.
    monkeypatch.setattr(html, "_first", lambda: {"script": "main.js", "style": "style.css", "parts": {}})
    wrong = refusals_of_own(receiver.url)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("seed", range(3))
def test_equal_calls_get_equal_answers_in_two_worlds(seed: int, receiver: Receiver) -> None:
    """Equal calls get equal answers beside full and empty spaces, which stay as they are."""
    assert leaks(history(seed, LENGTH), receiver.url) == []


@pytest.mark.parametrize("name", LEAKS)
@pytest.mark.long
def test_a_hole_in_the_wall_is_seen(name: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    LEAKS[name].plant(monkeypatch)
    assert [each for each in leaks(each_call(*LEAKS[name].routes), receiver.url) if "steps were" not in each]


@pytest.mark.long
def test_callers_without_read_learn_nothing_of_content(receiver: Receiver) -> None:
    """Calls of every route that changes something get equal answers with any content of the caller's own space."""
    changing = [call for call in CALLS if call.route and RULES[call.route].scope not in {None, Scope.READ, Scope.ADMIN}]
    answered: list[Call] = []
    shows: list[str] = []
    for scopes in SCOPES:
        for call in allowed([each for each in changing if each not in answered], scopes, receiver.url):
            answered.append(call)
            contents = CONTENTS[:2] if call.route in NAMED_WHOLE else CONTENTS
            shows += shown(call, scopes, receiver.url, contents)
    assert not shows, "\n".join(shows)
    refused = {call.route for call in changing} - {call.route for call in answered}
    assert refused == {route for route, rule in RULES.items() if rule.reads}
