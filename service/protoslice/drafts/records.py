"""Artifacts as MLflow names them: files and folders by path, in the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from protoslice.catalog.database import time_of
from protoslice.catalog.drafts import ARTIFACTS, DraftTable, folder_version
from protoslice.catalog.kept_files import KeptFile
from protoslice.defaults import MAX_FILES
from protoslice.errors import LimitExceeded, NotFound
from protoslice.file_names import check_file_path, check_form, is_version_control
from protoslice.stores import Stores


class NoDraft(NotFound):
    """No file or folder at a path."""

    def __init__(self, path: str) -> None:
        super().__init__(f"No artifact {path[:1024]!r}")


class DraftEntry(NamedTuple):
    """An entry of a folder; `size` is None for a folder."""

    name: str
    size: int | None


class ArtifactFolder(NamedTuple):
    """A folder that a client of MLflow filled, and the time of its last change."""

    path: str
    updated: datetime


class DraftFolder(NamedTuple):
    """All files below a folder by path, sorted, and the digest of the versions that were read."""

    files: Mapping[str, KeptFile]
    version: bytes


class DraftRecords:
    """Artifacts of one space. The bytes of small files are in their rows, and count for the quota of the space."""

    def __init__(self, stores: Stores) -> None:
        self._table = DraftTable(stores.database, stores.room.account)

    async def put(self, path: str, file: KeptFile) -> None:
        """Create or replace a file."""
        await self._table.put(check_file_path(path), artifact_folder(path), file)

    async def get(self, path: str) -> KeptFile:
        """Return a file; raise `NoDraft` if there is none."""
        found = await self._table.get(check_form(path))
        if found is None:
            raise NoDraft(path)
        return found

    async def delete(self, path: str) -> None:
        """Remove a file, or a folder with all in it; raise `NoDraft` if there is neither."""
        if not await self._table.remove(check_form(path)):
            raise NoDraft(path)

    async def folder(self, folder: str) -> DraftFolder:
        """Return all files below a folder; raise `LimitExceeded` for more than a store holds."""
        found = await self._table.files(_checked(folder), MAX_FILES)
        _check_count(folder, found)
        start = len(folder) + 1 if folder else 0
        versions = {path: file.version for path, file in found.items()}
        return DraftFolder({path[start:]: file for path, file in found.items()}, folder_version(versions))

    async def sealed(self, folder: str) -> str | None:
        """Return the store that was made of the current files of a folder, or None if none is known.

        Raise `NoDraft` if there is no such folder.
        """
        versions = await self._table.versions(_checked(folder), MAX_FILES + 1)
        if not versions:
            raise NoDraft(folder)
        _check_count(folder, versions)
        found = await self._table.sealed(folder)
        return found[0] if found is not None and found[1] == folder_version(versions) else None

    async def seal(self, folder: str, version: bytes, store: str) -> None:
        """Note the store that was made of a version of a folder."""
        await self._table.seal(folder, version, store, MAX_FILES)

    async def entries(self, folder: str) -> list[DraftEntry]:
        """Return folders and files directly in a folder, each kind by name; clients write what is listed to a disk."""
        found, after = list[DraftEntry](), ""
        while True:
            entries, following = await self._table.entries(_checked(folder), after)
            found += [DraftEntry(*each) for each in entries if not is_version_control(each[0])]
            if following is None:
                return sorted(found, key=lambda each: (each.size is not None, each.name))
            after = following

    async def artifact_folders(self, below: str, *, limit: int, after: str | None) -> tuple[list[ArtifactFolder], bool]:
        """Return a page of the folders of artifacts below a folder, and True if there are more.

        A folder called `artifacts` is one, as MLflow has it for each run and model, and any other folder that holds
        files directly.
        """
        rows = await self._table.folders(_checked(below), limit + 1, after or "")
        found = [ArtifactFolder(row.name, time_of(row.updated)) for row in rows]
        return found[:limit], len(found) > limit

    async def last_sealed(self, folder: str) -> str | None:
        """Return the store that was made last of a folder, which may have changed since; None if none is known."""
        found = await self._table.sealed(folder)
        return None if found is None else found[0]

    async def names_now(self, folder: str, store: str) -> bool:
        """Return True if a store was made of the current files of a folder."""
        with suppress(NoDraft, LimitExceeded):
            return await self.sealed(folder) == store
        return False


def artifact_folder(path: str) -> str:
    """Return the outermost folder called `artifacts` on the way to a file, or the file's own folder.

    Empty for a file in no folder.
    """
    *folders, _ = path.split("/")
    return "/".join(folders[: folders.index(ARTIFACTS) + 1] if ARTIFACTS in folders else folders)


def _checked(folder: str) -> str:
    return check_form(folder) if folder else folder


def _check_count(folder: str, found: Mapping[str, object]) -> None:
    if len(found) > MAX_FILES:
        raise LimitExceeded(f"More than {MAX_FILES} artifacts in {folder!r}: choose a folder inside it")
