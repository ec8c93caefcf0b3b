"""The histories of repositories: branches and tags that point at commits, and the parents of these commits.

A writer that moves a branch names the version of the branch that it has read. The move and the insertion of the
commit are one transaction, so that only one of several concurrent writers succeeds.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from protoslice.catalog.labels import HUB, label
from protoslice.catalog.live_stores import lock_repository, require_store
from protoslice.catalog.spaces import Usage
from protoslice.catalog.webhooks import emit
from protoslice.database.transactions import (
    LAST,
    SECOND,
    ConcurrentChange,
    Database,
    Row,
    Transaction,
    time_of,
)
from protoslice.errors import Changed, Conflict, InvalidInput, NotFound

MAIN: Final = "main"
"""Name of the branch that every repository has."""
HEAD: Final = "HEAD"
"""Name by which git refers to the branch `main`, unless a branch or tag has the same name."""
COMMIT_DIGITS: Final = 40
_NO_FILES: Final = hashlib.sha256(b"").hexdigest()
"""SHA-256 digest of zero bytes; its first 40 digits are the id of a commit without files."""
_LONGEST_TITLE: Final = 1000
_LONGEST_MESSAGE: Final = 64 << 10
_PAGE: Final = 250
_COMMIT: Final = "c.id, c.store, c.parent, c.number, c.title, c.message, c.author, c.at"
_REFS: Final = f"""
    SELECT n.kind, n.name, n.version, {_COMMIT} FROM names n LEFT JOIN commits c
    ON c.space = n.space AND c.repository = n.repository AND c.id = n.commit_id
    WHERE n.space = :space AND n.repository = :repository"""
_ONE: Final = "space = :space AND repository = :repository AND kind = :kind AND name = :name"
_DUE: Final = "UPDATE commits SET due = 1 WHERE space = :space AND repository = :repository AND id = :id"

Kind = Literal["heads", "tags"]


class NoRepository(NotFound):
    """The error for a name that no repository has."""

    def __init__(self, name: str) -> None:
        super().__init__(f"No repository {name!r}")


class NoCommit(NotFound):
    """The error for a name that is no branch, tag or commit of the repository."""

    def __init__(self, revision: str) -> None:
        super().__init__(f"The repository has no branch, tag or commit {revision!r}")


class RefExists(Conflict):
    """The error for a new branch or tag whose name is already in use."""

    def __init__(self, name: str) -> None:
        super().__init__(f"The repository already has a branch or tag {name!r}")


class BranchMoved(ConcurrentChange, Changed):
    """The error for a change of a branch that another request moved in the meantime."""

    def __init__(self, branch: str) -> None:
        super().__init__(f"The branch {branch!r} was changed by another request: read it again")


@dataclass(frozen=True, slots=True)
class Author:
    """The title, message and user name that the author of a change provides."""

    title: str = ""
    message: str = ""
    user: str = ""

    def bounded(self) -> Author:
        """Return a copy whose texts are short enough for a row of the database."""
        return Author(self.title[:_LONGEST_TITLE], self.message[:_LONGEST_MESSAGE], self.user[:_LONGEST_TITLE])


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit: a store with the files of a repository at one time, and its place in the history."""

    store: str | None = None
    """Id of the store that holds the files, or None for a commit without files."""
    number: int = 0
    """Number of commits from the first one to this one; 0 for an empty history, which has no commit yet."""
    place: str | None = None
    """Id of the commit's row, or None for the beginning of a repository, which has no row."""
    parent: str | None = None
    """Place of the previous commit, or None for the first commit."""
    author: Author = Author()
    time: datetime = datetime(1970, 1, 1, tzinfo=UTC)

    @property
    def id(self) -> str:
        """Id of the commit: the first 40 hex digits of its store's id. Equal files have equal ids."""
        return (self.store or _NO_FILES)[:COMMIT_DIGITS]

    def next(self, store: str | None, author: Author) -> Commit:
        """Return a commit that follows this one, at a new place."""
        now, number = datetime.now(UTC), self.number + 1
        return Commit(store=store, number=number, parent=self.place, author=author.bounded(), time=now).placed()

    def placed(self) -> Commit:
        """Return a copy at a new random place."""
        return replace(self, place=secrets.token_hex(12))


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or tag, and the commit that it points at."""

    kind: Kind
    name: str
    commit: Commit
    version: bytes | None = None
    """Random value that each change replaces; None for `main` while it has no commit."""

    @property
    def key(self) -> str:
        """The kind and name, such as `heads/main`."""
        return f"{self.kind}/{self.name}"


class History:
    """The branches, tags and commits of one repository."""

    def __init__(self, database: Database, usage: Usage, id: int, name: str) -> None:
        """Use the repository with this `id`; events and errors show its `name`."""
        self.name = name
        self._database = database
        self._usage = usage
        self._key: Mapping[str, Any] = {"space": usage.space, "repository": id}

    async def ref(self, kind: Kind, name: str) -> Ref:
        """Return a branch or tag; raise `NoCommit` if it does not exist, except for `main`, which always exists."""
        found = await self._database.read(lambda tx: _find_ref(tx, {**self._key, "kind": kind, "name": name}))
        if found is not None:
            return found
        if (kind, name) == ("heads", MAIN):
            return Ref("heads", MAIN, Commit())
        raise NoCommit(name)

    async def refs(self) -> AsyncIterator[Ref]:
        """Yield all branches and tags, sorted by kind and name; leave out `main` if it has no commits."""
        cursor: str | None = "/"
        while cursor is not None:
            found, cursor = await self.page(_PAGE, cursor)
            for ref in found:
                yield ref

    async def page(self, limit: int, cursor: str | None) -> tuple[list[Ref], str | None]:
        """Return a page of branches and tags, sorted by kind and name, and the next cursor or None."""
        kind, slash, name = (cursor or "/").partition("/")
        if not slash:
            raise InvalidInput("the cursor is not one that this service returned")
        found = await self._database.read(lambda tx: refs_of(tx, self._key, limit + 1, (kind, name)))
        return found[:limit], found[limit - 1].key if len(found) > limit else None

    async def create(self, ref: Ref) -> Ref:
        """Create a branch or tag and return it; raise `RefExists` if its name is already in use."""
        commit = ref.commit
        # A store without a commit in this history, such as one from another protocol, gets a new commit here.
        new = commit.place is None and commit.store is not None
        commit = Commit(store=commit.store, time=commit.time).placed() if new else commit
        return await self._move(replace(ref, version=None), commit, RefExists(ref.name), new=new)

    async def move(self, ref: Ref, commit: Commit) -> Ref:
        """Point `ref` at a new commit and return the new ref; raise `BranchMoved` if `ref` has changed since."""
        return await self._move(ref, commit, BranchMoved(ref.name), new=True)

    async def remove(self, kind: Kind, name: str) -> None:
        """Remove a branch or tag; raise `NoCommit` if it does not exist."""
        one = {**self._key, "kind": kind, "name": name}

        def work(tx: Transaction) -> None:
            found = _find_ref(tx, one)
            row = tx.first(f"DELETE FROM names WHERE {_ONE} RETURNING commit_id", **one)
            if found is None or row is None:
                raise NoCommit(name)
            tx.run(_DUE, **self._key, id=row[0])
            emit_refs(tx, self._usage.space, self.name, "ref.removed", [found])
            self._usage.add(tx, entries=-1)

        await self._database.write(work)

    async def by_id(self, commit: str) -> Commit:
        """Return the newest commit with an id; raise `NoCommit` if no commit has the id."""
        sql = f"""
            SELECT {_COMMIT} FROM commits c
            WHERE c.space = :space AND c.repository = :repository AND c.digits = :digits
            ORDER BY c.at DESC, c.number DESC LIMIT 1"""
        row = await self._database.read(lambda tx: tx.first(sql, **self._key, digits=commit))
        if row is not None:
            return _commit(row)
        if commit == Commit().id:
            return Commit()
        raise NoCommit(commit)

    async def ids(self, digits: str, limit: int) -> list[str]:
        """Return at most `limit` commit ids that begin with `digits`."""
        sql = """
            SELECT DISTINCT digits FROM commits
            WHERE space = :space AND repository = :repository AND digits >= :digits AND digits < :end
            ORDER BY digits LIMIT :limit"""
        values = {**self._key, "digits": digits, "end": digits + LAST, "limit": limit}
        return await self._database.read(lambda tx: [str(row[0]) for row in tx.all(sql, **values)])

    async def at(self, place: str) -> Commit | None:
        """Return the commit at a place in the history, or None if no commit is there."""
        found, _ = await self.ancestors(place, 1)
        return found[0] if found else None

    async def ancestors(self, place: str, limit: int) -> tuple[list[Commit], str | None]:
        """Return a page of commits, the commit at `place` and then its ancestors, and the next page's place or None."""
        sql = f"""
            WITH RECURSIVE line (id, depth) AS (
                SELECT c.id, 1 FROM commits c
                WHERE c.space = :space AND c.repository = :repository AND c.id = :id
                UNION ALL
                SELECT c.parent, depth + 1 FROM line JOIN commits c
                ON c.space = :space AND c.repository = :repository AND c.id = line.id
                WHERE depth < :limit AND c.parent IS NOT NULL
            )
            SELECT {_COMMIT} FROM line JOIN commits c
            ON c.space = :space AND c.repository = :repository AND c.id = line.id ORDER BY depth"""
        values = {**self._key, "id": place, "limit": limit}
        found = await self._database.read(lambda tx: [_commit(row) for row in tx.all(sql, **values)])
        return found, found[-1].parent if found else None

    async def _move(self, ref: Ref, commit: Commit, conflict: Conflict, *, new: bool) -> Ref:
        """Point a ref at a commit, and return the new ref; create the ref if it has no version.

        If `new` is True, insert the commit first. Raise `conflict` if the ref now has another version, and
        `NoRepository` if the repository was removed.
        """
        space = self._usage.space
        moved = replace(ref, commit=commit, version=secrets.token_bytes(16))

        def work(tx: Transaction) -> Ref:
            if not lock_repository(tx, space, self._key["repository"]):
                raise NoRepository(self.name)
            if new:
                require_store(tx, space, commit.store)
                self._insert(tx, commit)
            values = {
                **self._key, "kind": ref.kind, "name": ref.name, "store": commit.store, "commit": commit.place,
                "version": moved.version, "now": tx.now,
            }  # fmt: skip
            if ref.version is None:
                changed = tx.run(
                    """
                    INSERT INTO names (space, repository, kind, name, store, commit_id, version, updated, label)
                    VALUES (:space, :repository, :kind, :name, :store, :commit, :version, :now, :label)
                    ON CONFLICT (space, repository, kind, name) DO NOTHING""",
                    **values,
                    label=label(space, HUB, self.name, ref.name),
                )
            else:
                if commit.parent is None:  # the commit does not keep the branch's previous commit reachable
                    named = f"SELECT commit_id FROM names WHERE {_ONE} AND version = :seen"
                    due = _DUE.replace(":id", f"({named})")
                    tx.run(due, **self._key, kind=ref.kind, name=ref.name, seen=ref.version)
                changed = tx.run(
                    f"""
                    UPDATE names SET store = :store, commit_id = :commit, version = :version, updated = :now
                    WHERE {_ONE} AND version = :seen""",
                    **values,
                    seen=ref.version,
                )
            if changed == 0:
                raise conflict
            emit_refs(tx, space, self.name, "ref.set", [moved])
            self._usage.add(tx, entries=int(new) + int(ref.version is None))
            return moved

        return await self._database.write(work)

    def _insert(self, tx: Transaction, commit: Commit) -> None:
        author = commit.author
        tx.run(
            """
            INSERT INTO commits (space, repository, id, digits, store, parent, number, title, message, author, at)
            VALUES (:space, :repository, :place, :id, :store, :parent, :number, :title, :message, :user, :at)""",
            **self._key, place=commit.place, id=commit.id, store=commit.store, parent=commit.parent,
            number=commit.number, title=author.title, message=author.message, user=author.user,
            at=round(commit.time.timestamp() * SECOND),
        )  # fmt: skip


