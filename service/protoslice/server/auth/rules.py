"""Rules of routes: the scope that each needs, and where its request names tags.

Each route (`server/routing.py`) has a rule; none can be made without.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from protoslice.server.auth.permissions import Scope


class TagPlace(Enum):
    """Place where a request names the tags that it sets or removes."""

    NOWHERE = auto()
    PATH = auto()
    """The parameter `tag` of the route."""
    QUERY = auto()
    """The parameters `tag` of the query."""
    UPLOAD = auto()
    """The query, and the word `tag` of Upload-Metadata."""
    REPOSITORY = auto()
    """The parameter `name` of the route: a repository, whose name patterns match as they do tags."""
    BODY = auto()
    """The body: the handler calls `Services.require` for them."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Scope that a route needs; None lets everybody in, and opens no space."""

    scope: Scope | None
    tags: TagPlace = TagPlace.NOWHERE
    everywhere: bool = False
    """True for a route that concerns all spaces: a grant in one of them is not enough."""
    signed: bool = False
    """True for a route that signed URLs open: a closed list that a test checks."""
    reads: bool = False
    """True for a route whose answers depend on content that the request does not name whole: it needs `read` too."""

    def needs(self, tags: tuple[str, ...]) -> Iterator[tuple[Scope, tuple[str, ...]]]:
        """Yield the scopes that a request needs, with the tags that it needs each for; nothing for an open route."""
        if self.scope is not None:
            yield self.scope, tags
        if self.reads:
            yield Scope.READ, ()

    @property
    def is_plain_read(self) -> bool:
        """True for what readers see, and for open routes: pages of other sites may ask for it by GET."""
        return self.scope in {None, Scope.READ}

    def changes(self, method: str) -> bool:
        """True when a request of `method` may change something."""
        return not self.is_plain_read and method not in {"GET", "HEAD", "OPTIONS"}


OPEN: Final = Rule(None)
READ: Final = Rule(Scope.READ)
SHOWN: Final = Rule(Scope.READ, signed=True)
"""Of what a store shows."""
WRITE: Final = Rule(Scope.WRITE)
DELETE: Final = Rule(Scope.DELETE)
SCHEMAS: Final = Rule(Scope.SCHEMAS)
ADMIN: Final = Rule(Scope.ADMIN)
REPOSITORY_WRITE: Final = Rule(Scope.WRITE, TagPlace.REPOSITORY)
REPOSITORY_DELETE: Final = Rule(Scope.DELETE, TagPlace.REPOSITORY)
REPOSITORY_SEND: Final = Rule(Scope.WRITE, TagPlace.REPOSITORY, signed=True)
"""Uploads to URLs that the service signs: clients send no token to them."""
HUB_WRITE: Final = Rule(Scope.WRITE, TagPlace.REPOSITORY, reads=True)
"""Changes of repositories of the hub, whose protocol answers with what is there: commits, revisions and known files."""
OCI_WRITE: Final = HUB_WRITE
"""Uploads to repositories of OCI, whose answers and limits depend on the blobs that are there."""
HUB_SEND: Final = Rule(Scope.WRITE, TagPlace.REPOSITORY, signed=True, reads=True)
