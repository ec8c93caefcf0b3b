"""Repositories of artifacts: their uploads, blobs, manifests, tags and referrers.

The hub's repository of the same name shows the tags as refs, and the stores of manifests as commits; see
`ArtifactCommits`.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import Final

from protoslice.artifacts.manifests import Descriptor, ManifestContent, blob_path, described, parse, paths_of
from protoslice.catalog.artifacts import ArtifactTable, StoredManifest
from protoslice.catalog.kept_files import RepositoryFile
from protoslice.catalog.labels import OCI
from protoslice.catalog.paging import PageBudget
from protoslice.catalog.repositories import RepositoryTable
from protoslice.catalog.requests import TAGS_AT_ONCE
from protoslice.catalog.syntax import (
    BlobUnknown,
    Digest,
    DigestInvalid,
    ManifestBlobUnknown,
    ManifestInvalid,
    ManifestUnknown,
    NameInvalid,
    RepositoryName,
    UploadUnknown,
    check_oci_tag,
    is_commit,
    listed_name,
)
from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import ChecksumMismatch, Conflict, LimitExceeded, NotFound, StorageUnavailable
from protoslice.repositories import MAIN, Commit, Ref
from protoslice.serving import OpenStore
from protoslice.stores import IngestRequest, Stores
from protoslice.uploads import Body, Checksum, NewUpload, Upload, Uploads

_TRIES: Final = 8
_SEARCHED_STORES: Final = 256
"""Largest number of manifests whose stores are searched for a blob after the blob's own store was removed."""
MOST_MISSING: Final = 32
"""Largest number of blobs that a manifest may name before they are uploaded."""
_SESSION = "artifact "
"""Prefix of the metadata of uploads to repositories; the name of the repository follows."""


class BlobLocations:
    """The locations of one repository's blobs; if several uploads and stores hold a blob, one of them is chosen."""

    def __init__(self, stores: Stores, table: ArtifactTable) -> None:
        self._stores = stores
        self._table = table

    async def is_there(self, blob: RepositoryFile) -> bool:
        """Return True if the place in a blob's record still has the bytes."""
        if not blob.has_come:
            return False
        with suppress(NotFound):
            if blob.store is not None:
                await self._stores.files(blob.store)
                return True
            return (await self._stores.uploads.get(blob.upload or "")).is_whole
        return False

    async def found(self, digest: Digest, blob: RepositoryFile) -> RepositoryFile | None:
        """Return the place of a blob's bytes, or None if the bytes are gone.

        Usually, this is the place in the blob's record. If that place is in a removed store, the store of another
        manifest may share the bytes. In that case, the record is corrected.
        """
        if await self.is_there(blob):
            return blob
        if blob.store is None:
            return None
        for store in await self._table.stores(_SEARCHED_STORES):
            with suppress(NotFound):
                path = await self._path_in(store, digest)
                if path is not None:
                    place = replace(blob, store=store, path=path)
                    await self._table.put_blobs({digest: place})
                    return place
        return None

    async def _path_in(self, store: str, digest: Digest) -> str | None:
        """Return the path of a blob among the files of a store, or None if the store does not have it."""
        files = await self._stores.files(store)
        if digest.algorithm != "sha256":
            return blob_path(digest) if blob_path(digest) in files else None
        return next((path for path, file in files.items() if file.sha256 == digest.hex), None)

    async def keep(self, digest: Digest, blob: RepositoryFile, *, fresh: bool) -> RepositoryFile:
        """Record the place of a blob, unless an earlier place remains valid; return the valid place.

        An earlier place in a store remains valid while the store has the bytes. Manifests may refer to that store, and
        an upload would expire. An earlier upload remains valid unless `fresh` is True. Raise `StorageUnavailable` if
        other writers keep changing the record.
        """
        for _ in range(_TRIES):
            found = await self._table.find_blob(digest)
            if found is not None and (found.store is not None or not fresh) and await self.is_there(found):
                return found
            kept = replace(blob, wanted=found is not None and found.wanted)
            with suppress(Conflict):
                await self._table.change_blob(digest, kept, found)
                return kept
        raise StorageUnavailable(f"Other requests are writing the blob {digest.text}: send the blob again")

    async def find(self, digest: Digest) -> RepositoryFile | None:
        """Return the place of a blob that a manifest names, or None if the blob was never uploaded.

        Raise `ManifestBlobUnknown` if the blob was uploaded but is gone: the client does not expect that it must send
        the blob again.
        """
        found = await self._table.find_blob(digest)
        if found is None or not found.has_come:
            return None
        present = await self.found(digest, found)
        if present is None:
            raise ManifestBlobUnknown(f"Blob {digest.text} was removed with its store or upload: send it again")
        return present

    async def expect(self, digest: Digest) -> RepositoryFile | None:
        """Record that a manifest names a blob that is not uploaded yet.

        Return the place of the blob if it was uploaded in the meantime, else None.
        """
        for _ in range(_TRIES):
            found = await self._table.find_blob(digest)
            if found is not None and (found.has_come or found.wanted):
                return await self.find(digest)
            with suppress(Conflict):
                await self._table.change_blob(digest, RepositoryFile(size=0, wanted=True), found)
        raise StorageUnavailable(f"Other requests are writing the blob {digest.text}: send the manifest again")


