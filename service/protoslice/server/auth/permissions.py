"""Permissions: scopes, grants and principals, and the one decision who may do what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from protoslice.catalog.audit import EVERY_SPACE as EVERY_SPACE
from protoslice.tensors.listing import pattern


class Scope(StrEnum):
    """Permissions of a token."""

    READ = auto()
    WRITE = auto()
    DELETE = auto()
    REGISTER = auto()
    SCHEMAS = auto()
    ADMIN = auto()


class Decision(Enum):
    """Outcome of a decision; each but the first is an answer of its own."""

    ALLOWED = auto()
    UNAUTHENTICATED = auto()
    """No principal: 401."""
    INVISIBLE = auto()
    """No grant in the space, which nothing tells apart from a space that does not exist: 404."""
    FORBIDDEN = auto()
    """Grants in the space, none of which suffices: 403."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Scopes in one space; `tags` are patterns with `*`, and limit changes to tags that match one."""

    space: str
    scopes: frozenset[Scope]
    tags: tuple[str, ...] = ()

    def gives(self, scope: Scope) -> bool:
        """True when this grant has a scope, be it on some tags alone."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def covers(self, scope: Scope, tags: Sequence[str]) -> bool:
        """Return whether this grant suffices to do what needs `scope` and sets, moves or removes `tags`."""
        if not self.gives(scope):
            return False
        if not self.tags or scope is Scope.READ:
            return True
        # Whoever may write may create a store without a tag; removing one takes a name for it.
        if not tags:
            return scope not in {Scope.DELETE, Scope.ADMIN}
        return all(any(pattern(limit)(tag) for limit in self.tags) for tag in tags)


@dataclass(frozen=True, slots=True)
class Principal:
    """Named caller, and its grants; `id` tells callers of one name apart."""

    id: str
    name: str
    grants: tuple[Grant, ...]


def decide(principal: Principal | None, space: str, scope: Scope, tags: Sequence[str] = ()) -> Decision:
    """Decide whether `principal` may do in `space` what needs `scope`, and sets, moves or removes `tags`.

    One grant has to suffice: scopes of one and tags of another do not add up.
    """
    if principal is None:
        return Decision.UNAUTHENTICATED
    decision = Decision.INVISIBLE
    for grant in principal.grants:
        if grant.space in (space, EVERY_SPACE) and grant.scopes:
            if grant.covers(scope, tags):
                return Decision.ALLOWED
            decision = Decision.FORBIDDEN
    return decision


def lacking(principal: Principal, space: str, scope: Scope, tags: Sequence[str] = ()) -> str:
    """Return why `principal` is refused: the scope that it lacks in `space`, or for these tags."""
    missing = f"the token lacks the scope {scope}"
    giving = [grant for grant in principal.grants if grant.space in (space, EVERY_SPACE) and grant.gives(scope)]
    if limits := sorted({tag for grant in giving for tag in grant.tags}):
        asked = f"the tags {', '.join(tags)}" if tags else "requests without a tag"
        return f"{missing} for {asked}: it is limited to the tags {' '.join(limits)}"
    return missing + (" in every space" if space == EVERY_SPACE else "")
