"""The objects of a bucket. They are the files of named stores, and folders with computed views of these stores."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import cached_property
from typing import Final, NamedTuple

from protoslice.catalog.manifest import Manifest
from protoslice.database.transactions import LAST
from protoslice.errors import InvalidInput, NoRoot, NotFound, Unsupported
from protoslice.facts import File
from protoslice.formats.onnx_external import WEIGHTS
from protoslice.repositories import ComputedFile
from protoslice.server.http.headers import HeaderMap, Headers
from protoslice.server.registries.s3.names import HUB, OCI, STORES, TAGS, NamedStore, NamesInSpace
from protoslice.server.registry_names import repositories_of
from protoslice.serving import OpenStore, Representation
from protoslice.serving.opened import file_etag
from protoslice.stores import Stores
from protoslice.views import tensors
from protoslice.views.models import MODEL, onnx_file

VIEWS: Final = ("@onnx/", "@safetensors/")
_SECTIONS: Final = (HUB, OCI, STORES, TAGS)
_WEIGHTS: Final = re.compile(
    r"\.(bin|ckpt|data(-\d+-of-\d+)?|gguf|h5|index|keras|onnx|pb|pt|pth|safetensors)$", re.IGNORECASE
)
"""A pattern of files that hold weights. Names of checkpoint files end in the number of the shard."""
_VISITED: Final = 400
"""The maximum number of names whose files a page lists.

If the names' stores have many files, the page lists fewer names.
"""
_FILES: Final = 16
"""The number of listed files that count as much as one name towards `_VISITED`."""
_TOGETHER: Final = 16
_SKIPPED: Final = 100
"""The number of names below one common prefix that are skipped one by one, before a new query skips the rest."""
_ALIGNMENT: Final = 4096


@dataclass(frozen=True)
class S3Object:
    """An object: its bytes, and the time from which its name has referred to these bytes."""

    representation: Representation
    modified: datetime
    store: str

    @cached_property
    def _last_modified(self) -> tuple[bytes, bytes]:
        return b"last-modified", format_datetime(self.modified.astimezone(UTC), usegmt=True).encode()

    def headers(self, planned: Headers, status: int, fields: HeaderMap) -> Headers:
        """Return the planned headers with the object's headers, and with a checksum if the request wants one."""
        kept = [*planned, self._last_modified]
        digest = self.representation.sha256
        if status == 200 and digest is not None and fields.get(b"x-amz-checksum-mode", "").lower() == "enabled":
            kept += [(b"x-amz-checksum-sha256", b64encode(digest)), (b"x-amz-checksum-type", b"FULL_OBJECT")]
        return kept


