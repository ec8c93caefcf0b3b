"""Stores: how they are published, listed, removed and restored; a store exists while one of its rows is not deleted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from protoslice.catalog.audit import record
from protoslice.catalog.labels import STORES, files_label
from protoslice.catalog.live_stores import LIVE
from protoslice.catalog.objects import Collected, OwnObject, new_id, publish_objects
from protoslice.catalog.repositories import ensure_repository
from protoslice.catalog.spaces import Usage
from protoslice.catalog.store_lists import FoundStore, Key, StoreListing, StoreQuery, found_store
from protoslice.catalog.tags import TAGS, set_tag, tag_names
from protoslice.catalog.webhooks import emit
from protoslice.database.transactions import (
    LAST,
    NOBODY,
    Actor,
    Database,
    ForeignKeyViolation,
    Row,
    Transaction,
    Transient,
    UniqueViolation,
    check_unchanged,
)
from protoslice.errors import Conflict

_TAGGED: Final = f"SELECT store FROM names WHERE {TAGS} AND name = :tag"
_TRIES: Final = 5
_CHANGES: Final = 100
"""Number of a tag's newest audit entries that are searched for the tag's removal."""
_NEWEST: Final = 8
"""Largest number of stores that a search for a file or piece by digest returns, newest first."""


@dataclass(frozen=True, slots=True)
class StoreRow:
    """The row of a store; `manifest` is None if the caller already has the manifest."""

    id: int
    digest: str
    manifest: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDraft:
    """A store that is to be published; `created` is in microseconds since the epoch."""

    id: int
    digest: str
    type: str | None
    size: int
    held: int = 0
    """Bytes of the files that are part of the manifest, which count towards the quota."""
    created: int
    manifest: bytes
    weight: int
    """Approximate number of bytes of the JSON that shows the store."""
    own: Sequence[OwnObject] = ()
    """Objects that the publishing request has written."""
    shared: Collection[int] = ()
    """Ids of objects to which other stores or uploads already refer."""
    digests: Sequence[tuple[int, bytes]] = ()
    """The number and the SHA-256 digest of each file that clients can find by digest."""
    paths: Sequence[str] = ()
    """Paths by which searches find the store, with the path of the root first."""
    of_commits: bool = False
    """True for a store that is removed with the last commit or other name that refers to it."""


@dataclass(frozen=True, slots=True)
class Published:
    """A published store; `created` is False if the store existed before."""

    row: StoreRow
    created: bool
    uploader: Actor = NOBODY


@dataclass(frozen=True, slots=True)
class RestoredRow:
    """A restored store; `taken` are its former tags, which now point at other stores."""

    row: StoreRow
    taken: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ListedStore:
    """A store in a list, with its first tags; the next page may begin after `key`."""

    row: StoreRow
    weight: int
    uploader: Actor
    description: str
    tags: Sequence[str] = field(default=())
    key: Key = ()


class StoreTable:
    """The stores of one space."""

    def __init__(self, database: Database, usage: Usage) -> None:
        self._database = database
        self._usage = usage
        self._space = usage.space

    async def get(self, digest: str, known: int | None = None) -> StoreRow | None:
        """Return a store, or None if it does not exist; leave out the manifest if the row's id is `known`."""
        sql = f"SELECT id, CASE WHEN id = :known THEN NULL ELSE manifest END FROM stores WHERE {LIVE}"
        values = {"space": self._space, "digest": digest, "known": -1 if known is None else known}
        row = await self._database.read(lambda tx: tx.first(sql, **values))
        return None if row is None else _row((row[0], digest, row[1]))

    async def starting_with(self, prefix: str, *, removed: bool = False) -> list[str]:
        """Return at most two store digests that begin with `prefix`.

        The stores exist, or, if `removed` is True, they were removed but can be restored.
        """
        sql = f"""
            SELECT DISTINCT digest FROM stores
            WHERE space = :space AND digest >= :prefix AND digest < :end AND deleted {"> 0" if removed else "IS NULL"}
            ORDER BY digest LIMIT 2"""
        values = {"space": self._space, "prefix": prefix, "end": prefix + "~"}
        return await self._database.read(lambda tx: [row[0] for row in tx.all(sql, **values)])

    async def last_with(self, tag: str) -> str | None:
        """Return the digest of the store that `tag` was last removed from, or None if the audit does not record it."""
        order = "ORDER BY at DESC, change DESC, n DESC LIMIT"
        sql = f"""
            SELECT detail FROM (SELECT * FROM audit WHERE space = :space AND subject = :tag {order} {_CHANGES}) newest
            WHERE what = 'tag.removed' {order} 1"""
        row = await self._database.read(lambda tx: tx.first(sql, space=self._space, tag=tag))
        return None if row is None else json.loads(row[0]).get("store")

    async def publish(self, new: StoreDraft, tags: Sequence[str], *, replaces: int | None = None) -> Published:
        """Insert a store unless it exists, point tags at a new store, and return the new or existing store.

        If `replaces` is not None, it is the id of a damaged row of the same store, which the new row replaces. Raise
        `Collected` if an object that the store needs is gone.
        """

        def work(tx: Transaction) -> Published:
            replaced = replaces is not None and tx.run(
                "UPDATE stores SET deleted = :now WHERE space = :space AND id = :id AND deleted IS NULL",
                now=tx.now, space=self._space, id=replaces,
            )  # fmt: skip
            if replaces is not None:
                _find_by_files(tx, self._space, replaces, None)
            if not self._insert(tx, new):
                there = self._live(tx, new.digest)
                if there is None:
                    raise Transient("The store is being removed")
                if not new.of_commits:
                    _keep(tx, self._space, new.digest)
                if not tx.actor.reads:  # the response must not reveal that the store exists
                    self._usage.check(tx, sum(each.size or 0 for each in new.own) + new.held, stores=1)
                return Published(there, created=False)
            size = publish_objects(tx, self._space, new.own)
            self._refer(tx, new)
            if replaced:
                record(tx, self._space, "store.repaired", new.digest, {"store": new.digest})
            else:
                emit(tx, self._space, "store.created", new.digest, {"store": new.digest})
            created = sum(set_tag(tx, self._space, tag, new.digest).created for tag in sorted(tags))
            count = 0 if replaced else 1
            self._usage.add(
                tx, stored_bytes=size + new.held, stores=count, logical_bytes=count * new.size, entries=created
            )
            return Published(StoreRow(new.id, new.digest, new.manifest), created=True, uploader=tx.actor)

        try:
            return await self._database.write(work)
        except ForeignKeyViolation:
            raise Collected from None
        except UniqueViolation:  # another process has used this id
            return await self.publish(replace(new, id=new_id()), tags, replaces=replaces)

    async def version(self, digest: str) -> str | None:
        """Return a text that changes with a store's description and tags, or None if the store does not exist."""
        return await self._database.read(lambda tx: _version(tx, self._space, digest))

    async def remove(self, digest: str, *, if_match: str | None = None) -> list[str] | None:
        """Remove a store and its tags, and return the tags; return None if the store does not exist.

        Raise `Changed` if `if_match` is neither None nor the store's version.
        """

        def work(tx: Transaction) -> list[str] | None:
            _check_version(tx, self._space, digest, if_match)
            removed = mark_removed(tx, self._space, digest)
            if removed is None:
                return None
            size, tags = removed
            self._usage.add(tx, stores=-1, logical_bytes=-size, entries=-len(tags))
            return tags

        return await self._database.write(work)

    async def keep(self, digest: str) -> None:
        """Mark a store as uploaded directly, so that the store remains when it loses its last name."""
        await self._database.write(lambda tx: _keep(tx, self._space, digest))

    async def restore(self, digest: str) -> RestoredRow | None:
        """Undo the last removal of a store; set its tags again unless other stores now have them.

        If the store was uploaded again since then, the newly uploaded store gets the tags. Return None if the store
        neither exists nor was removed.
        """

        def work(tx: Transaction) -> RestoredRow | None:
            removed = tx.first(
                """
                SELECT id, digest, manifest, tags, size FROM stores
                WHERE space = :space AND digest = :digest AND deleted > 0
                ORDER BY deleted DESC, id DESC LIMIT 1 FOR UPDATE""",
                space=self._space, digest=digest,
            )  # fmt: skip
            there = self._live(tx, digest)  # read after the lock: another request may have restored the store
            if removed is None:
                return None if there is None else RestoredRow(there)
            restored = "" if there is not None else "deleted = NULL, "
            tx.run(f"UPDATE stores SET {restored}tags = NULL WHERE space = :space AND id = :id",
                   space=self._space, id=removed[0])  # fmt: skip
            if there is None:
                _find_by_files(tx, self._space, removed[0], digest)
                emit(tx, self._space, "store.created", digest, {"store": digest})
            else:
                record(tx, self._space, "store.restored", digest, {"store": digest})
            names = json.loads(removed[3] or "[]")
            tags = [set_tag(tx, self._space, name, digest, new=True) for name in names]
            count, created = int(there is None), sum(each.created for each in tags)
            self._usage.add(tx, stores=count, logical_bytes=count * removed[4], entries=created)
            taken = [each.tag.name for each in tags if each.tag.store != digest]
            return RestoredRow(there or _row(removed[:3]), taken)

        for _ in range(_TRIES):
            with suppress(UniqueViolation):  # the store was uploaded again at the same time
                return await self._database.write(work)
        raise Conflict("Another request is creating or restoring this store: try again")

    async def removed(self, *, limit: int, after: tuple[int, int] | None) -> list[tuple[int, int, str, str]]:
        """Return stores whose removal can be undone, latest removal first, as (time, row id, digest, JSON of tags)."""
        behind = "" if after is None else "AND (r.deleted, r.id) < (:time, :id)"
        other = "SELECT 1 FROM stores s WHERE s.space = r.space AND s.digest = r.digest AND s.deleted"
        sql = f"""
            SELECT r.deleted, r.id, r.digest, r.tags FROM stores r
            WHERE r.space = :space AND r.deleted > 0 {behind}
                AND NOT EXISTS ({other} IS NULL) AND NOT EXISTS ({other} > r.deleted)
            ORDER BY r.deleted DESC, r.id DESC LIMIT :limit"""
        values = {} if after is None else {"time": after[0], "id": after[1]}
        rows = await self._database.read(lambda tx: tx.all(sql, space=self._space, limit=limit, **values))
        return [(time, id, digest, tags or "[]") for time, id, digest, tags in rows]

    async def describe(self, digest: str, text: str, *, if_match: str | None = None) -> bool:
        """Set the description of a store; return False if the store does not exist.

        Raise `Changed` if `if_match` is neither None nor the store's version.
        """

        def work(tx: Transaction) -> bool:
            _check_version(tx, self._space, digest, if_match)
            row = tx.first(
                f"UPDATE stores SET description = :text WHERE {LIVE} AND description <> :text RETURNING id",
                text=text, space=self._space, digest=digest,
            )  # fmt: skip
            if row is not None:
                record(tx, self._space, "store.described", digest, {"store": digest})
            return row is not None or self._live(tx, digest) is not None

        return await self._database.write(work)

    async def shown(self, *, digest: str | None = None, tag: str | None = None, tags: int) -> ListedStore | None:
        """Return a store by its digest or a tag, with its first `tags` tags, or None if it does not exist."""
        where = LIVE if tag is None else f"space = :space AND deleted IS NULL AND digest = ({_TAGGED})"
        sql = f"SELECT id, digest, manifest, weight, uploader_id, uploader, description FROM stores WHERE {where}"

        def work(tx: Transaction) -> ListedStore | None:
            row = tx.first(sql, space=self._space, digest=digest, tag=tag)
            if row is None:
                return None
            names = tag_names(tx, self._space, [row[1]], tags)
            return ListedStore(_row(row[:3]), row[3], Actor(row[4], row[5]), row[6], names.get(row[1], ()))

        return await self._database.read(work)

    async def page(
        self, query: StoreQuery, *, limit: int, after: Key | None, room: int, tags: int
    ) -> tuple[list[ListedStore], Key | None]:
        """Return at most `limit` stores that follow the key `after`, each with its first `tags` tags.

        A manifest is None if the manifests before it already fill `room` bytes. A page may be short or empty although
        more stores follow. In that case, also return the key after which the next page begins.
        """
        listing = StoreListing(self._database.dialect, self._space, query)

        def work(tx: Transaction) -> tuple[list[ListedStore], Key | None]:
            found, rest = listing.page(tx, limit=limit, after=after, room=room)
            return self._with_tags(tx, found, tags), rest

        return await self._database.read(work)

    async def tagged(self, prefix: str, *, limit: int, after: str, room: int, tags: int) -> list[ListedStore]:
        """Return at most `limit` stores, sorted by tag, whose tags begin with `prefix` and sort after `after`.

        Each store is listed once, at its first matching tag. The limits `room` and `tags` are the same as for `page`.
        """
        sql = """
            SELECT p.id, p.digest, p.weight, s.uploader_id, s.uploader, s.description,
                CASE WHEN p.ahead < :room THEN s.manifest END, p.name FROM (
                SELECT *, sum(weight) OVER (ORDER BY name) - weight AS ahead FROM (
                    SELECT s.id, s.digest, n.name, s.weight FROM names n
                    JOIN stores s ON s.space = n.space AND s.digest = n.store AND s.deleted IS NULL
                    WHERE n.space = :space AND n.repository = 0 AND n.kind = 'tag' AND n.name >= :prefix
                        AND n.name < :end AND n.name > :after AND NOT EXISTS (
                            SELECT 1 FROM names m WHERE m.space = n.space AND m.store = n.store AND m.repository = 0
                                AND m.kind = 'tag' AND m.name >= :prefix AND m.name < n.name
                        )
                    ORDER BY n.name LIMIT :limit
                ) q
            ) p JOIN stores s ON s.space = :space AND s.id = p.id ORDER BY p.name"""
        values = {"prefix": prefix, "end": prefix + LAST, "after": after, "limit": limit, "room": room}

        def work(tx: Transaction) -> list[ListedStore]:
            rows = tx.all(sql, space=self._space, **values)
            return self._with_tags(tx, map(found_store, rows), tags)

        return await self._database.read(work)

    def _with_tags(self, tx: Transaction, found: Iterable[FoundStore], tags: int) -> list[ListedStore]:
        found = [*found]
        names = tag_names(tx, self._space, {each.digest for each in found}, tags)
        return [
            ListedStore(
                StoreRow(each.id, each.digest, each.manifest), each.weight, each.uploader,
                each.description, names.get(each.digest, ()), each.key,
            )
            for each in found
        ]  # fmt: skip

    async def about(self, digest: str, tags: int) -> tuple[Sequence[str], Actor, str, bool]:
        """Return a store's first `tags` tags, its uploader, its description, and True if only commits made it."""
        sql = f"SELECT uploader_id, uploader, description, of_commits FROM stores WHERE {LIVE}"

        def work(tx: Transaction) -> tuple[Sequence[str], Actor, str, bool]:
            id, name, description, of_commits = tx.first(sql, space=self._space, digest=digest) or ("", "", "", 0)
            names = tag_names(tx, self._space, [digest], tags).get(digest, ())
            return names, Actor(id, name), description, bool(of_commits)

        return await self._database.read(work)

    async def with_file(self, sha256: bytes) -> list[tuple[StoreRow, int]]:
        """Return the newest stores with a file of the digest `sha256`, each with the file's number in the store."""
        sql = """
            SELECT s.id, s.digest, f.n FROM file_digests f
            JOIN stores s ON s.space = f.space AND s.id = f.store
            WHERE f.space = :space AND f.sha256 = :sha256 AND s.deleted IS NULL
            ORDER BY f.store DESC, f.n LIMIT :limit"""
        values = {"space": self._space, "sha256": sha256, "limit": _NEWEST}
        return await self._database.read(
            lambda tx: [(StoreRow(row[0], row[1], None), row[2]) for row in tx.all(sql, **values)]
        )

    async def with_pieces(self, digests: Collection[bytes]) -> list[tuple[int, str, bytes]]:
        """Return, for each piece, the newest stores that contain it: row id, store digest and piece digest."""
        sql = f"""
            SELECT s.id, s.digest FROM pieces p JOIN stores s ON s.space = p.space AND s.id = p.store
            WHERE p.space = :space AND p.digest = :piece AND s.deleted IS NULL
            ORDER BY p.store DESC LIMIT {_NEWEST}"""
        return await self._database.read(
            lambda tx: [
                (row[0], row[1], piece) for piece in digests for row in tx.all(sql, space=self._space, piece=piece)
            ]
        )

    def _live(self, tx: Transaction, digest: str) -> StoreRow | None:
        row = tx.first(f"SELECT id, digest, manifest FROM stores WHERE {LIVE}", space=self._space, digest=digest)
        return None if row is None else _row(row)

    def _insert(self, tx: Transaction, new: StoreDraft) -> bool:
        sql = """
            INSERT INTO stores (
                space, id, digest, type, size, held, created, weight, manifest, of_commits, uploader, uploader_id
            ) VALUES (
                :space, :id, :digest, :type, :size, :held, :created, :weight, :manifest, :of_commits,
                :uploader, :uploader_id
            )
            ON CONFLICT (space, digest) WHERE deleted IS NULL DO NOTHING"""
        values: Mapping[str, Any] = {
            "space": self._space, "id": new.id, "digest": new.digest, "type": new.type, "size": new.size,
            "held": new.held, "created": new.created, "weight": new.weight, "manifest": new.manifest,
            "of_commits": int(new.of_commits), "uploader": tx.actor.name, "uploader_id": tx.actor.id,
        }  # fmt: skip
        return tx.run(sql, **values) == 1

    def _refer(self, tx: Transaction, new: StoreDraft) -> None:
        objects = sorted({*(each.id for each in new.own), *new.shared})
        key = {"space": self._space, "store": new.id}
        sql = "INSERT INTO store_objects (space, store, object) VALUES (:space, :store, :object)"
        tx.many(sql, [key | {"object": each} for each in objects])
        sql = "INSERT INTO file_digests (space, sha256, store, n) VALUES (:space, :sha256, :store, :n)"
        tx.many(sql, [key | {"n": n, "sha256": sha256} for n, sha256 in new.digests])
        if new.paths:
            ensure_repository(tx, self._space, STORES, "", 0)
            sql = """
                INSERT INTO names (space, repository, kind, name, store, version, updated, label)
                VALUES (:space, 0, 'files', :name, :store, :version, :now, :label)"""
            tx.run(
                sql, space=self._space, name=str(new.id), store=new.digest, version=b"", now=tx.now,
                label=files_label(self._space, new.paths),
            )  # fmt: skip