def empty_commits(tx: Transaction, space: str, store: str, limit: int) -> int:
    """Remove a store's files from at most `limit` commits, or, when no commits are left, from branches and tags.

    Return the number of changed rows. Titles, messages and the order of commits stay unchanged.
    """
    key = {"space": space, "store": store, "limit": limit}
    these = "SELECT {} FROM {} WHERE space = :space AND store = :store LIMIT :limit"
    picked = these.format("repository, id", "commits")
    done = tx.run(
        f"UPDATE commits SET store = NULL, digits = :none WHERE space = :space AND (repository, id) IN ({picked})",
        **key,
        none=Commit().id,
    )
    if done:
        return done
    repositories = (
        f"SELECT r.name FROM repositories r WHERE r.space = n.space AND r.id = n.repository AND r.protocol = '{HUB}'"
    )
    names = tx.all(
        f"""
        SELECT n.repository, ({repositories}), n.kind, n.name FROM names n
        WHERE n.space = :space AND n.store = :store AND EXISTS ({repositories}) LIMIT :limit""",
        **key,
    )
    for id, repository, kind, name in names:
        one = {"space": space, "repository": id, "kind": kind, "name": name}
        sql = f"UPDATE names SET store = NULL, version = :version, updated = :now WHERE {_ONE}"
        tx.run(sql, **one, version=secrets.token_bytes(16), now=tx.now)
        emptied = _find_ref(tx, one)
        emit_refs(tx, space, repository, "ref.set", [] if emptied is None else [emptied])
    return len(names)


