"""Permissions: what callers may do, what routes require, and the decision that compares both.

A grant gives a principal scopes in a space, which may be limited to tags. A rule says what a route needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from starlette.types import Scope as AsgiScope

from protoslice.catalog.audit import EVERY_SPACE as EVERY_SPACE
from protoslice.server.http.headers import HeaderMap, upload_metadata
from protoslice.server.http.query import values_of
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
    """Outcome of a decision; each outcome, except the first, has a response."""

    ALLOWED = auto()
    UNAUTHENTICATED = auto()
    """No principal: 401."""
    INVISIBLE = auto()
    """No grant in the space, with the same answer as for a space that does not exist: 404."""
    FORBIDDEN = auto()
    """Grants in the space, none of which suffices: 403."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Scopes in one space; `tags` are patterns with `*`, and limit changes to tags that match a pattern."""

    space: str
    scopes: frozenset[Scope]
    tags: tuple[str, ...] = ()

    def gives(self, scope: Scope) -> bool:
        """Return True when this grant has a scope, even if only for some tags."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def covers(self, scope: Scope, tags: Sequence[str]) -> bool:
        """Return True if this grant has `scope` and may set, move or remove `tags`."""
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
    """Named caller, and its grants; `id` distinguishes callers with equal names."""

    id: str
    name: str
    grants: tuple[Grant, ...]


def decide(principal: Principal | None, space: str, scope: Scope, tags: Sequence[str] = ()) -> Decision:
    """Decide whether `principal` has `scope` in `space`, and may set, move or remove `tags`.

    One grant has to suffice: scopes of one grant are not combined with tags of another.
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


TagReader: TypeAlias = Callable[[AsgiScope, HeaderMap, Mapping[str, Any]], tuple[str, ...]]
"""Function from scope, headers and path parameters of a request to the tags that it names."""


def no_tags(scope: AsgiScope, fields: HeaderMap, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return no tags, for requests that name none."""
    return ()


def from_path(scope: AsgiScope, fields: HeaderMap, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parameter `tag` of the path."""
    return (parameters["tag"],)


def from_repository(scope: AsgiScope, fields: HeaderMap, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the name of a repository in the path: patterns limit repositories as they limit tags."""
    return (unquote(parameters["name"]),)  # routes of repositories match paths as they were spelled


def from_query(scope: AsgiScope, fields: HeaderMap, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parameters `tag` of the query."""
    return values_of(scope["query_string"], "tag")


def from_upload(scope: AsgiScope, fields: HeaderMap, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parameters `tag` of the query, and the word `tag` of Upload-Metadata."""
    metadata = upload_metadata(fields.get(b"upload-metadata", ""))
    return (*from_query(scope, fields, parameters), *metadata.get("tag", "").split())


def from_body(scope: AsgiScope, fields: HeaderMap, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return no tags yet: the handler calls `AuthContext.require` with the tags that the body names."""
    return ()


@dataclass(frozen=True, slots=True)
class Rule:
    """Permissions that a route needs. Without a scope, the route is open to everyone, and no space is opened."""

    scope: Scope | None
    tags: TagReader = no_tags
    """Reads the tags that a request sets or removes."""
    everywhere: bool = False
    """True for a route that concerns all spaces: a grant in one of them is not enough."""
    signed: bool = False
    """True for a route that signed URLs open: a closed list that a test checks."""
    reads: bool = False
    """True for a route whose answers depend on content that the request does not name whole: it needs `read` too."""

    def needs(self, tags: tuple[str, ...]) -> Iterator[tuple[Scope, tuple[str, ...]]]:
        """Yield the scopes that a request needs, each with its tags; nothing for an open route."""
        if self.scope is not None:
            yield self.scope, tags
        if self.reads:
            yield Scope.READ, ()

    @property
    def is_plain_read(self) -> bool:
        """True for plain reads and open routes, which pages of other sites may GET."""
        return self.scope in {None, Scope.READ}

    def changes(self, method: str) -> bool:
        """Return True when a request of `method` may change something."""
        return not self.is_plain_read and method not in {"GET", "HEAD", "OPTIONS"}


OPEN: Final = Rule(None)
READ: Final = Rule(Scope.READ)
READ_SIGNED: Final = Rule(Scope.READ, signed=True)
"""Of what a store shows."""
WRITE: Final = Rule(Scope.WRITE)
DELETE: Final = Rule(Scope.DELETE)
SCHEMAS: Final = Rule(Scope.SCHEMAS)
ADMIN: Final = Rule(Scope.ADMIN)
REPOSITORY_WRITE: Final = Rule(Scope.WRITE, tags=from_repository)
REPOSITORY_DELETE: Final = Rule(Scope.DELETE, tags=from_repository)
REPOSITORY_UPLOAD: Final = Rule(Scope.WRITE, tags=from_repository, signed=True)
"""Uploads to URLs that the service signs: clients send no token to them."""
HUB_WRITE: Final = Rule(Scope.WRITE, tags=from_repository, reads=True)
"""Changes of repositories of the hub, whose answers show existing commits, revisions and known files."""
OCI_WRITE: Final = HUB_WRITE
"""Uploads to repositories of OCI, whose answers and limits depend on the blobs that are there."""
HUB_UPLOAD: Final = Rule(Scope.WRITE, tags=from_repository, signed=True, reads=True)
