"""The repositories of OCI: their blobs, manifests, tags and referrers. A repository exists once it has a row."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from protoslice.catalog.abandoned import remove_stores
from protoslice.catalog.audit import record, require_space
from protoslice.catalog.kept_files import COLUMNS, RepositoryFile, kept, put_file, replace_file
from protoslice.catalog.labels import OCI, label
from protoslice.catalog.live_stores import require_store
from protoslice.catalog.repositories import FIRST_ID, check_new, ensure_repository
from protoslice.catalog.spaces import Usage
from protoslice.catalog.syntax import (
    BlobUnknown,
    Digest,
    ManifestUnknown,
    NameInvalid,
    check_oci_tag,
)
from protoslice.catalog.webhooks import emit
from protoslice.database.transactions import LAST, Database, Row, Transaction, Transient, Unaudited, time_of
from protoslice.errors import InvalidInput, NotFound

_OWN: Final = "(SELECT id FROM repositories WHERE space = :space AND protocol = 'oci' AND name = :repository)"
_ID: Final = f"""coalesce({_OWN}, (
    SELECT o.id FROM former_names f JOIN repositories h ON h.space = f.space AND h.id = f.repository
    JOIN repositories o ON o.space = h.space AND o.protocol = 'oci' AND o.name = h.folded
    WHERE f.space = :space AND f.folded = :repository
))"""
"""SQL for the id of the repository that has a name; if there is none, of the repository that had the name last."""
_THESE: Final = f"space = :space AND repository = {_ID}"
_CURRENT: Final = f"space = :space AND repository = {_OWN}"
_OF_MANIFEST: Final = "space = :space AND repository = :id AND digest = :digest"
_OF_TAGS: Final = "space = :space AND repository = :id AND kind = 'tags'"
_MANIFEST: Final = "m.digest, m.media_type, m.body, m.store, m.subject, m.referrer, m.pushed"


@dataclass(frozen=True, slots=True)
class StoredManifest:
    """A manifest with its exact bytes and media type, and the store that was made from its blobs."""

    digest: Digest
    media_type: str
    data: bytes
    store: str | None = None
    """Id of the store, or None if the manifest names no blobs."""
    subject: Digest | None = None
    """Digest of the manifest that this manifest refers to, or None."""
    referrer: str | None = None
    """JSON descriptor of this manifest, which appears in the list of referrers of `subject`."""
    time: datetime | None = None
    """Time of the last push, or None if the manifest was computed or is not saved yet."""

    @property
    def counted_bytes(self) -> int:
        """Bytes of the manifest and its descriptor, which count towards the quota of the space."""
        return len(self.data) + len((self.referrer or "").encode())


class ArtifactTable:
    """The blobs, manifests and tags of one repository."""

    def __init__(self, database: Database, usage: Usage, repository: str) -> None:
        self._database = database
        self._usage = usage
        self._space = usage.space
        self._repository = repository
        self._key: Mapping[str, str] = {"space": usage.space, "repository": repository}

    async def check_pushed(self) -> None:
        """Raise `NotFound` if the name is a repository's former name, and `NameInvalid` for a disallowed new name."""
        await self._database.read(self._check_pushed)

    def _check_pushed(self, tx: Transaction) -> None:
        former = "(SELECT 1 FROM former_names WHERE space = :space AND folded = :repository)"
        there, moved = tx.all(f"SELECT {_OWN}, {former}", **self._key)[0]
        if there is None and moved is not None:
            raise NotFound(f"The repository {self._repository!r} was moved: push to its current name")
        if there is None:
            try:
                check_new(self._repository)
            except InvalidInput as error:
                raise NameInvalid(error.message) from None

    async def blob(self, digest: Digest) -> RepositoryFile:
        """Return a blob; raise `BlobUnknown` if it does not exist or was not uploaded yet."""
        found = await self.find_blob(digest)
        if found is None or not found.has_come:
            raise BlobUnknown(f"The repository has no blob {digest.text}")
        return found

    async def find_blob(self, digest: Digest) -> RepositoryFile | None:
        """Return a blob, or None if it is unknown.

        The blob has no bytes if a manifest names it but no client has uploaded it.
        """
        sql = f"SELECT {COLUMNS} FROM kept_files WHERE {_THESE} AND kind = 'blob' AND name = :digest"
        row = await self._database.read(lambda tx: tx.first(sql, **self._key, digest=digest.text))
        return None if row is None else kept(row)

    async def put_blobs(self, blobs: Mapping[Digest, RepositoryFile]) -> None:
        """Create or replace blobs."""

        def work(tx: Transaction) -> None:
            key, created = self._blobs(tx)
            for store in sorted({blob.store for blob in blobs.values() if blob.store is not None}):
                require_store(tx, self._space, store)
            for digest in sorted(blobs, key=lambda each: each.text):
                created += put_file(tx, key, digest.text, blobs[digest])[1]
            self._usage.add(tx, entries=created)

        if blobs:
            await self._database.write(work, unaudited=Unaudited.UPLOAD)

    async def change_blob(self, digest: Digest, blob: RepositoryFile, seen: RepositoryFile | None) -> None:
        """Replace a blob that has not changed since the caller read it as `seen`; insert it if `seen` is None.

        Raise `ConcurrentChange` if the blob has changed.
        """

        def work(tx: Transaction) -> None:
            key, created = self._blobs(tx)
            require_store(tx, self._space, blob.store)
            if seen is None:
                created += put_file(tx, key, digest.text, blob, new=True)[1]
            else:
                replace_file(tx, key, digest.text, blob, seen.version)
            self._usage.add(tx, entries=created)

        await self._database.write(work, unaudited=Unaudited.UPLOAD)

    async def remove_blob(self, digest: Digest) -> None:
        """Delete a blob; raise `BlobUnknown` if it does not exist or was not uploaded yet."""
        sql = f"""
            DELETE FROM kept_files
            WHERE {_CURRENT} AND kind = 'blob' AND name = :digest AND (upload IS NOT NULL OR store IS NOT NULL)"""

        def work(tx: Transaction) -> None:
            if not tx.run(sql, **self._key, digest=digest.text):
                raise BlobUnknown(f"The repository has no blob {digest.text}")
            record(tx, self._space, "blob.removed", f"{self._repository}@{digest.text}", self._named(digest))
            self._usage.add(tx, entries=-1)

        await self._database.write(work)

    async def manifest(self, digest: Digest) -> StoredManifest:
        """Return a manifest; raise `ManifestUnknown` if the repository does not have it."""
        sql = f"SELECT {_MANIFEST} FROM manifests m WHERE {_THESE} AND digest = :digest"
        row = await self._database.read(lambda tx: tx.first(sql, **self._key, digest=digest.text))
        if row is None:
            raise _no_manifest(digest)
        return _manifest(row)

    async def tagged(self, tag: str) -> StoredManifest:
        """Return the manifest that a tag points at; raise `ManifestUnknown` for an unknown tag."""
        check_oci_tag(tag)
        sql = f"""
            SELECT {_MANIFEST} FROM names n JOIN manifests m
            ON m.space = n.space AND m.repository = n.repository AND m.digest = n.manifest
            WHERE n.space = :space AND n.repository = {_ID} AND n.kind = 'tags' AND n.name = :tag"""
        row = await self._database.read(lambda tx: tx.first(sql, **self._key, tag=tag))
        if row is None:
            raise _no_tag(tag)
        return _manifest(row)

    async def known(self, digests: Iterable[Digest]) -> dict[Digest, int]:
        """Return the size in bytes of each manifest of this repository whose digest is in `digests`."""
        sql = f"SELECT digest, length(body) FROM manifests WHERE {_THESE} AND digest IN {{listed}}"
        texts = [digest.text for digest in digests]
        rows = await self._database.read(lambda tx: tx.among(sql, texts, **self._key))
        return {Digest(text): size for text, size in rows}

    async def of_store(self, digits: str) -> StoredManifest | None:
        """Return the last pushed of the manifests whose store has an id that begins with `digits`, or None."""
        sql = f"""
            SELECT {_MANIFEST} FROM manifests m WHERE {_THESE} AND store >= :digits AND store < :end
            ORDER BY pushed DESC LIMIT 1"""
        values = {**self._key, "digits": digits, "end": digits + LAST}
        row = await self._database.read(lambda tx: tx.first(sql, **values))
        return None if row is None else _manifest(row)

    async def stores(self, most: int) -> list[str]:
        """Return the ids of the stores of the first `most` manifests, in the order of the manifests' digests."""
        sql = f"SELECT store FROM manifests WHERE {_THESE} ORDER BY digest LIMIT :most"
        rows = await self._database.read(lambda tx: tx.all(sql, **self._key, most=most))
        return sorted({store for (store,) in rows if store is not None})

    async def put_manifest(self, manifest: StoredManifest, tags: Sequence[str] = (), *, computed: bool = False) -> None:
        """Create or replace a manifest, and point `tags` at it.

        Without `tags`, an identical manifest stays unchanged. A `computed` manifest is not recorded as pushed.
        """

        def work(tx: Transaction) -> None:
            require_store(tx, self._space, manifest.store)
            id, created = self._id(tx)
            key = {"space": self._space, "id": id, "digest": manifest.digest.text}
            # Two pushes of one manifest wait for each other here: the second then does not count the manifest again.
            tx.all("SELECT 1 FROM repositories WHERE space = :space AND id = :id FOR UPDATE", space=self._space, id=id)
            row = tx.first(
                f"SELECT {_MANIFEST} FROM manifests m WHERE {_OF_MANIFEST} FOR UPDATE",
                **key,
            )
            before = None if row is None else _manifest(row)
            same = before is not None and replace(manifest, time=before.time) == before
            if before is not None and same and not tags and (computed or before.time is not None):
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
                body=manifest.data,
                store=manifest.store,
                subject=None if manifest.subject is None else manifest.subject.text,
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
                subject = f"{self._repository}@{manifest.digest.text}"
                record(tx, self._space, "manifest.set", subject, self._named(manifest.digest))
            tx.run(
                "UPDATE names SET store = :store WHERE space = :space AND repository = :id AND manifest = :digest",
                **key,
                store=manifest.store,
            )
            held = 0 if before is None else before.counted_bytes
            created += int(before is None)
            self._usage.add(tx, stored_bytes=manifest.counted_bytes - held, entries=created)

        await self._database.write(work)

    async def remove_manifest(self, digest: Digest) -> None:
        """Delete a manifest and its tags; also delete its store if only manifests created the store.

        Raise `ManifestUnknown` if the repository does not have the manifest.
        """
        one, these = {**self._key, "digest": digest.text}, f"{_CURRENT} AND digest = :digest"

        def work(tx: Transaction) -> None:
            row = tx.first(f"SELECT {_MANIFEST} FROM manifests m WHERE {these} FOR UPDATE", **one)
            if row is None:
                raise _no_manifest(digest)
            tags = f"SELECT name FROM names WHERE {_CURRENT} AND manifest = :digest ORDER BY name FOR UPDATE"
            untagged = [tag for (tag,) in tx.all(tags, **one)]
            for tag in untagged:
                self._tell(tx, "artifact.untagged", tag, digest)
            tx.run(f"DELETE FROM manifests WHERE {these}", **one)
            record(tx, self._space, "manifest.removed", f"{self._repository}@{digest.text}", self._named(digest))
            found = _manifest(row)
            stores = [] if found.store is None else [found.store]
            remove_stores(tx, self._space, stores, entries=1 + len(untagged), size=found.counted_bytes)

        await self._database.write(work)

    async def remove_tag(self, tag: str) -> None:
        """Delete a tag; raise `ManifestUnknown` if the repository does not have it."""
        check_oci_tag(tag)
        sql = f"DELETE FROM names WHERE {_CURRENT} AND kind = 'tags' AND name = :tag RETURNING manifest"

        def work(tx: Transaction) -> None:
            row = tx.first(sql, **self._key, tag=tag)
            if row is None:
                raise _no_tag(tag)
            self._tell(tx, "artifact.untagged", tag, Digest(row[0]))
            self._usage.add(tx, entries=-1)

        await self._database.write(work)

    async def tags(self, *, limit: int, after: str | None) -> tuple[list[str], bool]:
        """Return a page of tags, sorted by name, and True if more tags follow."""
        sql = f"""
            SELECT name FROM names WHERE {_THESE} AND kind = 'tags' AND name > :after ORDER BY name LIMIT :limit"""
        values = {**self._key, "after": after or "", "limit": limit + 1}
        found = await self._database.read(lambda tx: [name for (name,) in tx.all(sql, **values)])
        return found[:limit], len(found) > limit

    async def newest_tag(self) -> str | None:
        """Return the tag that was set last, or None if the repository has no tags."""
        sql = f"SELECT name FROM names WHERE {_THESE} AND kind = 'tags' ORDER BY updated DESC LIMIT 1"
        row = await self._database.read(lambda tx: tx.first(sql, **self._key))
        return None if row is None else str(row[0])

    async def referrers(self, subject: Digest, *, limit: int, after: Digest | None) -> list[tuple[Digest, int]]:
        """Return at most `limit` manifests that refer to `subject`, each with its descriptor's size in bytes."""
        sql = f"""
            SELECT digest, length(referrer) FROM manifests
            WHERE {_THESE} AND subject = :subject AND digest > :after ORDER BY digest LIMIT :limit"""
        values = {**self._key, "subject": subject.text, "after": "" if after is None else after.text, "limit": limit}
        rows = await self._database.read(lambda tx: tx.all(sql, **values))
        return [(Digest(text), size or 0) for text, size in rows]

    async def descriptors(self, digests: Sequence[Digest]) -> list[bytes]:
        """Return the descriptors of the manifests `digests`, in order, except those that are gone or lack a subject."""
        sql = f"SELECT digest, referrer FROM manifests WHERE {_THESE} AND digest IN {{listed}} AND referrer IS NOT NULL"
        texts = [digest.text for digest in digests]
        found: dict[str, str] = dict(await self._database.read(lambda tx: tx.among(sql, texts, **self._key)))
        return [found[text].encode() for text in texts if text in found]

    def _id(self, tx: Transaction) -> tuple[int, int]:
        """Return the id of the repository, and 1 if this call inserted it, else 0."""
        sql = f"SELECT id FROM repositories WHERE space = :space AND protocol = '{OCI}' AND name = :repository"
        row, created = tx.first(sql, **self._key), 0
        if row is None:
            self._check_pushed(tx)
            created = ensure_repository(tx, self._space, OCI, self._repository, FIRST_ID + secrets.randbits(62))
            row = tx.first(sql, **self._key)
        if row is None:
            raise Transient("The repository is being removed: try again later")
        return int(row[0]), created

    def _blobs(self, tx: Transaction) -> tuple[dict[str, Any], int]:
        require_space(tx, self._space)
        id, created = self._id(tx)
        return {"space": self._space, "repository": id, "kind": "blob"}, created

    def _named(self, digest: Digest) -> dict[str, str]:
        return {"repository": self._repository, "digest": digest.text}

    def _tell(self, tx: Transaction, event: str, tag: str, digest: Digest) -> None:
        data = {**self._named(digest), "tag": tag}
        emit(tx, self._space, event, f"{self._repository}:{tag}", data)


def _manifest(row: Row) -> StoredManifest:
    digest, media_type, data, store, subject, referrer, pushed = row
    return StoredManifest(
        Digest(digest), media_type, bytes(data), store, None if subject is None else Digest(subject), referrer,
        time_of(pushed) if pushed else None,
    )  # fmt: skip


def _no_manifest(digest: Digest) -> ManifestUnknown:
    return ManifestUnknown(f"The repository has no manifest {digest.text}")


def _no_tag(tag: str) -> ManifestUnknown:
    return ManifestUnknown(f"The repository has no tag {tag!r}")