def without_location(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return planned headers without the URL of the HTTP API."""
    return [each for each in headers if each[0] != b"content-location"]


class Entry(NamedTuple):
    """An object in a listing."""

    key: str
    size: int
    etag: str
    modified: datetime


class Page:
    """A page of a listing, in the order of keys."""

    def __init__(self, after: str) -> None:
        self.entries = list[Entry]()
        self.prefixes = list[str]()
        self.next: str | None = None
        """The key or common prefix after which the next page begins; None at the end."""
        self.last = after
        self.visited = 0
        """The number of names whose files were listed, plus one for every 16 files that were listed."""

    def add(self, key: str, entry: Entry | None, most: int) -> bool:
        """Add a key or a common prefix, unless it is already listed. Return False if the page is full."""
        if key <= self.last:
            return True
        if len(self.entries) + len(self.prefixes) == most:
            self.next = self.last
            return False
        self.last = key
        if entry is None:
            self.prefixes.append(key)
        else:
            self.entries.append(entry)
        return True


@dataclass(frozen=True, slots=True)
class Place:
    """The parsed parts of a key."""

    section: str
    repository: str
    name: str
    path: str

    @classmethod
    def of(cls, key: str) -> Place:
        """Parse a key. Raise `NotFound` if the key cannot name an object."""
        section = next((each for each in _SECTIONS if key.startswith(each)), None)
        if section is None:
            raise NotFound(f"The bucket has no key {key[:200]!r}: keys begin with {', '.join(_SECTIONS)}")
        rest, repository = key.removeprefix(section), ""
        if section in {HUB, OCI}:
            repository, _, rest = rest.partition("@" if section == HUB else ":")
        name, _, path = rest.partition("/")
        if not path or not name:
            raise NotFound(f"The bucket has no key {key[:200]!r}")
        return cls(section, repository, name.replace("%2F", "/") if section == HUB else name, path)


class Bucket:
    """The objects of a space."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    @cached_property
    def _names(self) -> NamesInSpace:
        return NamesInSpace(self._stores.database, self._stores.space)

    async def get(self, key: str) -> S3Object:
        """Return an object. Raise `NotFound` if it does not exist."""
        place = Place.of(key)
        named = await self._names.find(place.section, place.repository, place.name)
        if named is None and place.section == HUB:
            return await self._of_revision(place)
        if named is None:
            raise NotFound(f"The bucket has no key {key[:200]!r}")
        opened = await self._stores.view(named.store)
        if place.path in opened.files or not place.path.startswith(VIEWS):
            return S3Object(opened.file(place.path), named.updated, named.store)
        view, _, path = place.path.partition("/")
        found = (await _files_of_view(opened, view)).get(path)
        if found is None:
            raise NotFound(f"There is no file {path[:200]!r} in the view {view} of the store")
        return S3Object(found, named.updated, named.store)

    async def _of_revision(self, place: Place) -> S3Object:
        """Return a file of a commit or of a commit's view. The catalogue has no names for commits."""
        repository = await repositories_of(self._stores).find(place.repository)
        shown = await repository.shown(place.name)
        file, store = (await shown.files(self._stores)).get(place.path), shown.commit.store
        if file is None or store is None:
            raise NotFound(f"The revision has no file {place.path[:200]!r}")
        if isinstance(file, ComputedFile):
            return S3Object(file.content, shown.commit.time, store)
        return S3Object((await self._stores.view(store)).file(place.path), shown.commit.time, store)

    async def list(self, prefix: str, after: str, delimiter: str, most: int) -> Page:
        """Return a page of at most `most` objects and common prefixes after `after`.

        A page may have fewer entries although more pages follow.
        """
        page = Page(after)
        for section in _SECTIONS if most else ():
            # Ids are listed only below `stores/`. Otherwise, a copy of the whole bucket would hold files up to three
            # times.
            begins = prefix.startswith(section) or (section != STORES and section.startswith(prefix))
            if begins and after < section + LAST:
                async for chunk in self._chunks(section, prefix, delimiter, page.last):
                    if not await self._add(page, chunk, prefix, delimiter, most):
                        return page
        return page

    async def _add(self, page: Page, chunk: Sequence[NamedStore], prefix: str, delimiter: str, most: int) -> bool:
        """Add the keys of some names to a page. Return False when the page ends."""
        listed = {each.store for each in chunk if _common(each.prefix, prefix, delimiter) is None}
        rows = await self._names.rows_of(listed)
        manifests = {row.digest: await self._stores.manifests.of(row) for row in rows}
        for named in chunk:
            keys = await self._keys(named, manifests.get(named.store), prefix, delimiter, page.last)
            for key, entry in keys.items():
                if not page.add(key, entry, most):
                    return False
        page.visited += sum(1 + len(each.files) // _FILES for each in manifests.values())
        if page.visited >= _VISITED:
            page.next = max(page.last, chunk[-1].prefix + LAST)
        return page.next is None

    async def _chunks(
        self, section: str, prefix: str, delimiter: str, after: str
    ) -> AsyncIterator[Sequence[NamedStore]]:
        """Yield lists of names that may have keys. Of names below one common prefix, yield only the first."""
        at: str | None = after
        while at is not None:
            chunk, last, skipped = list[NamedStore](), "", 0
            begin, at = at, None
            async for named in self._names.listed(section, prefix, begin):
                if not _overlap(prefix, named.prefix) or named.prefix + LAST <= begin:
                    continue
                common = _common(named.prefix, prefix, delimiter)
                if common is not None and common == last:
                    skipped += 1
                    if skipped == _SKIPPED:  # many names remain, so the next query begins after the common prefix
                        at = common + LAST
                        break
                    continue
                last, skipped = common or "", 0
                chunk.append(named)
                if len(chunk) == _TOGETHER:
                    yield chunk
                    chunk = []
            if chunk:
                yield chunk

    async def _keys(
        self, named: NamedStore, manifest: Manifest | None, prefix: str, delimiter: str, after: str
    ) -> Mapping[str, Entry | None]:
        """Return a store's keys after `after`, in order, and the common prefixes among them."""
        if (common := _common(named.prefix, prefix, delimiter)) is not None:
            return {common: None}
        if manifest is None:
            return {}
        within = prefix.removeprefix(named.prefix) if prefix.startswith(named.prefix) else ""
        view, made = within.partition("/")[0], None
        if within.startswith(VIEWS):
            made = await _files_of_view(await self._stores.view(named.store), view)

        def listed() -> Mapping[str, Entry | None]:
            found: Mapping[str, File | Representation]
            if made is None:
                found = {file.path: file for file in manifest.files if file.path.startswith(within)}
            else:
                found = {f"{view}/{path}": each for path, each in made.items() if f"{view}/{path}".startswith(within)}
            keys, common = dict[str, Entry | None](), None
            for path in sorted(found):
                key = f"{named.prefix}{path}"
                if common is not None and key.startswith(common):
                    continue
                if (common := _common(key, prefix, delimiter)) is not None:
                    keys[common] = None
                elif key > after:
                    each = found[path]
                    etag = file_etag(manifest, each) if isinstance(each, File) else each.etag
                    keys[key] = Entry(key, each.size, etag, named.updated)
            return keys

        return await self._stores.worker.run_if_large(len(manifest.files) << 8, listed)


def _overlap(prefix: str, of_name: str) -> bool:
    return prefix.startswith(of_name) or of_name.startswith(prefix)


def _common(key: str, prefix: str, delimiter: str) -> str | None:
    """Return the common prefix that a listing shows instead of a key, or instead of all keys with a prefix.

    Return None if the listing shows the keys themselves.
    """
    if not delimiter or not key.startswith(prefix):
        return None
    found = key.find(delimiter, len(prefix))
    return None if found < 0 else key[: found + len(delimiter)]


async def _files_of_view(opened: OpenStore, view: str) -> Mapping[str, Representation]:
    """Return a view's files and the store's other files, except weights. Return none if the store has no such view."""
    made = dict[str, Representation]()
    try:
        if view == "@onnx":
            made |= {name: await onnx_file(opened, name, (), (), _ALIGNMENT) for name in (MODEL, WEIGHTS)}
        else:
            made |= await tensors.shards(opened)
    except (NoRoot, Unsupported, NotFound, InvalidInput):
        return {}
    others = [path for path in opened.files if not _WEIGHTS.search(path) and path != opened.manifest.root]
    return {path: opened.file(path) for path in others} | made
