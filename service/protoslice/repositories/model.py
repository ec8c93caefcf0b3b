"""Model of repositories."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Literal, Protocol

from protoslice.catalog.repositories import NO_FILES
from protoslice.stores.clock import now

MAIN: Final = "main"
"""Branch that every repository has."""
HEAD: Final = "HEAD"
"""Name of the branch `main` in git, unless a branch or tag is called so."""
COMMIT_DIGITS: Final = 40
_LONGEST_TITLE: Final = 1000
_LONGEST_MESSAGE: Final = 64 << 10

Kind = Literal["heads", "tags"]


@dataclass(frozen=True, slots=True)
class Author:
    """Description of a change by its author."""

    title: str = ""
    message: str = ""
    user: str = ""

    def bounded(self) -> Author:
        """A copy with texts that fit into a record."""
        return Author(self.title[:_LONGEST_TITLE], self.message[:_LONGEST_MESSAGE], self.user[:_LONGEST_TITLE])


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One state of a repository's files: a store, and its place in the history."""

    store: str | None = None
    """Id of the store that holds the files; None for a commit without files."""
    number: int = 0
    """Number of commits up to this one, along its parents; 0 for the beginning, which is no commit."""
    place: str | None = None
    """Id of the commit's row; None for the beginning of a repository, which has none."""
    parent: str | None = None
    """Place of the commit before; None for the first."""
    author: Author = Author()
    time: datetime = datetime(1970, 1, 1, tzinfo=UTC)

    @property
    def id(self) -> str:
        """Id of the commit: the first 40 hex digits of its store's id. Equal files have equal ids."""
        return (self.store or NO_FILES)[:COMMIT_DIGITS]

    def next(self, store: str | None, author: Author) -> Commit:
        """A commit that follows this one, at a place of its own."""
        commit = Commit(store=store, number=self.number + 1, parent=self.place, author=author.bounded(), time=now())
        return commit.placed()

    def placed(self) -> Commit:
        """A copy at a new place."""
        return replace(self, place=secrets.token_hex(12))


@dataclass(frozen=True, slots=True)
class Ref:
    """Branch or tag and the commit that it points at."""

    kind: Kind
    name: str
    commit: Commit
    version: bytes | None = None
    """Random, and another after each change; None for `main` while it has no commit."""

    @property
    def key(self) -> str:
        """Kind and name: `heads/main`."""
        return f"{self.kind}/{self.name}"


class PushedTags(Protocol):
    """Tags that another protocol gave a repository of the same name; their commits have no history."""

    async def find(self, revision: str) -> Commit | None:
        """The commit of a tag, of `main`, or of the 40 digits of an id; None when there is none."""
        ...

    def refs(self) -> AsyncIterator[Ref]:
        """All tags by name, and `main` last, if there is one."""
        ...

    async def exist(self) -> bool:
        """True when there is a tag."""
        ...