class ArtifactRepository:
    """The blobs, manifests, tags and referrers under one name; the object itself holds no state.

    Clients can continue only uploads in `uploads`, or any upload of the space if `uploads` is None.
    """

    def __init__(self, stores: Stores, name: RepositoryName, uploads: Uploads | None = None) -> None:
        self.name = name
        self._stores = stores
        self._uploads = uploads or stores.uploads
        self.table = ArtifactTable(stores.database, stores.quotas.usage, name.key)
        self._locations = BlobLocations(stores, self.table)

    async def begin_upload(self, client: str = "") -> Upload:
        """Begin the upload of a blob, which counts towards the limit of `client`."""
        await self.table.check_pushed()
        wanted = NewUpload(partial=True, path="blob", client=client, client_metadata=_SESSION + self.name.text)
        return await self._uploads.create(wanted)

    async def upload(self, upload_id: str) -> Upload:
        """Return the upload of a blob; raise `UploadUnknown` if it does not exist in this repository."""
        try:
            found = await self._uploads.get(upload_id)
        except NotFound:
            found = None
        if found is None or found.client_metadata != _SESSION + self.name.text:
            raise UploadUnknown(f"No upload {upload_id[:80]!r} in this repository: it has ended or was never started")
        return found

    async def append(self, upload_id: str, body: Body) -> Upload:
        """Append bytes to the upload of a blob."""
        await self.upload(upload_id)
        return await self._uploads.append(upload_id, body)

    async def end_upload(self, upload_id: str) -> None:
        """Remove the upload of a blob, with its bytes."""
        await self.upload(upload_id)
        await self._uploads.remove(upload_id)

    async def finish_upload(
        self, upload_id: str, digest: Digest, pieces: AsyncIterator[bytes], size: int | None
    ) -> RepositoryFile:
        """Append the last bytes to an upload and end it; return the blob.

        If the bytes of the upload do not match the digest, remove the upload and raise `DigestInvalid`.
        """
        upload = await self.upload(upload_id)
        if upload.state != "open":
            return await self._finished(upload_id, digest)
        offset = upload.offset
        body = Body(pieces=pieces, offset=offset, size=size, last=True)
        if digest.algorithm == "sha256":
            body = replace(body, sha256=bytes.fromhex(digest.hex))
        elif not offset:
            body = replace(body, checksum=Checksum(digest.hasher(), bytes.fromhex(digest.hex)))
        try:
            done = await self._uploads.append(upload_id, body)
            if not body.is_checked:
                await self._compare(upload_id, digest)
        except ChecksumMismatch:
            await self._uploads.remove(upload_id)
            raise DigestInvalid(f"The bytes sent do not match the digest {digest.text}: nothing was stored") from None
        kept = await self._locations.keep(digest, RepositoryFile(size=done.offset, upload=upload_id), fresh=True)
        return await self._settled(digest, kept)

    async def _finished(self, upload_id: str, digest: Digest) -> RepositoryFile:
        """Return the blob that an ended upload became, for a client that retries because it received no response."""
        with suppress(BlobUnknown):
            found = await self.table.blob(digest)
            if found.upload in {upload_id, None}:  # the upload is None if the bytes are in a store
                return await self._settled(digest, found)
        raise UploadUnknown(f"The upload {upload_id} has ended: start a new one")

    async def keep(self, data: bytes) -> None:
        """Store `data` as a blob without an upload.

        If the blob exists already, only make sure that its bytes are in a store.
        """
        digest = Digest.of(data)
        with suppress(BlobUnknown):
            if (await self.blob(digest)).store is None:
                await self.open_blob(digest)
            return
        path = blob_path(digest)
        async with await self._stores.ingest(IngestRequest()) as ingest:
            sink = await ingest.file(path)
            await sink.write(data)
            await sink.close()
            made = await ingest.commit()
        await self.table.put_blobs({digest: RepositoryFile(size=len(data), store=made.store.id, path=path)})

    async def mount(self, digest: Digest, other: RepositoryName) -> bool:
        """Add a blob of another repository to this one; return False if the other repository does not have it."""
        try:
            found = await ArtifactRepository(self._stores, other).blob(digest)
        except BlobUnknown:
            return False
        await self._settled(digest, await self._locations.keep(digest, found, fresh=False))
        return True

    async def blob(self, digest: Digest) -> RepositoryFile:
        """Return the record of a blob; raise `BlobUnknown` if the blob does not exist or its bytes are gone."""
        found = await self._locations.found(digest, await self.table.blob(digest))
        if found is None:
            raise _gone(digest)
        return found

    async def open_blob(self, digest: Digest) -> tuple[OpenStore, str]:
        """Return the open store that contains a blob, and the blob's path; create a store if no store contains it."""
        recorded = await self.table.blob(digest)
        with suppress(NotFound):
            return await self._opened(digest, recorded)
        found = await self._locations.found(digest, recorded)
        if found is None:
            raise _gone(digest)
        with suppress(NotFound):
            return await self._opened(digest, found)
        raise _gone(digest)

    async def _opened(self, digest: Digest, blob: RepositoryFile) -> tuple[OpenStore, str]:
        path = blob.path or blob_path(digest)
        store = blob.store or await self._stored({digest: blob}, {digest: [path]})
        return await self._stores.view(store), path

    async def delete_blob(self, digest: Digest) -> None:
        """Remove a blob from the repository; a store that contains its bytes keeps them."""
        await self.table.remove_blob(digest)

    async def put_manifest(
        self, ref: str, data: bytes, media_type: str, *, tags: Sequence[str] = ()
    ) -> tuple[StoredManifest, ManifestContent, Sequence[Digest]]:
        """Save a manifest under the tag or digest `ref` and under further `tags`, and create a store of its blobs.

        If `media_type` is empty, the media type in the manifest counts. The result contains the digests of blobs and
        manifests that were never sent. Raise `LimitExceeded` for more than 64 tags. Raise `ManifestInvalid` or
        `ManifestBlobUnknown` if the manifest cannot be accepted, and `DigestInvalid` if `ref` is the digest of other
        data.
        """
        wanted = Digest(ref) if ":" in ref else None
        names = _new_tags([*tags] if wanted is not None else [ref, *tags])
        algorithm = wanted.algorithm if wanted is not None else "sha256"
        digest, manifest = await self._stores.worker.run_if_large(
            len(data), lambda: (Digest.of(data, algorithm), parse(data, media_type))
        )
        if wanted is not None and wanted != digest:
            raise DigestInvalid(f"The digest of the sent manifest is {digest.text}, but the URL names {wanted.text}")
        await self._stores.shared.check_free_space()
        store, missing = await self._gather(manifest)
        stored = StoredManifest(digest, manifest.media_type, data, store)
        if manifest.subject is not None:
            stored = replace(stored, subject=manifest.subject, referrer=json.dumps(described(stored, manifest)))
        await self.table.put_manifest(stored, names)
        return stored, manifest, missing

    async def manifest(self, ref: str) -> StoredManifest:
        """Return the manifest that a tag or digest names; raise `ManifestUnknown` if there is none."""
        return await (self.table.manifest(Digest(ref)) if ":" in ref else self.table.tagged(ref))

    async def delete_manifest(self, ref: str) -> None:
        """Remove a tag, or, if `ref` is a digest, a manifest with all its tags.

        The store of a removed manifest is removed too, unless something else names the store. Raise `ManifestUnknown`
        if the tag or manifest does not exist.
        """
        if ":" in ref:
            await self.table.remove_manifest(Digest(ref))
        else:
            await self.table.remove_tag(ref)

    async def tags(self, *, limit: int, after: str | None) -> tuple[list[str], bool]:
        """Return a page of tags, sorted by name, and True if more tags follow."""
        return await self.table.tags(limit=limit, after=after)

    async def referrers(
        self, subject: Digest, *, limit: int, after: Digest | None
    ) -> tuple[list[bytes], Digest | None]:
        """Return a page of JSON descriptors of manifests that refer to `subject`, and the page's last digest.

        The digest is None on the last page. A page ends after `limit` descriptors or about a mebibyte, but contains
        at least one descriptor.
        """
        rows = await self.table.referrers(subject, limit=limit + 1, after=after)
        budget = PageBudget(limit)
        taken = [digest for digest, _ in takewhile(lambda row: budget.takes(row[1]), rows[:limit])]
        return await self.table.descriptors(taken), taken[-1] if len(taken) < len(rows) else None

    async def _gather(self, manifest: ManifestContent) -> tuple[str | None, Sequence[Digest]]:
        """Return a store of a manifest's uploaded blobs, and the digests of all missing blobs and manifests.

        The store is created unless it exists, and is None if no blobs were uploaded. Raise `ManifestBlobUnknown` if
        uploaded blobs are gone, or if too many blobs are missing. Raise `ManifestInvalid` if the size of a blob differs
        from the size in the manifest.
        """
        children = list({each.digest for each in manifest.manifests if not each.elsewhere})
        there = await self.table.known(children)
        _check_sizes(manifest.manifests, there)
        missing = [digest for digest in children if digest not in there]
        needed = list(dict.fromkeys(each.digest for each in manifest.blobs if not each.elsewhere))
        absent: list[Digest] = []

        async def find(digest: Digest) -> RepositoryFile | None:
            blob = await self._locations.find(digest)
            if blob is None:
                absent.append(digest)
            if len(absent) > MOST_MISSING:  # each missing blob costs a write
                raise ManifestBlobUnknown(
                    f"More than {MOST_MISSING} blobs of this manifest are missing, such as {digest.text}: send them "
                    "first"
                )
            return blob

        found = dict(zip(needed, await map_concurrently(find, needed), strict=True))
        found.update(zip(absent, await map_concurrently(self._locations.expect, absent), strict=True))
        blobs = {digest: blob for digest, blob in found.items() if blob is not None}
        _check_sizes(manifest.blobs, {digest: blob.size for digest, blob in blobs.items()})
        missing += [digest for digest in needed if digest not in blobs]
        if not blobs:
            return None, missing
        return await self._stored(blobs, paths_of([each for each in manifest.blobs if each.digest in blobs])), missing

    async def _settled(self, digest: Digest, blob: RepositoryFile) -> RepositoryFile:
        """Return an uploaded blob.

        If a manifest already names the blob, move the bytes into a store at once, since the upload would expire.
        """
        if blob.wanted and blob.store is None:
            await self._stored({digest: blob}, {digest: [blob_path(digest)]})
        return blob

    async def _stored(self, blobs: dict[Digest, RepositoryFile], paths: Mapping[Digest, Sequence[str]]) -> str:
        """Return a store of the blobs, each under all its paths.

        The store takes over the bytes of uploads, and shares the bytes of other stores.
        """
        loose = {digest: blob for digest, blob in blobs.items() if blob.upload is not None}
        uploads: dict[str, Sequence[str]] = {
            path: [blob.upload or ""] for digest, blob in loose.items() for path in paths[digest]
        }
        shared = {
            path: (blob.store, blob.path or "")
            for digest, blob in blobs.items()
            if blob.store is not None
            for path in paths[digest]
        }
        taken = await self._stores.file_refs(shared)
        made = await self._stores.uploads.assemble(uploads, IngestRequest(of_commit=True), taken=taken)

        noted = {
            digest: RepositoryFile(size=blob.size, store=made.store.id, path=paths[digest][0])
            for digest, blob in loose.items()
        }
        await self.table.put_blobs(noted)
        return made.store.id

    async def _compare(self, upload_id: str, digest: Digest) -> None:
        """Raise `ChecksumMismatch` if the bytes of a complete upload do not have the digest."""
        hasher = digest.hasher()
        async for piece in self._stores.uploads.content(upload_id):
            hasher.update(piece)
        if hasher.hexdigest() != digest.hex:
            raise ChecksumMismatch("The uploaded bytes do not match the digest in the request: upload them again")


