"""The computed git objects of repositories: rows of `kept_files`, which can be computed again at any time."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from protoslice.database.transactions import (
    IN_ONE,
    ConcurrentChange,
    Database,
    ForeignKeyViolation,
    Row,
    Transaction,
    Unaudited,
)
from protoslice.errors import NotFound

_OBJECT: Final = "git"
_COMMIT: Final = "git-commit"
_CLEARING: Final = "git-clearing"
"""Kind of the row that records when the git objects of a repository are cleared.

Each clearing gives the row a new version. The row's size is 1 during a clearing, else 0.
"""
_BLOB: Final = "git-blob"
_GONE: Final = "gone"
"""Mark of a commit that was left out because its store was removed."""
_ALL: Final = "space = :space AND repository = :repository AND kind = :kind"
_INSERT: Final = """
    INSERT INTO kept_files (space, repository, kind, name, size, data, store, path, version, updated)
    VALUES (:space, :repository, :kind, :name, 0, :data, :store, :path, :version, :now)
    ON CONFLICT (space, repository, kind, name) DO UPDATE
    SET data = excluded.data, store = excluded.store, path = excluded.path, version = excluded.version
    WHERE kept_files.data IS NULL AND kept_files.path IS NOT NULL AND excluded.data IS NOT NULL"""
"""SQL that inserts an object; a pointer file replaces a plain file with the same text.

