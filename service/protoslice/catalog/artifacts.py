"""Repositories of OCI: blobs, manifests, tags and referrers of one repository, which exists from its first row on."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from protoslice.catalog.abandoned import remove_stores
from protoslice.catalog.audit import record, require_space
from protoslice.catalog.database import LAST, Database, Row, Transaction, Transient, Unaudited
from protoslice.catalog.kept_files import COLUMNS, KeptFile, kept, put_file, replace_file
from protoslice.catalog.labels import OCI, label
from protoslice.catalog.letters import tell
from protoslice.catalog.live_stores import require_store
from protoslice.catalog.repositories import FIRST_ID, check_new, ensure_repository
from protoslice.catalog.spaces import Account
from protoslice.errors import NotFound

_OWN: Final = "(SELECT id FROM repositories WHERE space = :space AND protocol = 'oci' AND name = :repository)"
_ID: Final = f"""coalesce({_OWN}, (
    SELECT o.id FROM former_names f JOIN repositories h ON h.space = f.space AND h.id = f.repository
    JOIN repositories o ON o.space = h.space AND o.protocol = 'oci' AND o.name = h.folded
    WHERE f.space = :space AND f.folded = :repository
))"""
"""The repository of a name, else the last that had it, which can be read by that name."""
_THESE: Final = f"space = :space AND repository = {_ID}"
_CURRENT: Final = f"space = :space AND repository = {_OWN}"
_OF_MANIFEST: Final = "space = :space AND repository = :id AND digest = :digest"
_OF_TAGS: Final = "space = :space AND repository = :id AND kind = 'tags'"
_MANIFEST: Final = "m.digest, m.media_type, m.body, m.store, m.subject, m.referrer, m.pushed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRow:
    """A manifest; `pushed` is in microseconds since the epoch, 0 for one that only the service has computed."""

    digest: str
    media_type: str
    body: bytes
    store: str | None = None
    subject: str | None = None
    referrer: str | None = None
    """Descriptor in JSON by which lists of referrers of `subject` show it."""
    pushed: int = 0

    @property
    def size(self) -> int:
        """Bytes that count for the quota of the space."""
        return len(self.body) + len((self.referrer or "").encode())


class ArtifactTable:
    """Blobs, manifests and tags of one repository."""

    def __init__(self, database: Database, account: Account, repository: str) -> None:
        self._database = database
        self._account = account
        self._space = account.space
        self._repository = repository
        self._key: Mapping[str, str] = {"space": account.space, "repository": repository}

    async def check_pushed(self) -> None:
        """Raise `NotFound` for the former name of a repository, `InvalidInput` for a name that no new one may have."""
        await self._database.read(self._check_pushed)

    def _check_pushed(self, tx: Transaction) -> None:
        former = "(SELECT 1 FROM former_names WHERE space = :space AND folded = :repository)"
        there, moved = tx.all(f"SELECT {_OWN}, {former}", **self._key)[0]
        if there is None and moved is not None:
            raise NotFound(f"The repository {self._repository!r} was moved: push to its current name")
        if there is None:
            check_new(self._repository)

    async def blob(self, digest: str) -> KeptFile | None:
        """Return a blob, or None if it is unknown; one that is only wanted has no bytes."""
        sql = f"SELECT {COLUMNS} FROM kept_files WHERE {_THESE} AND kind = 'blob' AND name = :digest"
        row = await self._database.read(lambda tx: tx.first(sql, **self._key, digest=digest))
        return None if row is None else kept(row)

    async def put_blobs(self, blobs: Mapping[str, KeptFile]) -> None:
        """Create or replace blobs."""

        def work(tx: Transaction) -> None:
            key, created = self._blobs(tx)
            for store in sorted({blob.store for blob in blobs.values() if blob.store is not None}):
                require_store(tx, self._space, store)
            created += sum(put_file(tx, key, digest, blob)[1] for digest, blob in sorted(blobs.items()))
            self._account.charge(tx, entries=created)

        if blobs:
            await self._database.write(work, unaudited=Unaudited.UPLOAD)

    async def change_blob(self, digest: str, blob: KeptFile, seen: bytes | None) -> None:
        """Replace a blob that has the version `seen`; insert it for None. Raise `FileMoved` if it has another."""

        def work(tx: Transaction) -> None:
            key, created = self._blobs(tx)
            require_store(tx, self._space, blob.store)
            if seen is None:
                created += put_file(tx, key, digest, blob, new=True)[1]
            else:
                replace_file(tx, key, digest, blob, seen)
            self._account.charge(tx, entries=created)

        await self._database.write(work, unaudited=Unaudited.UPLOAD)

    async def remove_blob(self, digest: str) -> bool:
        """Delete a blob; return False if it is unknown."""
        sql = f"DELETE FROM kept_files WHERE {_CURRENT} AND kind = 'blob' AND name = :digest"

        def work(tx: Transaction) -> bool:
            if not tx.run(sql, **self._key, digest=digest):
                return False
            record(tx, self._space, "blob.removed", f"{self._repository}@{digest}", self._named(digest))
            self._account.charge(tx, entries=-1)
            return True

        return await self._database.write(work)

    async def manifest(self, *, digest: str | None = None, tag: str | None = None) -> ManifestRow | None:
        """Return the manifest of a digest or a tag, or None if there is none."""
        if tag is None:
            sql = f"SELECT {_MANIFEST} FROM manifests m WHERE {_THESE} AND digest = :name"
        else:
            sql = f"""
                SELECT {_MANIFEST} FROM names n JOIN manifests m
                ON m.space = n.space AND m.repository = n.repository AND m.digest = n.manifest
                WHERE n.space = :space AND n.repository = {_ID} AND n.kind = 'tags' AND n.name = :name"""
        name = digest if tag is None else tag
        row = await self._database.read(lambda tx: tx.first(sql, **self._key, name=name))
        return None if row is None else _manifest(row)

    async def known(self, digests: Sequence[str]) -> dict[str, int]:
        """Return those of `digests` that are manifests here, with their sizes."""
        sql = f"SELECT digest, length(body) FROM manifests WHERE {_THESE} AND digest IN {{listed}}"
        rows = await self._database.read(lambda tx: tx.among(sql, digests, **self._key))
        return {digest: size for digest, size in rows}

    async def of_store(self, digits: str) -> ManifestRow | None:
        """Return the manifest pushed last of those whose store has an id that begins with `digits`, or None."""
        sql = f"""
            SELECT {_MANIFEST} FROM manifests m WHERE {_THESE} AND store >= :digits AND store < :end
            ORDER BY pushed DESC LIMIT 1"""
        values = {**self._key, "digits": digits, "end": digits + LAST}
        row = await self._database.read(lambda tx: tx.first(sql, **values))
        return None if row is None else _manifest(row)

    async def stores(self, most: int) -> list[str]:
        """Return the stores of at most `most` manifests."""
        sql = f"SELECT store FROM manifests WHERE {_THESE} ORDER BY digest LIMIT :most"
        rows = await self._database.read(lambda tx: tx.all(sql, **self._key, most=most))
        return sorted({store for (store,) in rows if store is not None})

    async def put_manifest(self, manifest: ManifestRow, tags: Sequence[str], *, computed: bool = False) -> None:
        """Create or replace a manifest, and point tags at it; without tags, one that is there as it is stays.

        One that is `computed` does not name its store.
        """

        def work(tx: Transaction) -> None:
            require_store(tx, self._space, manifest.store)
            id, created = self._id(tx)
            key = {"space": self._space, "id": id, "digest": manifest.digest}
            # Of two that push one manifest, the second counts what the first has written.
            tx.all("SELECT 1 FROM repositories WHERE space = :space AND id = :id FOR UPDATE", space=self._space, id=id)
            row = tx.first(
                f"SELECT {_MANIFEST} FROM manifests m WHERE {_OF_MANIFEST} FOR UPDATE",
                **key,
            )
            before = None if row is None else _manifest(row)
            same = before is not None and replace(manifest, pushed=before.pushed) == before
            if before is not None and same and not tags and (computed or before.pushed):
                return
            tx.run(
                """
                INSERT INTO manifests (space, repository, digest, media_type, body, store, subject, referrer, pushed)
                VALUES (:space, :id, :digest, :media_type, :body, :store, :subject, :referrer, :pushed)
                ON CONFLICT (space, repository, digest) DO UPDATE SET
                    media_type = excluded.media_type, body = excluded.body, store = excluded.store,
                    subject = excluded.subject, referrer = excluded.referrer,
                    pushed = CASE WHEN excluded.pushed > 0 THEN excluded.pushed ELSE manifests.pushed END""",
                **key,
                media_type=manifest.media_type,
                body=manifest.body,
                store=manifest.store,
                subject=manifest.subject,
                referrer=manifest.referrer,
                pushed=0 if computed else tx.now,
            )
            named = f"SELECT name FROM names WHERE {_OF_TAGS} AND name IN {{listed}} FOR UPDATE"
            created += len(set(tags)) - len(tx.among(named, sorted(set(tags)), space=self._space, id=id))
            for tag in sorted(set(tags)):
                tx.run(
                    """
                    INSERT INTO names (space, repository, kind, name, store, manifest, version, updated, label)
                    VALUES (:space, :id, 'tags', :tag, :store, :digest, :version, :now, :label)
                    ON CONFLICT (space, repository, kind, name) DO UPDATE SET
                        manifest = excluded.manifest, version = excluded.version, updated = excluded.updated""",
                    **key,
                    tag=tag,
                    store=manifest.store,
                    version=secrets.token_bytes(16),
                    now=tx.now,
                    label=label(self._space, OCI, self._repository, tag),
                )
                self._tell(tx, "artifact.tagged", tag, manifest.digest)
            if not tags:
                record(
                    tx,
                    self._space,
                    "manifest.set",
                    f"{self._repository}@{manifest.digest}",
                    self._named(manifest.digest),
                )
            tx.run(
                "UPDATE names SET store = :store WHERE space = :space AND repository = :id AND manifest = :digest",
                **key,
                store=manifest.store,
            )
            held = 0 if before is None else before.size
            created += int(before is None)
            self._account.charge(tx, stored_bytes=manifest.size - held, entries=created)

        await self._database.write(work)

    async def remove_manifest(self, digest: str) -> bool:
        """Delete a manifest and its tags, and its store if only manifests made it; return False if there is none."""

        def work(tx: Transaction) -> bool:
            row = tx.first(
                f"SELECT {_MANIFEST} FROM manifests m WHERE {_CURRENT} AND digest = :digest FOR UPDATE",
                **self._key,
                digest=digest,
            )
            if row is None:
                return False
            tags = f"SELECT name FROM names WHERE {_CURRENT} AND manifest = :digest ORDER BY name FOR UPDATE"
            untagged = [tag for (tag,) in tx.all(tags, **self._key, digest=digest)]
            for tag in untagged:
                self._tell(tx, "artifact.untagged", tag, digest)
            tx.run(f"DELETE FROM manifests WHERE {_CURRENT} AND digest = :digest", **self._key, digest=digest)
            record(tx, self._space, "manifest.removed", f"{self._repository}@{digest}", self._named(digest))
            found = _manifest(row)
            stores = [] if found.store is None else [found.store]
            remove_stores(tx, self._space, stores, entries=1 + len(untagged), size=found.size)
            return True

        return await self._database.write(work)

    async def remove_tag(self, tag: str) -> bool:
        """Delete a tag; return False if there is none."""

        def work(tx: Transaction) -> bool:
            row = tx.first(
                f"DELETE FROM names WHERE {_CURRENT} AND kind = 'tags' AND name = :tag RETURNING manifest",
                **self._key,
                tag=tag,
            )
            if row is not None:
                self._tell(tx, "artifact.untagged", tag, row[0])
                self._account.charge(tx, entries=-1)
            return row is not None

        return await self._database.write(work)

    async def tags(self, limit: int, after: str) -> list[str]:
        """Return at most `limit` tags by name, behind a name."""
        sql = f"""
            SELECT name FROM names WHERE {_THESE} AND kind = 'tags' AND name > :after ORDER BY name LIMIT :limit"""
        values = {**self._key, "after": after, "limit": limit}
        return await self._database.read(lambda tx: [row[0] for row in tx.all(sql, **values)])

    async def newest_tag(self) -> str | None:
        """Return the tag that was set last, or None if there is none."""
        sql = f"SELECT name FROM names WHERE {_THESE} AND kind = 'tags' ORDER BY updated DESC LIMIT 1"
        row = await self._database.read(lambda tx: tx.first(sql, **self._key))
        return None if row is None else str(row[0])

    async def referrers(self, subject: str, limit: int, after: str) -> list[tuple[str, int]]:
        """Return at most `limit` digests of manifests that refer to `subject`, with the sizes of their descriptors."""
        sql = f"""
            SELECT digest, length(referrer) FROM manifests
            WHERE {_THESE} AND subject = :subject AND digest > :after ORDER BY digest LIMIT :limit"""
        values = {**self._key, "subject": subject, "after": after, "limit": limit}
        return await self._database.read(lambda tx: [(digest, size or 0) for digest, size in tx.all(sql, **values)])

    async def descriptors(self, digests: Sequence[str]) -> list[str]:
        """Return the descriptors of manifests with a subject, in the order of `digests`; none for one that is gone."""
        sql = f"SELECT digest, referrer FROM manifests WHERE {_THESE} AND digest IN {{listed}} AND referrer IS NOT NULL"
        rows = await self._database.read(lambda tx: tx.among(sql, digests, **self._key))
        found: dict[str, str] = {digest: referrer for digest, referrer in rows}
        return [found[digest] for digest in digests if digest in found]

    def _id(self, tx: Transaction) -> tuple[int, int]:
        """Return the id of the repository, which is inserted unless it is there, and 1 if it was, else 0."""
        sql = f"SELECT id FROM repositories WHERE space = :space AND protocol = '{OCI}' AND name = :repository"
        row, created = tx.first(sql, **self._key), 0
        if row is None:
            self._check_pushed(tx)
            created = ensure_repository(tx, self._space, OCI, self._repository, FIRST_ID + secrets.randbits(62))
            row = tx.first(sql, **self._key)
        if row is None:
            raise Transient("The repository is being removed")
        return int(row[0]), created

    def _blobs(self, tx: Transaction) -> tuple[dict[str, Any], int]:
        require_space(tx, self._space)
        id, created = self._id(tx)
        return {"space": self._space, "repository": id, "kind": "blob"}, created

    def _named(self, digest: str) -> dict[str, str]:
        return {"repository": self._repository, "digest": digest}

    def _tell(self, tx: Transaction, event: str, tag: str, digest: str) -> None:
        data = {**self._named(digest), "tag": tag}
        tell(tx, self._space, event, f"{self._repository}:{tag}", data)


def _manifest(row: Row) -> ManifestRow:
    digest, media_type, body, store, subject, referrer, pushed = row
    return ManifestRow(
        digest=digest, media_type=media_type, body=bytes(body), store=store, subject=subject, referrer=referrer,
        pushed=pushed,
    )  # fmt: skip