def thin_refs(tx: Transaction, key: Mapping[str, Any], most: int) -> list[Ref]:
    """If there are more than `most` branches and tags, delete and return the first `most`; their commits become due."""
    found = refs_of(tx, key, most + 1)
    if len(found) <= most:
        return []
    gone = [
        ref for ref in found[:most] if tx.run(f"DELETE FROM names WHERE {_ONE}", **key, kind=ref.kind, name=ref.name)
    ]
    tx.many(_DUE, [{**key, "id": ref.commit.place} for ref in gone if ref.commit.place is not None])
    return gone


def refs_of(tx: Transaction, key: Mapping[str, Any], limit: int, after: tuple[str, str] = ("", "")) -> list[Ref]:
    """Return at most `limit` branches and tags that follow the kind and name `after`, sorted by kind and name."""
    sql = f"{_REFS} AND (n.kind, n.name) > (:kind, :name) ORDER BY n.kind, n.name LIMIT :limit"
    return [_ref(row) for row in tx.all(sql, **key, kind=after[0], name=after[1], limit=limit)]


def emit_refs(tx: Transaction, space: str, repository: str, event: str, refs: Sequence[Ref]) -> None:
    """Write an event for each of `refs`."""
    for ref in refs:
        commit, author = ref.commit, ref.commit.author
        data = {
            "repository": repository,
            "ref": f"refs/{ref.key}",
            "commit": None if commit.place is None else commit.id,
            "store": commit.store,
            "title": author.title,
            "user": author.user,
        }
        emit(tx, space, event, f"{repository}@{ref.name}", data)


def _find_ref(tx: Transaction, one: Mapping[str, Any]) -> Ref | None:
    row = tx.first(f"{_REFS} AND n.kind = :kind AND n.name = :name", **one)
    return None if row is None else _ref(row)


def _ref(row: Row) -> Ref:
    kind, name, version, *commit = row
    return Ref(kind, name, Commit() if commit[0] is None else _commit(commit), bytes(version))


def _commit(row: Sequence[Any]) -> Commit:
    place, store, parent, number, title, message, user, at = row
    return Commit(
        store=store, number=number, place=place, parent=parent, author=Author(title, message, user), time=time_of(at)
    )
