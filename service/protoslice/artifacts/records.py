"""Blobs, manifests, tags and referrers of a repository, in the catalogue.

Manifests never change, and a tag goes to its last writer. The place of a blob is moved by compare-and-set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

from protoslice.artifacts.faults import BlobUnknown, ManifestUnknown, NameInvalid
from protoslice.artifacts.manifests import StoredManifest
from protoslice.artifacts.names import Digest, RepositoryName, check_tag
from protoslice.catalog.artifacts import ArtifactTable
from protoslice.catalog.kept_files import KeptFile
from protoslice.catalog.labels import OCI
from protoslice.catalog.repositories import RepositoryTable
from protoslice.errors import InvalidInput
from protoslice.stores import Stores
from protoslice.stores.paging import PageBudget


class ArtifactRecords:
    """Records of one repository. Manifests count for the quota of their space."""

    def __init__(self, stores: Stores, name: RepositoryName) -> None:
        self._table = ArtifactTable(stores.database, stores.room.account, name.key)

    async def check_pushed(self) -> None:
        """Raise `NotFound` for the former name of a repository, `NameInvalid` for a name that no new one may have."""
        try:
            await self._table.check_pushed()
        except InvalidInput as error:
            raise NameInvalid(error.message) from None

    async def blob(self, digest: Digest) -> KeptFile:
        """Return the record of a blob; raise `BlobUnknown` if there is none, or the blob has not come yet."""
        found = await self.wanted_blob(digest)
        if found is None or not found.has_come:
            raise _no_blob(digest)
        return found

    async def wanted_blob(self, digest: Digest) -> KeptFile | None:
        """Return the record of a blob, also of one that has not come yet; None if there is none."""
        return await self._table.blob(digest.text)

    async def put_blobs(self, blobs: Mapping[Digest, KeptFile]) -> None:
        """Create or replace the records of blobs."""
        await self._table.put_blobs({digest.text: blob for digest, blob in blobs.items()})

    async def change_blob(self, digest: Digest, blob: KeptFile, seen: KeptFile | None) -> None:
        """Replace the record of a blob that was `seen`; raise `Conflict` if it has been changed since."""
        await self._table.change_blob(digest.text, blob, None if seen is None else seen.version)

    async def delete_blob(self, digest: Digest) -> None:
        """Remove the record of a blob; raise `BlobUnknown` if there is none."""
        await self.blob(digest)
        if not await self._table.remove_blob(digest.text):
            raise _no_blob(digest)

    async def manifest(self, digest: Digest) -> StoredManifest:
        """Return a manifest; raise `ManifestUnknown` if there is none."""
        row = await self._table.manifest(digest=digest.text)
        if row is None:
            raise ManifestUnknown(f"The repository has no manifest {digest.text}")
        return StoredManifest.of_row(row)

    async def tagged(self, tag: str) -> StoredManifest:
        """Return the manifest that a tag points at; raise `ManifestUnknown` for an unknown tag."""
        row = await self._table.manifest(tag=check_tag(tag))
        if row is None:
            raise _no_tag(tag)
        return StoredManifest.of_row(row)

    async def of_store(self, digits: str) -> StoredManifest | None:
        """Return a manifest whose store has an id that begins with these 40 digits, or None if there is none."""
        row = await self._table.of_store(digits)
        return None if row is None else StoredManifest.of_row(row)

    async def stores(self, most: int) -> list[str]:
        """Return stores of manifests, at most `most` of them."""
        return await self._table.stores(most)

    async def known(self, digests: Sequence[Digest]) -> dict[Digest, int]:
        """Return those of `digests` that are manifests of the repository, with their sizes."""
        found = await self._table.known([digest.text for digest in digests])
        return {Digest(text): size for text, size in found.items()}

    async def put_manifest(
        self,
        manifest: StoredManifest,
        *,
        referrer: tuple[Digest, str] | None = None,
        tags: Sequence[str] = (),
        computed: bool = False,
    ) -> None:
        """Create or replace a manifest and point tags at it, in one transaction.

        `referrer` is the subject of the manifest, and the descriptor in JSON by which it is listed there.
        One that is `computed` does not name its store.
        """
        await self._table.put_manifest(manifest.row(referrer), tags, computed=computed)

    async def delete_manifest(self, digest: Digest) -> None:
        """Remove a manifest and all its tags; raise `ManifestUnknown` if there is none."""
        if not await self._table.remove_manifest(digest.text):
            raise ManifestUnknown(f"The repository has no manifest {digest.text}")

    async def delete_tag(self, tag: str) -> None:
        """Remove a tag; raise `ManifestUnknown` if there is none."""
        if not await self._table.remove_tag(check_tag(tag)):
            raise _no_tag(tag)

    async def tags(self, *, limit: int, after: str | None) -> tuple[list[str], bool]:
        """Return a page of tags by name, and True if there are more."""
        found = await self._table.tags(limit + 1, after or "")
        return found[:limit], len(found) > limit

    async def newest_tag(self) -> str | None:
        """Return the tag that was set last, or None if there is none."""
        return await self._table.newest_tag()

    async def referrers(
        self, subject: Digest, *, limit: int, after: Digest | None
    ) -> tuple[list[bytes], Digest | None]:
        """Return descriptors of manifests that refer to `subject`, and the last digest if more follow.

        A page ends at `limit` descriptors, or at about a mebibyte of them; each has one at least.
        """
        rows = await self._table.referrers(subject.text, limit + 1, "" if after is None else after.text)
        budget = PageBudget(limit)
        taken = [digest for digest, _ in takewhile(lambda row: budget.takes(row[1]), rows[:limit])]
        found = await self._table.descriptors(taken)
        return [each.encode() for each in found], Digest(taken[-1]) if len(taken) < len(rows) else None


async def repository_names(
    stores: Stores, *, limit: int, after: str | None, prefix: str = ""
) -> tuple[list[str], bool]:
    """Return a page of the names of repositories that begin with `prefix`, and True if there are more."""
    table = RepositoryTable(stores.database, stores.room.account, OCI)
    return await table.names(prefix, limit=limit, after=after)


def _no_blob(digest: Digest) -> BlobUnknown:
    return BlobUnknown(f"The repository has no blob {digest.text}")


def _no_tag(tag: str) -> ManifestUnknown:
    return ManifestUnknown(f"The repository has no tag {tag!r}")