def mark_removed(tx: Transaction, space: str, digest: str) -> tuple[int, list[str]] | None:
    """Remove a store and its tags; return the store's size and the tags, or None if the store does not exist.

    The caller must subtract the store and its tags from the usage.
    """
    row = tx.first(
        f"UPDATE stores SET deleted = :now WHERE {LIVE} RETURNING id, size", now=tx.now, space=space, digest=digest
    )
    if row is None:
        return None
    gone = tx.all(f"DELETE FROM names WHERE {TAGS} AND store = :digest RETURNING name", space=space, digest=digest)
    tags = sorted(name for (name,) in gone)
    _find_by_files(tx, space, row[0], None)
    sql = "UPDATE stores SET tags = :tags WHERE space = :space AND id = :id"
    tx.run(sql, tags=json.dumps(tags), space=space, id=row[0])
    for tag in tags:
        emit(tx, space, "tag.removed", tag, {"tag": tag, "store": digest})
    emit(tx, space, "store.removed", digest, {"store": digest})
    return row[1], tags


def _find_by_files(tx: Transaction, space: str, id: int, digest: str | None) -> None:
    """Let searches find a store by its files; if `digest` is None, exclude the store from searches."""
    these = "space = :space AND repository = 0 AND kind = 'files' AND name = :name"
    tx.run(f"UPDATE names SET store = :store WHERE {these}", space=space, name=str(id), store=digest)


