"""Erasure of a store: the names, rows and bytes of the store are deleted at once, without a grace period.

Each step is a transaction of bounded size that searches for the rows that are left. If an erasure is interrupted, the
next erasure of the store therefore finishes it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from protoslice.catalog.abandoned import purge_repositories
from protoslice.catalog.artifacts import ArtifactTable
from protoslice.catalog.audit import record
from protoslice.catalog.collector import drop_these, purge_store
from protoslice.catalog.git_objects import GitObjectTable
from protoslice.catalog.histories import empty_commits
from protoslice.catalog.labels import shown_name
from protoslice.catalog.live_stores import NAMING
from protoslice.catalog.mlflow import MlflowTable, NoArtifact, folder_version
from protoslice.catalog.repositories import NamesOfStores
from protoslice.catalog.spaces import Usage, discharge
from protoslice.catalog.stores import mark_removed
from protoslice.catalog.syntax import BlobUnknown, Digest, ManifestUnknown
from protoslice.catalog.tags import TAGS
from protoslice.catalog.uploads import release_uploads
from protoslice.database.transactions import Database, Row, Transaction, Unaudited

_SHOWN: Final = 100
"""Largest number of names of each kind, and largest number of other stores, that an erasure shows."""
_PAGE: Final = 100
_NO_STORE: Final = "0" * 64
"""An id that no store has."""
_BEGUN: Final = b"erased"
"""Version that marks a folder whose files are being deleted."""
_THESE: Final = "space = :space AND store = :digest"
_OBJECTS: Final = """
    SELECT r.object FROM stores s JOIN store_objects r ON r.space = s.space AND r.store = s.id
    WHERE s.space = :space AND s.digest = :digest"""
_HOLDING: Final = f"SELECT upload FROM upload_objects WHERE space = :space AND object IN ({_OBJECTS})"
_ENDED: Final = f"space = :space AND state NOT IN ('open', 'gone') AND (record LIKE :pattern OR id IN ({_HOLDING}))"


@dataclass(frozen=True, slots=True)
class Erasable:
    """The data that an erasure of a store removes from a space, and the data that the erasure leaves there."""

    space: str
    digest: str
    stores: int
    """Number of rows of the store; there are several if the store was removed and uploaded again."""
    size: int
    names: Sequence[str]
    """Tags, names in registries and folders of artifacts, limited to the first 100 of each kind."""
    objects: int
    sharing: Sequence[str]
    """The first 100 of the other stores that share bytes with this store."""
    uploads: int
    """Number of open uploads that share bytes with the store; the erasure does not touch them."""


@dataclass(frozen=True, slots=True)
class Traces:
    """The data that the catalogue still has about an erased store or its bytes."""

    events: int
    """Number of webhook events that name the store."""
    histories: int
    """Number of hub repositories, whose commits may name the store's files."""
    waiting: int
    """Number of objects, of any store, whose bytes are still to be deleted."""
    overdue: int
    """Number of waiting objects that the collector may delete now."""
    own: int
    """Number of waiting objects that belonged to the store."""


async def spaces(database: Database) -> list[str]:
    """Return the names of all spaces."""
    return await database.read(lambda tx: [name for (name,) in tx.all("SELECT name FROM spaces ORDER BY name")])


async def traces(database: Database, digest: str, keys: Collection[str]) -> Traces:
    """Return the traces that remain of a store in any space; `keys` are the keys of the store's former objects."""

    def work(tx: Transaction) -> Traces:
        events = tx.all("SELECT count(*) FROM deliveries WHERE event LIKE :pattern", pattern=f"%{digest}%")[0][0]
        histories = tx.all("SELECT count(*) FROM repositories WHERE protocol = 'hub'")[0][0]
        due = "SELECT count(*) FROM objects WHERE due IS NOT NULL"
        waiting = sum(tx.all(sql)[0][0] for sql in ("SELECT count(*) FROM trash", due))
        own = tx.among("SELECT key FROM trash WHERE key IN {listed}", keys)
        own += tx.among("SELECT key FROM objects WHERE due IS NOT NULL AND key IN {listed}", keys)
        overdue = tx.all("SELECT count(*) FROM trash WHERE due <= :now", now=tx.now)[0][0]
        return Traces(events, histories, waiting, overdue, len(own))

    return await database.export(work)