async def repository_names(
    stores: Stores, *, limit: int, after: str | None, prefix: str = ""
) -> tuple[list[str], bool]:
    """Return a page of the names of repositories that begin with `prefix`, and True if more names follow."""
    table = RepositoryTable(stores.database, stores.quotas.usage, OCI)
    return await table.names(prefix, limit=limit, after=after)


def _check_sizes(descriptors: Sequence[Descriptor], sizes: Mapping[Digest, int]) -> None:
    """Raise `ManifestInvalid` if a descriptor's size differs from `sizes`, since clients refuse such content."""
    for each in descriptors:
        size = sizes.get(each.digest)
        if not each.elsewhere and None not in {size, each.size} and size != each.size:
            raise ManifestInvalid(
                f"{each.place}: {each.digest.text} has {size} bytes, not {each.size}: correct the size in the manifest"
            )


def _gone(digest: Digest) -> BlobUnknown:
    return BlobUnknown(f"The bytes of blob {digest.text} were removed with their store or upload: send them again")


def _new_tags(names: Sequence[str]) -> Sequence[str]:
    """Return `names`; raise `NameInvalid` unless all are valid tags, and `LimitExceeded` if there are too many."""
    if len(names) > TAGS_AT_ONCE:
        raise LimitExceeded(f"Too many tags: {len(names)} requested, at most {TAGS_AT_ONCE} per request")
    try:
        return [check_oci_tag(name) for name in names]
    except ManifestUnknown as error:
        raise NameInvalid(error.message) from None