If the plain file remained, git-lfs would read the wrong bytes.
"""
_ROWS: Final = 2000
"""Number of objects that one transaction writes."""


@dataclass(frozen=True, slots=True)
class GitObjectRow:
    """A git object, which has `data` or a source; the source is a file of a store, or the store's trees.

    The `path` is empty if the source is the store's trees. A pointer file has data, and the path of the file that it
    points to. For a commit, `path` is the commit's place in the history, and `store` is None.
    """

    id: str
    data: bytes | None
    store: str | None = None
    path: str | None = None

    @property
    def commit(self) -> str | None:
        """Place of the commit in the history, or None if the object is not a commit."""
        return self.path if self.store is None else None


@dataclass(frozen=True, slots=True)
class GitCommitRow:
    """The git id of a commit, found by the commit's `key`.

    If `is_gone` is True, the commit's store was removed. The `id` is then the git id of the parent, or empty.
    """

    key: str
    id: str
    store: str | None
    is_gone: bool = False


class GitObjectTable:
    """The computed git objects of one repository."""

    def __init__(self, database: Database, space: str, repository: int) -> None:
        self._database = database
        self._key: Mapping[str, Any] = {"space": space, "repository": repository}

    async def objects(self, ids: Collection[str]) -> dict[str, GitObjectRow]:
        """Return git objects by id; leave out unknown ids."""
        rows = await self._rows(_OBJECT, "name, data, store, path", ids)
        return {id: GitObjectRow(id, None if data is None else bytes(data), *place) for id, data, *place in rows}

    async def commits(self, keys: Collection[str]) -> dict[str, str]:
        """Return the git ids of commits, by key; leave out unknown keys."""
        return {key: bytes(id).hex() for key, id in await self._rows(_COMMIT, "name, data", keys)}

    async def blobs(self, digests: Collection[str]) -> dict[str, str]:
        """Return the git ids of file contents, by SHA-256; leave out unknown digests."""
        return {digest: bytes(id).hex() for digest, id in await self._rows(_BLOB, "name, data", digests)}

    async def put_blobs(self, ids: Mapping[str, str]) -> None:
        """Insert the git ids of file contents, by SHA-256."""
        rows = [_row(_BLOB, digest, bytes.fromhex(id)) for digest, id in sorted(ids.items())]
        await self._write(lambda tx: self._insert(tx, rows))

    async def put(
        self, commits: Sequence[GitCommitRow], objects: Collection[GitObjectRow], parent: tuple[str, str] | None
    ) -> None:
        """Insert consecutive commits, oldest first, and their objects, in several transactions.

        The objects are inserted before the commits. `parent` is the key and git id of the first commit's parent.
        Raise `ConcurrentChange` if the parent now has another git id, or if another request cleared the objects
        meanwhile.
        """
        listed, seen = list(objects), list[tuple[bytes, bool]]()

        def insert(tx: Transaction) -> None:
            seen.append(self._clearing(tx))
            self._insert_objects(listed[:_ROWS], tx)

        while len(listed) > _ROWS:
            await self._write(insert)
            del listed[:_ROWS]
        rows = [
            _row(_COMMIT, each.key, bytes.fromhex(each.id), each.store, _GONE if each.is_gone else None)
            for each in commits
        ]

        def work(tx: Transaction) -> None:
            if parent is not None:
                key, id = parent
                sql = f"SELECT data FROM kept_files WHERE {_ALL} AND name = :name"
                found = tx.first(sql, **self._key, kind=_COMMIT, name=key)
                if found is None or bytes(found[0]).hex() != id:
                    raise ConcurrentChange("Another request changed the history of the repository: try again")
            clearing = self._clearing(tx)
            if clearing[1] or (seen and seen[0] != clearing):
                raise ConcurrentChange("Another request cleared the git objects of the repository: try again")
            self._insert_objects(listed, tx)
            self._insert(tx, rows)

        await self._write(work)

    async def is_stale(self) -> bool:
        """Return True if a commit's store was removed or restored after the commit's row was written."""
        sql = f"""
            SELECT 1 FROM kept_files k WHERE {_ALL} AND store IS NOT NULL AND (path IS NULL) <> EXISTS (
                SELECT 1 FROM stores s WHERE s.space = k.space AND s.digest = k.store AND s.deleted IS NULL
            ) LIMIT 1"""

        def work(tx: Transaction) -> bool:
            return self._clearing(tx)[1] or tx.first(sql, **self._key, kind=_COMMIT) is not None

        return await self._database.read(work)

    async def clear(self) -> None:
        """Delete commits and objects in several transactions; `is_stale` returns True until all transactions end."""
        await self._write(partial(self._note_clearing, 1))
        sql = f"DELETE FROM kept_files WHERE {_ALL} AND name IN (SELECT name FROM kept_files WHERE {_ALL} LIMIT :limit)"
        for kind in (_COMMIT, _OBJECT):
            async for _ in self._database.write_in_batches(partial(_run, sql, {**self._key, "kind": kind})):
                pass
        await self._write(partial(self._note_clearing, 0))

    def _clearing(self, tx: Transaction) -> tuple[bytes, bool]:
        """Return the version of the latest clearing, and True if that clearing has not ended."""
        row = tx.first(f"SELECT version, size FROM kept_files WHERE {_ALL} AND name = ''", **self._key, kind=_CLEARING)
        return (b"", False) if row is None else (bytes(row[0]), bool(row[1]))

    def _note_clearing(self, size: int, tx: Transaction) -> None:
        tx.run(
            """
            INSERT INTO kept_files (space, repository, kind, name, size, version, updated)
            VALUES (:space, :repository, :kind, '', :size, :version, :now)
            ON CONFLICT (space, repository, kind, name) DO UPDATE SET size = :size, version = :version""",
            **self._key, kind=_CLEARING, size=size, version=secrets.token_bytes(16), now=tx.now,
        )  # fmt: skip

    async def _rows(self, kind: str, columns: str, names: Collection[str]) -> list[Row]:
        sql = f"SELECT {columns} FROM kept_files WHERE {_ALL} AND name IN {{listed}}"
        listed, found = sorted(names), list[Row]()
        for start in range(0, len(listed), IN_ONE):  # a transaction may take one second: each part has its own
            part = listed[start : start + IN_ONE]
            found += await self._database.read(partial(Transaction.among, sql=sql, listed=part, **self._key, kind=kind))
        return found

    async def _write(self, work: Callable[[Transaction], None]) -> None:
        try:
            await self._database.write(work, unaudited=Unaudited.COMPUTED)
        except ForeignKeyViolation:
            raise NotFound("The repository was removed") from None

    def _insert_objects(self, objects: Sequence[GitObjectRow], tx: Transaction) -> None:
        self._insert(
            tx, [_row(_OBJECT, each.id, each.data, each.store, each.path) for each in sorted(objects, key=_id)]
        )

    def _insert(self, tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
        def filled() -> Iterator[Mapping[str, Any]]:
            for row in rows:
                yield {**self._key, **row, "version": secrets.token_bytes(16), "now": tx.now}

        tx.many(_INSERT, filled())


def _row(
    kind: str, name: str, data: bytes | None, store: str | None = None, path: str | None = None
) -> Mapping[str, Any]:
    return {"kind": kind, "name": name, "data": data, "store": store, "path": path}


def _id(row: GitObjectRow) -> str:
    return row.id


def _run(sql: str, values: Mapping[str, Any], tx: Transaction, limit: int) -> int:
    return tx.run(sql, **values, limit=limit)
