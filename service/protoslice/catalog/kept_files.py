"""Files that belong to a repository but to no commit; a row holds the bytes, or refers to an upload or a store."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from protoslice.catalog.audit import require_space
from protoslice.catalog.live_stores import lock_repository, require_store
from protoslice.catalog.spaces import Usage
from protoslice.database.transactions import SECOND, ConcurrentChange, Database, Transaction, Transient, Unaudited
from protoslice.errors import NotFound

COUNTED: Final = ("file", "blob")
"""Kinds of files that count as entries of their space: the files of MLflow and the blobs of OCI."""
COLUMNS: Final = "size, data, upload, store, path, wanted, version"
_VALUES: Final = ", ".join(f":{each}" for each in COLUMNS.split(", "))
_REPLACED: Final = ", ".join(f"{each} = :{each}" for each in COLUMNS.split(", ")) + ", updated = :now"
_ONE: Final = "space = :space AND repository = :repository AND kind = :kind AND name = :name"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryFile:
    """A file whose bytes are in `data`, in the upload `upload`, or in the file `path` of the store `store`."""

    size: int
    data: bytes | None = None
    upload: str | None = None
    store: str | None = None
    path: str | None = None
    wanted: bool = False
    """True if a manifest named the blob before the blob was uploaded; the upload must then not expire."""
    version: bytes = b""
    """Random value that each change replaces."""

    @property
    def has_come(self) -> bool:
        """True if the bytes are in an upload or a store."""
        return self.upload is not None or self.store is not None


class KeptFiles:
    """The files of one kind in one repository, by name."""

    def __init__(self, database: Database, space: str, repository: int, kind: str) -> None:
        self._database = database
        self._key: Mapping[str, Any] = {"space": space, "repository": repository, "kind": kind}

    async def get(self, name: str) -> RepositoryFile | None:
        """Return a file, or None if it does not exist."""
        sql = f"""
            SELECT {COLUMNS} FROM kept_files
            WHERE space = :space AND repository = :repository AND kind = :kind AND name = :name"""
        row = await self._database.read(lambda tx: tx.first(sql, **self._key, name=name))
        return None if row is None else kept(row)

    async def put(self, name: str, file: RepositoryFile) -> RepositoryFile:
        """Create or replace a file; raise `NotFound` if the repository was removed."""

        def work(tx: Transaction) -> RepositoryFile:
            require_space(tx, self._key["space"])
            if not lock_repository(tx, self._key["space"], self._key["repository"]):
                raise NotFound("The repository was removed")
            require_store(tx, self._key["space"], file.store)
            return put_file(tx, self._key, name, file)[0]

        return await self._database.write(work, unaudited=Unaudited.UPLOAD)


def put_file(
    tx: Transaction,
    key: Mapping[str, Any],
    name: str,
    file: RepositoryFile,
    *,
    folder: str | None = None,
    new: bool = False,
) -> tuple[RepositoryFile, bool]:
    """Create or replace a file of the `space`, `repository` and `kind` in `key`.

    Return the file with its new version, and True if it was created. If `new` is True and the file exists, raise
    `ConcurrentChange`.
    """
    file = replace(file, version=secrets.token_bytes(16))
    values = _values(tx, key, name, file)
    created = tx.run(
        f"""
        INSERT INTO kept_files (space, repository, kind, name, folder, {COLUMNS}, updated)
        VALUES (:space, :repository, :kind, :name, :folder, {_VALUES}, :now)
        ON CONFLICT (space, repository, kind, name) DO NOTHING""",
        **values,
        folder=folder,
    )
    if created:
        return file, True
    if new:
        raise ConcurrentChange("Another request changed the file: try again")
    if not tx.run(f"UPDATE kept_files SET {_REPLACED} WHERE {_ONE}", **values):
        raise Transient("The file is being removed: try again later")
    return file, False


def replace_file(
    tx: Transaction, key: Mapping[str, Any], name: str, file: RepositoryFile, seen: bytes
) -> RepositoryFile:
    """Replace a file that still has the version `seen`; otherwise, raise `ConcurrentChange`."""
    file = replace(file, version=secrets.token_bytes(16))
    changed = tx.run(
        f"""
        UPDATE kept_files SET {_REPLACED} WHERE {_ONE} AND version = :seen""",
        **_values(tx, key, name, file),
        seen=seen,
    )
    if not changed:
        raise ConcurrentChange("Another request changed the file: try again")
    return file


async def purge_kept_files(database: Database, grace_seconds: float) -> None:
    """Delete files that were written before the grace period and whose uploads no longer exist."""
    sql = """
        DELETE FROM kept_files WHERE updated < :before AND (space, repository, kind, name) IN (
            SELECT space, repository, kind, name FROM kept_files k
            WHERE upload IS NOT NULL AND updated < :before AND NOT EXISTS (
                SELECT 1 FROM uploads u WHERE u.space = k.space AND u.id = k.upload
            ) LIMIT :limit
        ) RETURNING space, kind"""
    grace = int(grace_seconds * SECOND)

    def work(tx: Transaction, limit: int) -> int:
        rows = tx.all(sql, before=tx.now - grace, limit=limit)
        counted = Counter(space for space, kind in rows if kind in COUNTED)
        for space, entries in sorted(counted.items()):
            Usage(space).add(tx, entries=-entries)
        return len(rows)

    async for _ in database.write_in_batches(work):
        pass


def _values(tx: Transaction, key: Mapping[str, Any], name: str, file: RepositoryFile) -> dict[str, Any]:
    return {**key, "name": name, "now": tx.now, **asdict(file), "wanted": int(file.wanted)}


def kept(row: Sequence[Any]) -> RepositoryFile:
    """Return the file that a row with the columns `COLUMNS` describes."""
    size, data, upload, store, path, wanted, version = row
    return RepositoryFile(
        size=size, data=None if data is None else bytes(data), upload=upload, store=store, path=path,
        wanted=bool(wanted), version=bytes(version),
    )  # fmt: skip
