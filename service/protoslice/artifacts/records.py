"""Records of a repository: where its blobs lie, its manifests, tags and referrers.

artifacts/<name>/blobs/<digest>                  size, and the upload or the store and path that hold the bytes; neither
                                                 where a manifest names a blob that has not come yet
artifacts/<name>/manifests/<digest>              a manifest as it came
artifacts/<name>/stores/<digits>/<digest>        the manifest's store has an id of these digits; written before it
artifacts/<name>/tags/<tag>                      the digest that a tag points to
artifacts/<name>/tagged/<digest>/<tag>           the tag pointed to this digest once; written before the tag
artifacts/<name>/referrers/<digest>/<digest>     descriptor of a manifest whose subject is the first digest

Manifests and referrers are never given another content, and a tag goes to its last writer, so that these are written
without conditions. A tag is removed, and the place of a blob moved, as they were read: what came meanwhile stays.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from typing import Any, Final

from protoslice.artifacts.faults import BlobUnknown, ManifestUnknown
from protoslice.artifacts.manifests import StoredManifest
from protoslice.artifacts.names import Digest, RepositoryName, check_tag
from protoslice.concurrency.gather import each_concurrently, first, map_concurrently
from protoslice.errors import Conflict, IntegrityError, NotFound
from protoslice.repositories.model import COMMIT_DIGITS
from protoslice.storage import ObjectKey, ObjectStat, Storage, quote, unquote
from protoslice.stores.catalog.named_records import NamedRecords, is_removal_mark
from protoslice.stores.envelope import seal, unseal
from protoslice.stores.layout import keys
from protoslice.stores.paging import PageBudget

_ROOT = keys.ARTIFACTS
_PAGE: Final = 250
"""Objects of one listing of repositories, of each of which the first object is enough."""


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob and its place, an upload or a file of a store; neither for one that has not come yet."""

    size: int
    upload: str | None = None
    store: str | None = None
    path: str | None = None
    wanted: bool = False
    """True once a manifest has named the blob before it came, so that it must not expire as an upload."""

    @property
    def has_come(self) -> bool:
        """True for a blob with a place."""
        return self.upload is not None or self.store is not None

    def encode(self) -> bytes:
        """Serialize to JSON in an envelope."""
        described = asdict(self)
        if not self.wanted:
            del described["wanted"]
        return _sealed(described)