_LATEST: Final = "latest"
"""Tag that OCI clients use if the user names no tag; hub clients use `main` in this case."""
_PAGE: Final = 250
_OF_A_DIGEST: Final = re.compile(r"sha(256|512)-[0-9a-f]{64}")
"""Tags of signatures (cosign) and referrers, which belong to another manifest and are not revisions of a model."""


class ArtifactCommits:
    """The implementation of `PushedTags` for OCI tags whose manifests have files."""

    def __init__(self, stores: Stores, name: str) -> None:
        self._artifacts: ArtifactRepository | None = None
        with suppress(NameInvalid):
            self._artifacts = ArtifactRepository(stores, listed_name(name))

    async def find(self, revision: str) -> Commit | None:
        """Return the commit of a tag or of an id of 40 digits, or None; `main` means the tag `latest`."""
        if self._artifacts is None:
            return None
        if is_commit(revision):
            pushed = await self._artifacts.table.of_store(revision)
            return None if pushed is None else _commit(pushed)
        with suppress(ManifestUnknown):
            return _commit(await self._artifacts.manifest(_LATEST if revision == MAIN else revision))
        return None

    async def refs(self) -> AsyncIterator[Ref]:
        """Yield the tags, sorted by name, and then `main` for the tag `latest`."""
        found, last = await self.page(limit=_PAGE, after=None)
        while found or last is not None:
            for ref in found:
                yield ref
            found, last = ([], None) if last is None else await self.page(limit=_PAGE, after=last)
        if (latest := await self.find(MAIN)) is not None:
            yield Ref("heads", MAIN, latest)

    async def head(self) -> Ref | None:
        """Return the tag `latest`, else the tag that was set last; return None if neither tag has files."""
        if self._artifacts is None:
            return None
        for tag in (_LATEST, await self._artifacts.table.newest_tag()):
            if tag is not None and (commit := await self.find(tag)) is not None:
                return Ref("tags", tag, commit)
        return None

    async def page(self, *, limit: int, after: str | None) -> tuple[list[Ref], str | None]:
        """Return a page of the tags that have files, sorted by name.

        Also return the last examined tag, or None on the last page.
        """
        if self._artifacts is None:
            return [], None
        tags, more = await self._artifacts.tags(limit=limit, after=after)
        last, tags = tags[-1] if more else None, [tag for tag in tags if not _OF_A_DIGEST.match(tag)]
        found = zip(tags, await map_concurrently(self.find, tags), strict=True)
        return [Ref("tags", tag, commit) for tag, commit in found if commit is not None], last

    async def exist(self) -> bool:
        """Return True if the repository has a tag."""
        return self._artifacts is not None and bool((await self._artifacts.tags(limit=1, after=None))[0])


def _commit(manifest: StoredManifest) -> Commit | None:
    """Return the commit of a manifest, or None if the manifest has no files."""
    if manifest.store is None:
        return None
    return Commit(store=manifest.store, time=manifest.time or Commit().time)
