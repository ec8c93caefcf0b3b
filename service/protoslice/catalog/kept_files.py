"""Files of repositories that are in no commit: the bytes, or the upload or the file of a store that has them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from protoslice.catalog.database import Database, Transaction

COLUMNS: Final = "size, data, upload, store, path, wanted, version"
_SECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFile:
    """A file; its bytes are in one of `data`, `upload`, and `store` and `path`."""

    size: int
    data: bytes | None = None
    upload: str | None = None
    store: str | None = None
    path: str | None = None
    wanted: bool = False
    """True once a manifest has named the blob before it came, so that it must not expire as an upload."""
    version: bytes = b""
    """Random, and another after each change."""

    @property
    def has_come(self) -> bool:
        """Return True for a file whose bytes are in an upload or a store."""
        return self.upload is not None or self.store is not None


class KeptFiles:
    """Files of one kind in one repository, by name."""

    def __init__(self, database: Database, space: str, repository: int, kind: str) -> None:
        self._database = database
        self._key: Mapping[str, Any] = {"space": space, "repository": repository, "kind": kind}

    async def get(self, name: str) -> KeptFile | None:
        """Return a file, or None if there is none."""
        sql = f"""
            SELECT {COLUMNS} FROM kept_files
            WHERE space = :space AND repository = :repository AND kind = :kind AND name = :name"""
        row = await self._database.read(lambda tx: tx.first(sql, **self._key, name=name))
        return None if row is None else kept(row)

    async def put(self, name: str, file: KeptFile) -> KeptFile:
        """Create or replace a file; raise `ForeignKeyViolation` if the repository was removed."""
        written = replace(file, version=secrets.token_bytes(16))

        def work(tx: Transaction) -> KeptFile:
            tx.run(
                f"""
                INSERT INTO kept_files (space, repository, kind, name, {COLUMNS}, updated)
                VALUES (:space, :repository, :kind, :name, :size, :data, :upload, :store, :path, 0, :version, :now)
                ON CONFLICT (space, repository, kind, name) DO UPDATE SET
                    size = excluded.size, data = excluded.data, upload = excluded.upload, store = excluded.store,
                    path = excluded.path, version = excluded.version, updated = excluded.updated""",
                **self._key,
                name=name,
                size=written.size,
                data=written.data,
                upload=written.upload,
                store=written.store,
                path=written.path,
                version=written.version,
                now=tx.now,
            )
            return written

        return await self._database.write(work)


async def purge_kept_files(database: Database, space: str, before: float) -> None:
    """Delete the files that were written before a time, in seconds, and whose uploads are gone."""
    sql = """
        DELETE FROM kept_files WHERE space = :space AND upload IS NOT NULL AND updated < :before AND NOT EXISTS (
            SELECT 1 FROM uploads u WHERE u.space = kept_files.space AND u.id = kept_files.upload
        )"""
    values = {"space": space, "before": int(before * _SECOND)}
    await database.write(lambda tx: tx.run(sql, **values), background=True)


async def kept_bytes(database: Database, space: str) -> int:
    """Return the bytes of all files and manifests of a space that are in rows."""
    sql = """
        SELECT (SELECT coalesce(sum(length(data)), 0) FROM kept_files WHERE space = :space AND data IS NOT NULL)
            + (SELECT coalesce(sum(length(body) + coalesce(length(referrer), 0)), 0) FROM manifests
            WHERE space = :space)"""
    return int((await database.read(lambda tx: tx.all(sql, space=space), background=True))[0][0])


def kept(row: Sequence[Any]) -> KeptFile:
    """Return the file of a row of `COLUMNS`."""
    size, data, upload, store, path, wanted, version = row
    return KeptFile(
        size=size, data=None if data is None else bytes(data), upload=upload, store=store, path=path,
        wanted=bool(wanted), version=bytes(version),
    )  # fmt: skip