class ArtifactRecords:
    """Records of one repository."""

    def __init__(self, storage: Storage, name: RepositoryName) -> None:
        self._storage = storage
        self._folder = _ROOT / name.quoted
        self._tags = NamedRecords(storage, self._folder / "tags", "tag")

    async def blob(self, digest: Digest) -> StoredBlob:
        """The record of a blob; `BlobUnknown` when there is none, or the blob has not come yet."""
        found = (await self.blob_version(digest))[0]
        if not found.has_come:
            raise _no_blob(digest)
        return found

    async def blob_version(self, digest: Digest) -> tuple[StoredBlob, str]:
        """The record of a blob and its entity tag; `BlobUnknown` when there is none."""
        try:
            found = await self._storage.get(self._key("blobs", digest.text))
        except NotFound:
            raise _no_blob(digest) from None
        data = unseal(found.data, f"the record of the blob {digest.text}")
        try:
            return StoredBlob(**json.loads(data)), found.stat.etag
        except (ValueError, TypeError) as error:
            raise IntegrityError(f"the record of the blob {digest.text} does not parse") from error

    async def put_blob(self, digest: Digest, blob: StoredBlob) -> None:
        """Create or replace the record of a blob."""
        await self._storage.put(self._key("blobs", digest.text), blob.encode())

    async def change_blob(self, digest: Digest, blob: StoredBlob, etag: str | None) -> None:
        """Replace the record of a blob whose entity tag is `etag`, create it for None; `Conflict` for another."""
        key, data = self._key("blobs", digest.text), blob.encode()
        if etag is None:
            await self._storage.put_if_absent(key, data)
        else:
            await self._storage.put(key, data, if_etag=etag)

    async def delete_blob(self, digest: Digest) -> None:
        """Remove the record of a blob; `BlobUnknown` when there is none."""
        await self.blob(digest)
        await self._storage.delete(self._key("blobs", digest.text))

    async def manifest(self, digest: Digest) -> StoredManifest:
        """A manifest; `ManifestUnknown` when there is none."""
        key = self._key("manifests", digest.text)
        try:
            found = await self._storage.get(key)
        except NotFound:
            raise ManifestUnknown(f"The repository has no manifest {digest.text}") from None
        return replace(StoredManifest.decode(digest, found.data), time=found.stat.modified)

    async def of_store(self, digits: str) -> StoredManifest | None:
        """A manifest whose store has an id that begins with these 40 digits; None when there is none."""
        async for stat in self._storage.iterate(self._key("stores", digits)):
            with suppress(ManifestUnknown):
                return await self.manifest(Digest(unquote(stat.key.segments[-1])))
        return None

    async def stores(self, most: int) -> AsyncIterator[str]:
        """Yield beginnings of the ids of stores of manifests, `most` of them."""
        async for stat in first(self._storage.iterate(self._folder / "stores"), most):
            yield stat.key.segments[-2]

    async def has_manifest(self, digest: Digest) -> bool:
        """True when the repository has the manifest."""
        try:
            await self._storage.stat(self._key("manifests", digest.text))
        except NotFound:
            return False
        return True

    async def put_manifest(self, manifest: StoredManifest) -> None:
        """Create or replace a manifest."""
        if manifest.store is not None:
            await self._storage.put(self._of_store(manifest.store, manifest.digest), b"")
        await self._storage.put(self._key("manifests", manifest.digest.text), manifest.encode())

    async def delete_manifest(self, manifest: StoredManifest) -> None:
        """Remove a manifest; no error when there is none."""
        await self._storage.delete(self._key("manifests", manifest.digest.text))
        if manifest.store is not None:
            await self._storage.delete(self._of_store(manifest.store, manifest.digest))

    async def tag(self, tag: str) -> Digest:
        """The digest that a tag points to; `ManifestUnknown` when there is no such tag."""
        return (await self._tag_version(tag))[0]

    async def _tag_version(self, tag: str) -> tuple[Digest, str]:
        """The digest that a tag points to, and the entity tag of its record."""
        try:
            data, stat = await self._tags.read(self._key("tags", check_tag(tag)))
        except NotFound:
            raise _no_tag(tag) from None
        return Digest(data.decode()), stat.etag

    async def put_tag(self, tag: str, digest: Digest) -> None:
        """Point a tag to a manifest."""
        await self._storage.put(self._key("tagged", digest.text, check_tag(tag)), b"")
        await self._storage.put(self._key("tags", tag), seal(digest.text.encode()))

    async def delete_tag(self, tag: str, etag: str | None = None) -> None:
        """Remove a tag, with an `etag` only as it was; `ManifestUnknown` for none, or one that moved."""
        try:
            await self._tags.remove(self._key("tags", check_tag(tag)), etag)
        except NotFound:
            raise _no_tag(tag) from None
        except Conflict:
            raise ManifestUnknown(f"The tag {tag!r} has been moved by another request") from None

    async def tags(self, *, limit: int, after: str | None) -> tuple[list[str], bool]:
        """A page of tags by name, and True when there are more."""
        folder = self._folder / "tags"
        found: list[str] = []
        async for stat in self._storage.iterate(folder, after=folder / quote(after) if after else None):
            if is_removal_mark(stat):
                continue
            if len(found) == limit:
                return found, True
            found.append(unquote(stat.key.segments[-1]))
        return found, False

    async def newest_tag(self) -> str | None:
        """The tag set last, of the first thousand by name; None when there is none."""
        page = await self._storage.list(self._folder / "tags")
        tags = [stat for stat in page.items if not is_removal_mark(stat)]
        newest = max(tags, key=lambda stat: stat.modified, default=None)
        return None if newest is None else unquote(newest.key.segments[-1])

    async def untag(self, digest: Digest) -> None:
        """Remove all tags that point to a manifest."""

        async def remove(stat: ObjectStat) -> None:
            with suppress(ManifestUnknown):
                tag = unquote(stat.key.segments[-1])
                points_to, etag = await self._tag_version(tag)
                if points_to == digest:
                    await self.delete_tag(tag, etag)  # another may have moved it meanwhile: that tag stays
            await self._storage.delete(stat.key)

        await each_concurrently(remove, self._storage.iterate(self._key("tagged", digest.text)))

    async def naming(self, stores: Collection[str]) -> list[tuple[str, str]]:
        """Find the manifests of `stores`: pairs of a store, and `:tag` or `@digest` that names its manifest.

        A manifest is listed by its digest where it has no tag. Costs one listing, and some reads for each one found.
        """
        by_digits = {store[:COMMIT_DIGITS]: store for store in stores}
        folder = self._folder / "stores" if len(stores) > 1 else self._key("stores", *by_digits)
        pairs = [stat.key.segments[-2:] async for stat in self._storage.iterate(folder)]
        found = list[tuple[str, str]]()
        for digits, quoted in pairs:
            digest = Digest(unquote(quoted))
            if digits in by_digits and await self.has_manifest(digest):
                tags = [f":{tag}" async for tag in self._tags_of(digest)] or [f"@{digest.text}"]
                found += [(by_digits[digits], tag) for tag in tags]
        return found

    async def _tags_of(self, digest: Digest) -> AsyncIterator[str]:
        async for stat in self._storage.iterate(self._key("tagged", digest.text)):
            with suppress(ManifestUnknown):
                tag = unquote(stat.key.segments[-1])
                if await self.tag(tag) == digest:  # else it has been moved since
                    yield tag

    async def put_referrer(self, subject: Digest, digest: Digest, descriptor: dict[str, Any]) -> None:
        """Note that a manifest refers to `subject`."""
        await self._storage.put(self._key("referrers", subject.text, digest.text), _sealed(descriptor))

    async def delete_referrer(self, subject: Digest, digest: Digest) -> None:
        """Forget that a manifest refers to `subject`; no error when nothing was noted."""
        await self._storage.delete(self._key("referrers", subject.text, digest.text))

    async def referrers(
        self, subject: Digest, *, limit: int, after: Digest | None
    ) -> tuple[list[bytes], Digest | None]:
        """Return descriptors of manifests that refer to `subject`, and the last digest if more follow.

        A page ends at `limit` descriptors, or at about a mebibyte of them; each has one at least.
        """
        folder = self._key("referrers", subject.text)
        page = await self._storage.list(folder, after=folder / quote(after.text) if after else None, limit=limit)
        budget = PageBudget(limit)
        taken = list(takewhile(lambda stat: budget.takes(stat.size), page.items))

        async def read(key: ObjectKey) -> bytes | None:
            with suppress(NotFound):  # removed since
                return await self._read(key, f"a referrer of {subject.text}")
            return None

        found = await map_concurrently(read, [stat.key for stat in taken])
        last = page.after if len(taken) == len(page.items) else taken[-1].key
        end = None if last is None else Digest(unquote(last.segments[-1]))
        return [each for each in found if each is not None], end

    def _of_store(self, store: str, digest: Digest) -> ObjectKey:
        return self._key("stores", store[:COMMIT_DIGITS], digest.text)

    def _key(self, *names: str) -> ObjectKey:
        key = self._folder
        for name in names:
            key /= quote(name)
        return key

    async def _read(self, key: ObjectKey, what: str) -> bytes:
        return unseal((await self._storage.get(key)).data, what)


