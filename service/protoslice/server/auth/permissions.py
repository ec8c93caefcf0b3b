"""The one decision who may do what: a pure function of principal, space, scope and tags."""

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

    def covers(self, need: Need) -> bool:
        """True when this grant suffices for `need`."""
        if not self.gives(need.scope):
            return False
        if not self.tags or need.scope is Scope.READ:
            return True
        # A store without a tag is created by anybody who may write; removing one takes a name for it.
        if not need.tags:
            return need.scope not in {Scope.DELETE, Scope.ADMIN}
        return all(any(pattern(limit)(tag) for limit in self.tags) for tag in need.tags)


@dataclass(frozen=True, slots=True)
class Principal:
    """Named caller, and its grants; `id` tells callers of one name apart."""

    id: str
    name: str
    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class Need:
    """Scope that a request needs, and all tags that it sets, moves or removes."""

    scope: Scope
    tags: tuple[str, ...] = ()


def decide(principal: Principal | None, space: str, need: Need) -> Decision:
    """Decide whether `principal`, None for an unnamed caller, may do in `space` what needs `need`.

    One grant has to suffice: scopes of one and tags of another do not add up.
    """
    if principal is None:
        return Decision.UNAUTHENTICATED
    here = _grants_in(principal, space)
    if not any(grant.scopes for grant in here):
        return Decision.INVISIBLE
    return Decision.ALLOWED if any(grant.covers(need) for grant in here) else Decision.FORBIDDEN


def lacking(principal: Principal, space: str, need: Need) -> str:
    """Words for a caller who is refused: the scope that it lacks, here or for these tags."""
    missing = f"the token lacks the scope {need.scope}"
    limits = sorted({tag for grant in _grants_in(principal, space) if grant.gives(need.scope) for tag in grant.tags})
    if limits:
        asked = f"the tags {', '.join(need.tags)}" if need.tags else "requests without a tag"
        return f"{missing} for {asked}: it is limited to the tags {' '.join(limits)}"
    return missing + (" in every space" if space == EVERY_SPACE else "")


def _grants_in(principal: Principal, space: str) -> Sequence[Grant]:
    return [grant for grant in principal.grants if grant.space in (space, EVERY_SPACE)]
