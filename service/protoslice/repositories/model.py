"""Model of repositories and their records."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol

from protoslice.errors import IntegrityError
from protoslice.stores.clock import now

MAIN: Final = "main"
"""Branch that every repository has."""
HEAD: Final = "HEAD"
"""Name of the branch `main` in git, unless a branch or tag is called so."""
COMMIT_DIGITS: Final = 40
_NO_FILES: Final = hashlib.sha256(b"").hexdigest()
_LAST: Final = (1 << 64) - 1
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
    """Number of commits before this one, along its parents."""
    place: str | None = None
    """Name of the commit's record; None for the beginning of a repository, which has no record."""
    parent: str | None = None
    """Place of the commit before; None for the first."""
    author: Author = Author()
    time: datetime = datetime(1970, 1, 1, tzinfo=UTC)

    @property
    def id(self) -> str:
        """Id of the commit: the first 40 hex digits of its store's id. Equal files have equal ids."""
        return (self.store or _NO_FILES)[:COMMIT_DIGITS]

    def next(self, store: str | None, author: Author) -> Commit:
        """A commit that follows this one, at a place of its own."""
        number = self.number + 1
        return Commit(
            store=store,
            number=number,
            place=f"{_LAST - number:016x}-{secrets.token_hex(8)}",
            parent=self.place,
            author=author.bounded(),
            time=now(),
        )

    def encode(self) -> bytes:
        """Serialize the commit to JSON."""
        raw: dict[str, Any] = {name: getattr(self, name) for name in ("store", "number", "place", "parent")}
        told = [self.author.title, self.author.message, self.author.user]
        return json.dumps(raw | {"author": told, "time": self.time.isoformat()}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Commit:
        """Parse the output of `encode`; `IntegrityError` for anything else."""
        try:
            raw = json.loads(data)
            raw["author"] = Author(*raw["author"])
            raw["time"] = datetime.fromisoformat(raw["time"])
            return cls(**raw)
        except (ValueError, TypeError, KeyError) as error:
            raise IntegrityError("the record of a commit does not parse") from error


@dataclass(frozen=True, slots=True)
class Ref:
    """Branch or tag and the commit that it points at."""

    kind: Kind
    name: str
    commit: Commit
    etag: str | None = None
    """Entity tag of the record; None for `main` while it has no commit."""

    @property
    def key(self) -> str:
        """Name of the record: `heads/main`."""
        return f"{self.kind}/{self.name}"

    def encode(self, repository: str) -> bytes:
        """Serialize the ref to JSON that no other call writes; webhooks read the name of the repository there."""
        raw = {"repository": repository, "commit": self.commit.encode().decode(), "token": secrets.token_hex(8)}
        return json.dumps(raw).encode()

    @classmethod
    def decode(cls, key: str, data: bytes, etag: str) -> Ref:
        """Parse the output of `encode`; `IntegrityError` for anything else."""
        kind, _, name = key.partition("/")
        try:
            commit = Commit.decode(json.loads(data)["commit"].encode())
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise IntegrityError(f"the record of the ref {key!r} does not parse") from error
        return cls("tags" if kind == "tags" else "heads", name, commit, etag)

    def moved(self, commit: Commit) -> Ref:
        """A copy that points at `commit`."""
        return replace(self, commit=commit)


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