def _version(tx: Transaction, space: str, digest: str, *, locks: bool = False) -> str | None:
    """Return a text that changes whenever `describe`, `remove` or a tag changes a store; None for an unknown store."""
    lock = " FOR UPDATE" if locks else ""
    row = tx.first(f"SELECT id, description FROM stores WHERE {LIVE}{lock}", space=space, digest=digest)
    if row is None:
        return None
    tags = tx.all(f"SELECT name, version FROM names WHERE {TAGS} AND store = :store", space=space, store=digest)
    known = [row[0], row[1], sorted((name, bytes(version).hex()) for name, version in tags)]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()


def _check_version(tx: Transaction, space: str, digest: str, if_match: str | None) -> None:
    """Unless `if_match` is None, lock the row of a store, and raise `Changed` if the store has another version."""
    if if_match is not None:
        check_unchanged(f"Store {digest[:12]}", _version(tx, space, digest, locks=True), if_match)


def _keep(tx: Transaction, space: str, digest: str) -> None:
    """Keep a store when the commits that made it are deleted, because it was also uploaded directly."""
    sql = f"UPDATE stores SET of_commits = 0 WHERE {LIVE} AND of_commits = 1"
    if tx.run(sql, space=space, digest=digest):
        record(tx, space, "store.kept", digest, {"store": digest})


def _row(row: Row | Sequence[Any]) -> StoreRow:
    id, digest, manifest = row
    return StoreRow(id, digest, None if manifest is None else bytes(manifest))
