"""Records of drafts: one for each file, by its path.

drafts/d-<folder>/…/f-<name>        size of the file; its bytes, or the store and path that hold them
sealed/d-<folder>/…/s               the last store of a folder, and the digest of the files' versions that went into it

Folders sort before files and share no key with them, so that a name may be a file now and a folder later. A record is
replaced as a whole and goes to its last writer, so that writers need no conditions. The same holds for the record of a
store: readers believe it only as long as its digest is that of the folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from protoslice.concurrency.gather import each_concurrently, first, in_turns
from protoslice.defaults import MAX_FILES
from protoslice.errors import IntegrityError, InvalidInput, LimitExceeded, NotFound
from protoslice.storage import ObjectKey, ObjectStat, Storage, quote, unquote
from protoslice.storage.keys import MAX_SEGMENT_BYTES
from protoslice.stores.envelope import seal, unseal
from protoslice.stores.layout import keys
from protoslice.stores.names import check_file_path

_ROOT: Final = keys.DRAFTS
_SEALED: Final = ObjectKey("sealed")
_FOLDER, _FILE = "d-", "f-"
_ARTIFACTS: Final = "artifacts"
"""Folder in which MLflow keeps the files of a run or of a model."""
_PAGE: Final = 250
"""Objects of one listing: whatever lies deeper than asked is skipped from the next on."""


class NoDraft(NotFound):
    """No file or folder at a path."""

    def __init__(self, path: str) -> None:
        super().__init__(f"No artifact {path[:1024]!r}")


@dataclass(frozen=True, slots=True)
class DraftFile:
    """A file of a draft: its bytes, or the place of them in a store."""

    size: int
    data: bytes | None = None
    store: str | None = None
    path: str | None = None

    def encode(self) -> bytes:
        """A line of JSON, and the bytes behind it, in an envelope."""
        head = json.dumps({"size": self.size, "store": self.store, "path": self.path})
        return seal(head.encode() + b"\n" + (self.data or b""))

    @classmethod
    def decode(cls, path: str, sealed: bytes) -> DraftFile:
        """Parse the output of `encode`; `IntegrityError` for anything else."""
        what = f"the record of the artifact {path!r}"
        head, _, data = unseal(sealed, what).partition(b"\n")
        try:
            told = json.loads(head)
            return cls(told["size"], data if told["store"] is None else None, told["store"], told["path"])
        except (ValueError, KeyError, TypeError) as error:
            raise IntegrityError(f"{what} does not parse") from error


class DraftEntry(NamedTuple):
    """An entry of a folder; `size` is None for a folder."""

    name: str
    size: int | None


class ArtifactFolder(NamedTuple):
    """A folder that a client of MLflow filled, and the time of the last change among its first files."""

    path: str
    updated: datetime


class DraftFolder(NamedTuple):
    """All files below a folder by path, sorted, and the digest of the versions that were read."""

    files: Mapping[str, DraftFile]
    version: str


class DraftRecords:
    """Records of all drafts in one storage."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def put(self, path: str, file: DraftFile) -> None:
        """Create or replace the record of a file."""
        await self._storage.put(_file_key(path), file.encode())

    async def get(self, path: str) -> DraftFile:
        """The record of a file; `NoDraft` when there is none."""
        try:
            return (await self._version(path))[0]
        except NotFound:
            raise NoDraft(path) from None

    async def delete(self, path: str) -> None:
        """Remove a file, or a folder with all in it; `NoDraft` when there is neither."""
        try:
            await self._storage.stat(_file_key(path))
        except NotFound:
            found = [each async for each in self._keys(path)]
        else:
            found = [_file_key(path)]
        if not found:
            raise NoDraft(path)
        await in_turns(self._storage.delete, found)

    async def folder(self, folder: str) -> DraftFolder:
        """All files below a folder; `LimitExceeded` for more than a store holds."""
        etags = await self._etags(folder)
        read = await in_turns(lambda path: self._read(f"{folder}/{path}" if folder else path), etags)
        found = {path: file for path, file in zip(etags, read, strict=True) if file is not None}
        # Of the versions read, not those listed: a file may be written in between.
        version = _digest({path: etag for path, (_, etag) in found.items()})
        return DraftFolder({path: file for path, (file, _) in found.items()}, version)

    async def version(self, folder: str) -> str:
        """Digest of the versions of all files below a folder; `NoDraft` when there is none."""
        etags = await self._etags(folder)
        if not etags:
            raise NoDraft(folder)
        return _digest(etags)

    async def sealed(self, folder: str, version: str) -> str | None:
        """The store that was made of this version of a folder; None when none is known."""
        try:
            found = await self._storage.get(_sealed_key(folder))
            made_of, _, store = unseal(found.data, f"the record of the store of {folder!r}").decode().partition(" ")
        except (NotFound, IntegrityError):  # a damaged record is made anew, as its store is
            return None
        return store if made_of == version else None

    async def seal(self, folder: str, version: str, store: str) -> None:
        """Note the store that was made of a version of a folder."""
        await self._storage.put(_sealed_key(folder), seal(f"{version} {store}".encode()))

    async def entries(self, folder: str) -> list[DraftEntry]:
        """Folders and files directly in a folder, each kind by name.

        One listing for a page, one more for a folder that fills it, and a read for each file.
        """
        top, names, after = _folder_key(folder), list[str](), None
        while True:
            page = await self._storage.list(top, after=after, limit=_PAGE)
            for stat in page.items:
                name = stat.key.segments[len(top.segments)]
                if not names or names[-1] != name:
                    names.append(name)
            if page.after is None:
                break
            after = _behind(top / names[-1]) if names[-1].startswith(_FOLDER) else page.after
        folders = [DraftEntry(unquote(name.removeprefix(_FOLDER)), None) for name in names if name.startswith(_FOLDER)]
        files = [unquote(name.removeprefix(_FILE)) for name in names if name.startswith(_FILE)]
        found = await in_turns(lambda name: self._read(f"{folder}/{name}" if folder else name), files)
        sizes = [DraftEntry(name, read[0].size) for name, read in zip(files, found, strict=True) if read is not None]
        return folders + sizes

    async def artifact_folders(self, below: str, *, limit: int, after: str | None) -> tuple[list[ArtifactFolder], bool]:
        """A page of the folders of artifacts below a folder, and True when there are more.

        A folder called `artifacts` is one, as MLflow has it for each run and model, and any other folder that holds
        files directly. One listing for a page, one more for each folder that fills it.
        """
        top, found = _folder_key(below), list[ArtifactFolder]()
        place = None if after is None else _behind(_folder_key(after))
        while True:
            page = await self._storage.list(top, after=place, limit=_PAGE)
            for stat in page.items:
                path = artifact_folder(_path_of(stat.key.segments[1:]))
                if not path:  # files of the root, which follow all folders
                    return found, False
                if found and found[-1].path == path:
                    found[-1] = ArtifactFolder(path, max(found[-1].updated, stat.modified))
                elif len(found) == limit:
                    return found, True
                else:
                    found.append(ArtifactFolder(path, stat.modified))
            if page.after is None:
                return found, False
            place = _behind(_folder_key(found[-1].path))

    async def last_sealed(self, folder: str) -> str | None:
        """The store that was made last of a folder, which may have changed since; None when none is known."""
        try:
            found = await self._storage.get(_sealed_key(folder))
            return unseal(found.data, f"the record of the store of {folder!r}").decode().partition(" ")[2]
        except (NotFound, IntegrityError):
            return None

    async def naming(self, stores: Mapping[str, str | None], most: int | None) -> set[tuple[str, str]]:
        """Find the folders of `stores`: pairs of a store, and a folder of artifacts that names it.

        `stores` has the path of the only file of each; None for a store of several files. A folder names the store made
        of it as it is now, and those that hold its files. Looks at `most` records, by default all: costs a listing of
        them, and reads of the stores made of folders and of files with the names of such paths.
        """
        found, lone = set[tuple[str, str]](), {path for path in stores.values() if path is not None}

        async def look_at_folder(stat: ObjectStat) -> None:
            folder = folder_at(stat.key.segments[len(_SEALED.segments) : -1])
            store = await self.last_sealed(folder)
            if store in stores and store is not None:
                with suppress(NoDraft, LimitExceeded):
                    if await self.sealed(folder, await self.version(folder)) == store:
                        found.add((store, folder))

        async def look_at_file(stat: ObjectStat) -> None:
            path = _path_of(stat.key.segments[len(_ROOT.segments) :])
            if path.rpartition("/")[2] not in lone:
                return
            read = await self._read(path)
            if read is not None and read[0].store in stores and read[0].store is not None:
                found.add((read[0].store, artifact_folder(path) or path))

        await each_concurrently(look_at_folder, first(self._storage.iterate(_SEALED), most))
        if lone:
            await each_concurrently(look_at_file, first(self._storage.iterate(_ROOT), most))
        return found

    async def _keys(self, folder: str) -> AsyncIterator[ObjectKey]:
        async for stat in self._storage.iterate(_folder_key(folder)):
            yield stat.key

    async def _etags(self, folder: str) -> dict[str, str]:
        """Entity tags of the records of all files below a folder, by path, sorted."""
        depth, found = len(_folder_key(folder).segments), dict[str, str]()
        async for stat in self._storage.iterate(_folder_key(folder)):
            found[_path_of(stat.key.segments[depth:])] = stat.etag
            if len(found) > MAX_FILES:
                raise LimitExceeded(f"More than {MAX_FILES} artifacts in {folder!r}: choose a folder inside it")
        return dict(sorted(found.items()))

    async def _read(self, path: str) -> tuple[DraftFile, str] | None:
        """A file and the entity tag of its record; None when it has been removed since it was listed."""
        with suppress(NotFound):
            return await self._version(path)
        return None

    async def _version(self, path: str) -> tuple[DraftFile, str]:
        found = await self._storage.get(_file_key(path))
        return DraftFile.decode(path, found.data), found.stat.etag


