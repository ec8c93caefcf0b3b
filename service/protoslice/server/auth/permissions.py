"""Permissions: the grants of callers, the rules of routes, and the decision that compares grants with rules.

A grant gives a principal scopes in one space. A grant may be limited to tags. A rule says what a route needs.
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
    """The permissions of a token."""

    READ = auto()
    WRITE = auto()
    DELETE = auto()
    REGISTER = auto()
    SCHEMAS = auto()
    ADMIN = auto()


class Decision(Enum):
    """The outcome of a decision. Each outcome except the first has its own response."""

    ALLOWED = auto()
    UNAUTHENTICATED = auto()
    """The request has no principal; the answer is 401."""
    INVISIBLE = auto()
    """The principal has no grant in the space; the answer is 404, as for a space that does not exist."""
    FORBIDDEN = auto()
    """The principal has grants in the space, but none suffices; the answer is 403."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Scopes in one space.

    If `tags` lists patterns (which may have `*`), the grant only allows changes of matching tags.
    """

    space: str
    scopes: frozenset[Scope]
    tags: tuple[str, ...] = ()

    def gives(self, scope: Scope) -> bool:
        """Return True if this grant has a scope, even if only for some tags."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def covers(self, scope: Scope, tags: Sequence[str]) -> bool:
        """Return True if this grant has `scope` and may set, move or remove `tags`."""
        if not self.gives(scope):
            return False
        if not self.tags or scope is Scope.READ:
            return True
        # A grant that is limited to tags may create a store without a tag. To remove something, it needs a tag that
        # matches.
        if not tags:
            return scope not in {Scope.DELETE, Scope.ADMIN}
        return all(any(pattern(limit)(tag) for limit in self.tags) for tag in tags)


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller with a name, and its grants. `id` distinguishes callers with equal names."""

    id: str
    name: str
    grants: tuple[Grant, ...]


def decide(principal: Principal | None, space: str, scope: Scope, tags: Sequence[str] = ()) -> Decision:
    """Decide whether `principal` has `scope` in `space`, and may set, move or remove `tags`.

    One grant has to suffice. Scopes of one grant are not combined with tags of another grant.
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
    """Explain why `principal` is refused: name the scope that it lacks in `space` or for these tags."""
    missing = f"the token lacks the scope {scope}"
    giving = [grant for grant in principal.grants if grant.space in (space, EVERY_SPACE) and grant.gives(scope)]
    if limits := sorted({tag for grant in giving for tag in grant.tags}):
        asked = f"the tags {', '.join(tags)}" if tags else "requests that name no tag"
        return f"{missing} for {asked}: it is limited to the tags {' '.join(limits)}"
    return missing + (" in every space" if space == EVERY_SPACE else "")


TagReader: TypeAlias = Callable[[AsgiScope, HeaderMap, Mapping[str, Any]], tuple[str, ...]]
"""A function that returns the tags in a request. It takes the request's scope, headers and path parameters."""


def no_tags(scope: AsgiScope, fields: HeaderMap, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return no tags, for requests that name none."""
    return ()


def from_path(scope: AsgiScope, fields: HeaderMap, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the path parameter `tag`."""
    return (parameters["tag"],)


def from_repository(scope: AsgiScope, fields: HeaderMap, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the repository's name in the path. Patterns limit repositories as they limit tags."""
    return (unquote(parameters["name"]),)  # routes of repositories match undecoded paths


def from_query(scope: AsgiScope, fields: HeaderMap, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the query parameters `tag`."""
    return values_of(scope["query_string"], "tag")


def from_upload(scope: AsgiScope, fields: HeaderMap, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the query parameters `tag`, and the tags in the header Upload-Metadata."""
    metadata = upload_metadata(fields.get(b"upload-metadata", ""))
    return (*from_query(scope, fields, parameters), *metadata.get("tag", "").split())


def from_body(scope: AsgiScope, fields: HeaderMap, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return no tags. The handler calls `AuthContext.require` later, with the tags in the body."""
    return ()


@dataclass(frozen=True, slots=True)
class Rule:
    """The permissions that a route needs. Without a scope, the route is open to everyone, and no space is opened."""

    scope: Scope | None
    tags: TagReader = no_tags
    """The function that reads the tags that a request sets or removes."""
    everywhere: bool = False
    """True if the route concerns all spaces, so that a grant in one space is not enough."""
    signed: bool = False
    """True if the route accepts signed URLs. A test lists all these routes."""
    reads: bool = False
    """True if the route also needs `read`.

    The answers of such a route depend on content that the request does not fully name.
    """

    def needs(self, tags: tuple[str, ...]) -> Iterator[tuple[Scope, tuple[str, ...]]]:
        """Yield the scopes that a request needs, each with its tags. Yield nothing for an open route."""
        if self.scope is not None:
            yield self.scope, tags
        if self.reads:
            yield Scope.READ, ()

    @property
    def is_plain_read(self) -> bool:
        """True for plain reads and open routes. Pages of other sites may send GET requests to these routes."""
        return self.scope in {None, Scope.READ}

    def changes(self, method: str) -> bool:
        """Return True if a request with this method may change something."""
        return not self.is_plain_read and method not in {"GET", "HEAD", "OPTIONS"}


OPEN: Final = Rule(None)
READ: Final = Rule(Scope.READ)
READ_SIGNED: Final = Rule(Scope.READ, signed=True)
"""The rule for reading the contents of a store."""
WRITE: Final = Rule(Scope.WRITE)
DELETE: Final = Rule(Scope.DELETE)
SCHEMAS: Final = Rule(Scope.SCHEMAS)
ADMIN: Final = Rule(Scope.ADMIN)
REPOSITORY_WRITE: Final = Rule(Scope.WRITE, tags=from_repository)
REPOSITORY_DELETE: Final = Rule(Scope.DELETE, tags=from_repository)
REPOSITORY_UPLOAD: Final = Rule(Scope.WRITE, tags=from_repository, signed=True)
"""The rule for uploads to URLs that the service signs. Clients send no token to these URLs."""
HUB_WRITE: Final = Rule(Scope.WRITE, tags=from_repository, reads=True)
"""The rule for changes of hub repositories. The answers show existing commits, revisions and known files."""
OCI_WRITE: Final = HUB_WRITE
"""The rule for uploads to OCI repositories. The answers and limits depend on the blobs that already exist."""
HUB_UPLOAD: Final = Rule(Scope.WRITE, tags=from_repository, signed=True, reads=True)