def _no_blob(digest: Digest) -> BlobUnknown:
    return BlobUnknown(f"The repository has no blob {digest.text}")


def _no_tag(tag: str) -> ManifestUnknown:
    return ManifestUnknown(f"The repository has no tag {tag!r}")


def _sealed(data: dict[str, Any]) -> bytes:
    return seal(json.dumps(data, separators=(",", ":")).encode())


async def repository_names(
    storage: Storage, *, limit: int, after: str | None, prefix: str = ""
) -> tuple[list[str], bool]:
    """A page of the names of repositories that begin with `prefix`, and True when there are more.

    One listing for a page, one more for each repository whose records fill it.
    """
    found: list[str] = []
    place = _behind(after) if after is not None else keys.before_tags(quote(prefix), _ROOT)
    while True:
        page = await storage.list(_ROOT, after=place, limit=_PAGE)
        for stat in page.items:
            name = unquote(stat.key.segments[1])
            if found[-1:] == [name]:
                continue
            if not name.startswith(prefix):
                return found, False
            if len(found) == limit:
                return found, True
            found.append(name)
        if page.after is None:
            return found, False
        place = _behind(unquote(page.after.segments[1]))


def _behind(name: str) -> ObjectKey:
    """A key behind all of a repository, and before all of the next one."""
    return _ROOT / (quote(name) + "0")  # "0" is the character that follows "/"