def artifact_folder(path: str) -> str:
    """The outermost folder called `artifacts` on the way to a file, or the file's own folder.

    Empty for a file in no folder. A path that ends with / may be that of a folder.
    """
    *folders, name = path.removesuffix("/").split("/")
    within = [*folders, name] if path.endswith("/") else folders
    return "/".join(within[: within.index(_ARTIFACTS) + 1] if _ARTIFACTS in within else folders)


def folder_segments(folder: str) -> tuple[str, ...]:
    """Segments of the key of a folder, for keys of other records."""
    return _folder_key(folder).segments[len(_ROOT.segments) :]


def folder_at(segments: Sequence[str]) -> str:
    """The folder of the output of `folder_segments`."""
    return _path_of(tuple(segments))


def _digest(etags: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(etags).encode()).hexdigest()


def _sealed_key(folder: str) -> ObjectKey:
    return ObjectKey("/".join([*_SEALED.segments, *folder_segments(folder), "s"]))


def _folder_key(folder: str) -> ObjectKey:
    key = _ROOT
    for name in check_file_path(folder).split("/") if folder else ():
        key /= _segment(_FOLDER, name)
    return key


def _file_key(path: str) -> ObjectKey:
    folder, _, name = check_file_path(path).rpartition("/")
    return _folder_key(folder) / _segment(_FILE, name)


def _segment(kind: str, name: str) -> str:
    segment = kind + quote(name)
    if len(segment) > MAX_SEGMENT_BYTES:
        raise InvalidInput(f"The name {name[:80]!r}… is too long: at most {MAX_SEGMENT_BYTES} bytes, escaped")
    return segment


def _path_of(segments: tuple[str, ...]) -> str:
    return "/".join(unquote(segment[len(_FILE) :]) for segment in segments)


def _behind(folder: ObjectKey) -> ObjectKey:
    """A key behind all of a folder, and before anything that follows it."""
    *parents, last = folder.segments
    return ObjectKey("/".join([*parents, last + "0"]))  # "0" is the character that follows "/"