class Eraser:
    """A helper that erases stores of one space."""

    def __init__(self, database: Database, space: str) -> None:
        self._database = database
        self._space = space
        self._usage = Usage(space)

    async def starting_with(self, prefix: str) -> set[str]:
        """Return at most two digests that begin with `prefix`, of existing or erased stores."""
        values = {"space": self._space, "prefix": prefix, "end": prefix + "~"}
        sql = """
            SELECT digest FROM stores WHERE space = :space AND digest >= :prefix AND digest < :end
            UNION SELECT subject FROM audit
            WHERE space = :space AND subject >= :prefix AND subject < :end AND what = 'store.erased' LIMIT 2"""
        return await self._database.read(lambda tx: {row[0] for row in tx.all(sql, **values)})

    async def look(self, digest: str) -> Erasable:
        """Return the data that an erasure of the store would remove."""
        key = {"space": self._space, "digest": digest}
        others = f"""
            SELECT DISTINCT o.digest FROM store_objects r JOIN stores o ON o.space = r.space AND o.id = r.store
            WHERE r.space = :space AND r.object IN ({_OBJECTS}) AND o.digest <> :digest LIMIT {_SHOWN}"""

        def work(tx: Transaction) -> tuple[int, int, list[str], int, list[str], int]:
            stores, size = tx.all(
                "SELECT count(*), coalesce(max(size), 0) FROM stores WHERE space = :space AND digest = :digest", **key
            )[0]
            tags = [name for (name,) in tx.all(f"SELECT name FROM names WHERE {TAGS} AND store = :digest", **key)]
            objects = tx.all(f"SELECT count(*) FROM ({_OBJECTS}) o", **key)[0][0]
            sharing = [each for (each,) in tx.all(others, **key)]
            sql = f"SELECT count(*) FROM uploads WHERE space = :space AND state = 'open' AND id IN ({_HOLDING})"
            uploads = tx.all(sql, **key)[0][0]
            return stores, size, tags, objects, sharing, uploads

        stores, size, tags, objects, sharing, uploads = await self._database.export(work)
        named = await NamesOfStores(self._database, self._space).naming([digest], _SHOWN)
        shown = sorted(shown_name(each.protocol, each.repository, each.name) for each in named)
        return Erasable(self._space, digest, stores, size, [*sorted(tags), *shown], objects, sorted(sharing), uploads)

    async def parts_of_objects(self, digest: str) -> set[int]:
        """Return the ids of a store's objects, and of objects that kept the store's bytes at an earlier erasure."""
        said = "SELECT detail FROM audit WHERE space = :space AND subject = :digest AND what = 'store.erased'"

        def work(tx: Transaction) -> set[int]:
            rows = tx.all(_OBJECTS, space=self._space, digest=digest)
            recorded = tx.all(said, space=self._space, digest=digest)
            return {id for (id,) in rows}.union(*(json.loads(detail).get("objects", ()) for (detail,) in recorded))

        return await self._database.export(work)

    async def keys(self, objects: Collection[int]) -> list[str]:
        """Return the storage keys of objects."""
        sql = "SELECT key FROM objects WHERE space = :space AND id IN {listed}"
        rows = await self._database.export(lambda tx: tx.among(sql, objects, space=self._space))
        return [key for (key,) in rows]

    async def erase(self, digest: str, kept: Collection[int] = ()) -> None:
        """Erase a store, and move its objects into the trash; their bytes are deleted later.

        A store with the same id that is uploaded now is new, and is kept. The `kept` objects keep bytes of the
        store, because other stores use other parts of these objects. The audit lists the `kept` objects.
        """
        await self._database.write(lambda tx: self._hide(tx, digest, kept))
        await purge_repositories(self._database)
        async for _ in self._database.write_in_batches(lambda tx, limit: empty_commits(tx, self._space, digest, limit)):
            pass
        await self._erase_artifacts(digest)
        await self._erase_mlflow(digest)
        await self._erase_files(digest)
        await self._end_uploads(digest)
        await self.erase_rows(digest)

    async def erase_rows(self, digest: str) -> None:
        """Delete the rows of a store that can no longer be restored, and move its objects into the trash."""
        async for _ in self._database.write_in_batches(partial(self._erase_rows, digest)):
            pass

    async def is_left(self, digest: str) -> bool:
        """Return True if the store or one of its names still exists, or exists again after a new upload."""
        tables = " UNION ALL ".join(f"SELECT 1 FROM {table} WHERE {_THESE}" for table in NAMING)
        sql = f"SELECT 1 FROM stores WHERE space = :space AND digest = :digest UNION ALL {tables} LIMIT 1"
        return await self._database.read(lambda tx: tx.first(sql, space=self._space, digest=digest)) is not None

    def _hide(self, tx: Transaction, digest: str, kept: Collection[int]) -> None:
        """Mark the store as removed, so that it can no longer be read or restored."""
        removed = mark_removed(tx, self._space, digest)
        these = "space = :space AND digest = :digest AND deleted > 0"
        tx.run(f"UPDATE stores SET deleted = 0, tags = NULL WHERE {these}", space=self._space, digest=digest)
        record(tx, self._space, "store.erased", digest, {"store": digest} | ({"objects": sorted(kept)} if kept else {}))
        if removed is not None:
            size, tags = removed
            self._usage.add(tx, stores=-1, logical_bytes=-size, entries=-len(tags))

    async def _erase_artifacts(self, digest: str) -> None:
        """Delete OCI manifests that belong to the store, their tags, and blobs whose bytes the store holds."""
        manifests = """
            SELECT r.name, m.digest FROM manifests m JOIN repositories r ON r.space = m.space AND r.id = m.repository
            WHERE m.space = :space AND m.store = :digest LIMIT :limit"""
        async for repository, manifest in self._each(manifests, digest):
            with suppress(ManifestUnknown):  # another request removed the manifest or its repository
                await ArtifactTable(self._database, self._usage, repository).remove_manifest(Digest(manifest))
        blobs = """
            SELECT r.name, k.name, EXISTS (
                SELECT 1 FROM manifests m
                WHERE m.space = k.space AND m.repository = k.repository AND m.store IS NOT NULL
            ) FROM kept_files k JOIN repositories r ON r.space = k.space AND r.id = k.repository
            WHERE k.space = :space AND k.store = :digest AND k.kind = 'blob' LIMIT :limit"""
        # If other manifests may name the blob, keep its row without a store. The next request for the blob then
        # searches the stores of those manifests.
        moved = f"UPDATE kept_files SET store = '{_NO_STORE}' WHERE {_THESE} AND kind = 'blob' AND name = :name"
        async for repository, blob, is_named in self._each(blobs, digest):
            if is_named:
                await self._write(moved, digest, name=blob)
            else:
                with suppress(BlobUnknown):
                    await ArtifactTable(self._database, self._usage, repository).remove_blob(Digest(blob))

    async def _erase_mlflow(self, digest: str) -> None:
        """Delete the MLflow files whose bytes the store holds.

        Also delete the folders that the store was made from, unless their files have changed.
        """
        table, one = MlflowTable(self._database, self._usage), f"{_THESE} AND kind = 'sealed' AND name = :name"
        folders = f"SELECT name, version FROM names WHERE {_THESE} AND kind = 'sealed' LIMIT :limit"
        async for folder, version in self._each(folders, digest):
            versions = await table.versions(folder)
            if bytes(version) in {folder_version(versions), _BEGUN}:
                await self._write(
                    f"UPDATE names SET version = :version WHERE {one}", digest, name=folder, version=_BEGUN
                )
                for path in versions:
                    with suppress(NoArtifact):
                        await table.remove(path)
            await self._write(f"DELETE FROM names WHERE {one}", digest, name=folder)
        files = f"SELECT name FROM kept_files WHERE {_THESE} AND kind = 'file' LIMIT :limit"
        async for (path,) in self._each(files, digest):
            with suppress(NoArtifact):
                await table.remove(path)

    async def _erase_files(self, digest: str) -> None:
        """Delete the store's hub files that are in no commit, and git objects, which can be computed again."""
        histories = f"SELECT DISTINCT repository FROM kept_files WHERE {_THESE} AND kind LIKE 'git%' LIMIT :limit"
        async for (repository,) in self._each(histories, digest):
            await GitObjectTable(self._database, self._space, repository).clear()
        await self._in_batches(
            f"""
            DELETE FROM kept_files WHERE {_THESE} AND (repository, kind, name) IN (
                SELECT repository, kind, name FROM kept_files WHERE {_THESE} AND kind NOT IN ('file', 'blob')
                LIMIT :limit
            )""",
            digest,
        )

    async def _end_uploads(self, digest: str) -> None:
        """Delete ended uploads that refer to objects of the store, or whose record contains the store's id."""
        values = {"space": self._space, "digest": digest, "pattern": f"%{digest}%"}
        sql = f"""
            SELECT DISTINCT object FROM upload_objects
            WHERE space = :space AND upload IN (SELECT id FROM uploads WHERE {_ENDED})"""
        objects = await self._database.export(lambda tx: [id for (id,) in tx.all(sql, **values)])
        await self._in_batches(
            f"""
            UPDATE uploads SET state = 'gone', epoch = epoch + 1, modified = 0
            WHERE space = :space AND id IN (SELECT id FROM uploads WHERE {_ENDED} LIMIT :limit)""",
            digest,
        )
        await release_uploads(self._database)
        await self._in_batches(
            """
            DELETE FROM uploads WHERE space = :space AND id IN (
                SELECT id FROM uploads
                WHERE space = :space AND state = 'gone' AND modified > 0 AND record LIKE :pattern LIMIT :limit
            )""",
            digest,
        )

        def drop(tx: Transaction, limit: int) -> int:
            self._drop(tx, objects[:limit])
            return min(limit, len(objects))

        async for done in self._database.write_in_batches(drop):
            del objects[:done]

    def _erase_rows(self, digest: str, tx: Transaction, limit: int) -> int:
        """Delete at most `limit` rows that refer to the store, and then the store itself; return the number of rows."""
        key = {"space": self._space, "digest": digest}
        row = tx.first(
            "SELECT id, held FROM stores WHERE space = :space AND digest = :digest AND deleted = 0 LIMIT 1 FOR UPDATE",
            **key,
        )
        if row is None:
            return 0
        done, objects = purge_store(tx, self._space, row[0], limit)
        if done < limit:
            tx.run("DELETE FROM stores WHERE space = :space AND id = :id", space=self._space, id=row[0])
            discharge(tx, [(self._space, row[1])])
        self._drop(tx, objects)
        return done + 1

    def _drop(self, tx: Transaction, objects: Collection[int]) -> None:
        """Move the objects that have no references into the trash, so that the collector deletes them immediately."""
        sql = """
            SELECT space, id, key, size FROM objects WHERE space = :space AND id IN {listed} AND unpublished IS NULL
            ORDER BY id FOR UPDATE"""
        drop_these(tx, tx.among(sql, sorted({*objects}), space=self._space), 0)

    async def _each(self, sql: str, digest: str) -> AsyncIterator[Row]:
        """Yield rows, which the caller removes; end when none are left or the caller removed none of the last page."""
        values, before = {"space": self._space, "digest": digest, "limit": _PAGE}, list[Row]()
        while (rows := await self._database.read(lambda tx: tx.all(sql, **values))) and rows != before:
            for row in rows:
                yield row
            before = rows

    async def _write(self, sql: str, digest: str, **values: str | bytes) -> None:
        values |= {"space": self._space, "digest": digest}
        await self._database.write(lambda tx: tx.run(sql, **values), unaudited=Unaudited.COLLECTED)

    async def _in_batches(self, sql: str, digest: str) -> None:
        values = {"space": self._space, "digest": digest, "pattern": f"%{digest}%"}
        async for _ in self._database.write_in_batches(lambda tx, limit: tx.run(sql, **values, limit=limit)):
            pass
