"""The decision, compared with a table of cases, and with the rules that hold for every case."""

from __future__ import annotations

from itertools import product

import pytest

from protoslice.server.auth.permissions import EVERY_SPACE, Decision, Grant, Principal, Scope, decide, lacking

OWN, OTHER = "team", "rivals"


def robot(*scopes: Scope, tags: tuple[str, ...] = (), space: str = OWN) -> Principal:
    return Principal("1", "robot", (Grant(space, frozenset(scopes), tags),))


@pytest.mark.parametrize("scope", Scope)
def test_a_caller_without_a_name_is_asked_for_one(scope: Scope) -> None:
    assert decide(None, OWN, scope) is Decision.UNAUTHENTICATED


@pytest.mark.parametrize(("held", "needed"), list(product(Scope, Scope)))
def test_a_scope_gives_itself_and_admin_gives_all(held: Scope, needed: Scope) -> None:
    expected = Decision.ALLOWED if held in (needed, Scope.ADMIN) else Decision.FORBIDDEN
    assert decide(robot(held), OWN, needed) is expected
    assert decide(robot(held, space=EVERY_SPACE), OWN, needed) is expected
    assert decide(robot(held), OTHER, needed) is Decision.INVISIBLE, "as if there were no such space"


def test_a_grant_of_nothing_shows_nothing() -> None:
    assert decide(robot(), OWN, Scope.READ) is Decision.INVISIBLE


@pytest.mark.parametrize(
    ("scope", "tags", "expected"),
    [
        (Scope.READ, ("prod",), Decision.ALLOWED),
        (Scope.WRITE, ("ci-1",), Decision.ALLOWED),
        (Scope.WRITE, ("ci-1", "resnet50:4"), Decision.ALLOWED),
        (Scope.WRITE, (), Decision.ALLOWED),
        (Scope.WRITE, ("prod",), Decision.FORBIDDEN),
        (Scope.WRITE, ("ci-1", "prod"), Decision.FORBIDDEN),
        (Scope.WRITE, ("xci-1",), Decision.FORBIDDEN),
        (Scope.DELETE, ("ci-1",), Decision.ALLOWED),
        (Scope.DELETE, ("ci-1", "prod"), Decision.FORBIDDEN),
        (Scope.DELETE, (), Decision.FORBIDDEN),
    ],
)
def test_patterns_limit_changes(scope: Scope, tags: tuple[str, ...], expected: Decision) -> None:
    limited = robot(Scope.READ, Scope.WRITE, Scope.DELETE, tags=("ci-*", "resnet50:*"))
    assert decide(limited, OWN, scope, tags) is expected


def test_grants_do_not_add_up() -> None:
    both = Principal("2", "both", (*robot(Scope.WRITE, tags=("ci-*",)).grants, *robot(Scope.DELETE).grants))
    assert decide(both, OWN, Scope.WRITE, ("prod",)) is Decision.FORBIDDEN
    assert decide(both, OWN, Scope.DELETE, ("prod",)) is Decision.ALLOWED


@pytest.mark.parametrize(
    ("space", "scope", "tags", "words"),
    [
        (OWN, Scope.DELETE, ("ci-1",), "the token lacks the scope delete"),
        (EVERY_SPACE, Scope.ADMIN, (), "the token lacks the scope admin in every space"),
        (
            OWN,
            Scope.WRITE,
            ("ci-1", "prod"),
            "the token lacks the scope write for the tags ci-1, prod: it is limited to the tags ci-*",
        ),
        (
            OWN,
            Scope.SCHEMAS,
            (),
            "the token lacks the scope schemas for requests without a tag: it is limited to the tags ci-*",
        ),
    ],
)
def test_a_refusal_tells_what_is_missing(space: str, scope: Scope, tags: tuple[str, ...], words: str) -> None:
    assert lacking(robot(Scope.WRITE, Scope.SCHEMAS, tags=("ci-*",)), space, scope, tags) == words
