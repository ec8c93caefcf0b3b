"""The artifacts of MLflow: files by path in one repository of each space, and the stores made from their folders."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

from protoslice.catalog.audit import record
from protoslice.catalog.kept_files import COLUMNS, RepositoryFile, kept, put_file
from protoslice.catalog.labels import MLFLOW, label
from protoslice.catalog.live_stores import require_store
from protoslice.catalog.repositories import ensure_repository
from protoslice.catalog.spaces import Usage
from protoslice.database.transactions import LAST, SECOND, Database, Transaction, time_of
from protoslice.defaults import MAX_FILES
from protoslice.errors import Conflict, LimitExceeded, NotFound
from protoslice.file_names import check_file_path, check_form, is_version_control

ARTIFACTS: Final = "artifacts"
"""Name of the folder in which MLflow keeps the files of a run or model."""
_ID: Final = 1
_PAGE: Final = 500
_REMOVED: Final = 500
"""Largest number of files that one transaction removes."""
_THESE: Final = "space = :space AND repository = 1 AND kind = 'file'"
_FROZEN: Final = """
    SELECT store, version FROM names
    WHERE space = :space AND repository = 1 AND kind = 'sealed' AND name = :name AND store IS NOT NULL"""
_BELOW: Final = f"{_THESE} AND name > :first AND name < :end"


class NoArtifact(NotFound):
    """The error for a path at which there is no file or folder."""

    def __init__(self, path: str) -> None:
        super().__init__(f"No artifact {path[:1024]!r}")


class ArtifactEntry(NamedTuple):
    """An entry of a folder; `size` is in bytes, or None for a folder."""

    name: str
    size: int | None


class ArtifactFolder(NamedTuple):
    """A folder that an MLflow client wrote files to, and the time of its last change."""

    path: str
    updated: datetime


@dataclass(frozen=True, slots=True)
class ChangedFolder:
    """A folder of artifacts whose latest changes are in no store; `changed` is the time of the last change."""

    space: str
    name: str
    changed: int


class MlflowTable:
    """The artifacts of one space; rows hold the bytes of small files, which count towards the space's quota."""

    def __init__(self, database: Database, usage: Usage) -> None:
        self._database = database
        self._usage = usage
        self._space = usage.space

    async def put(self, path: str, file: RepositoryFile) -> None:
        """Create or replace a file, unless it is unchanged.

        Raise `Conflict` if a folder has the same path, or if a file has the path of one of the folders above it.
        """
        folder = artifact_folder(check_file_path(path))

        def work(tx: Transaction) -> None:
            require_store(tx, self._space, file.store)
            ensure_repository(tx, self._space, MLFLOW, "", _ID)
            # A file and a folder with the same path must not be created at the same time. For files outside artifact
            # folders, this lock prevents that: the row of a new folder refers to the locked row, and waits for it.
            if folder.rpartition("/")[2] != ARTIFACTS:
                self._lock(tx)
            there = tx.first(
                f"SELECT {COLUMNS} FROM kept_files WHERE {_THESE} AND name = :name", space=self._space, name=path
            )
            if there is not None and replace(kept(there), version=file.version) == file:
                return
            # Lock the folder first: writers of one folder wait for each other here, and then count each other's bytes.
            if folder:
                self._note(tx, folder)
            before = tx.first(
                f"SELECT length(data) FROM kept_files WHERE {_THESE} AND name = :name", space=self._space, name=path
            )
            if before is None:
                self._check_tree(tx, path)
            key = {"space": self._space, "repository": _ID, "kind": "file"}
            _, created = put_file(tx, key, path, file, folder=folder or None)
            held = 0 if before is None else before[0] or 0
            record(tx, self._space, "draft.set", path, {"size": file.size, "replaced": not created})
            self._usage.add(tx, stored_bytes=len(file.data or b"") - held, entries=int(created))

        await self._database.write(work)

    async def get(self, path: str) -> RepositoryFile:
        """Return a file; raise `NoArtifact` if it does not exist."""
        check_form(path)
        sql = f"SELECT {COLUMNS} FROM kept_files WHERE {_THESE} AND name = :name"
        row = await self._database.read(lambda tx: tx.first(sql, space=self._space, name=path))
        if row is None:
            raise NoArtifact(path)
        return kept(row)

    async def remove(self, path: str) -> None:
        """Delete a file, or all files below a folder; raise `NoArtifact` if neither exists."""
        check_form(path)

        def work(tx: Transaction) -> int:
            where, values = f"{_THESE} AND name = :first", {"space": self._space, "first": path}
            if tx.first(f"SELECT 1 FROM kept_files WHERE {where}", **values) is None:
                where, values = _BELOW, {"space": self._space, **_range(path)}
            self._lock(tx)
            picked = f"SELECT folder, name FROM kept_files WHERE {where} ORDER BY name LIMIT :most"
            found = tx.all(picked, **values, most=_REMOVED)
            if not found:
                return 0
            # Writers lock a folder before its files, too: the same order avoids deadlocks.
            for folder in sorted({folder for folder, _ in found if folder is not None}):
                self._note(tx, folder)
            sql = f"DELETE FROM kept_files WHERE {where} AND name <= :last RETURNING folder, length(data)"
            rows = tx.all(sql, **values, last=found[-1][1])
            for folder in sorted({row[0] for row in rows if row[0] is not None}):
                self._drop_empty(tx, folder)
            record(tx, self._space, "draft.removed", path, {"files": len(rows)})
            self._usage.add(tx, stored_bytes=-sum(row[1] or 0 for row in rows), entries=-len(rows))
            return len(rows)

        total, removed = 0, _REMOVED
        while removed >= _REMOVED:  # in several transactions, so that other writers need not wait for long
            removed = await self._database.write(work)
            total += removed
        if not total:
            raise NoArtifact(path)

    async def entries(self, folder: str) -> list[ArtifactEntry]:
        """Return the folders, then the files, directly in a folder, sorted by name.

        Names of version control, such as `.git`, are left out.
        """
        _checked(folder)
        found = list[ArtifactEntry]()
        after: str | None = ""
        while after is not None:
            entries, after = await self._entries(folder, after)
            found += [each for each in entries if not is_version_control(each.name)]
        return sorted(found, key=lambda each: (each.size is not None, each.name))

    async def _entries(self, folder: str, after: str) -> tuple[list[ArtifactEntry], str | None]:
        """Return a page of the entries directly in a folder that follow the path `after`.

        Also return the path after which the next page begins, or None on the last page. If a page ends inside a
        subfolder, the next page begins after that subfolder.
        """
        bounds = _range(folder)
        sql = f"SELECT name, size FROM kept_files WHERE {_BELOW} ORDER BY name LIMIT :limit"
        values = bounds | {"first": max(after, bounds["first"]), "limit": _PAGE}
        rows = await self._database.read(lambda tx: tx.all(sql, space=self._space, **values))
        prefix, found = bounds["first"], dict[str, int | None]()
        for name, size in rows:
            head, slash, _ = name[len(prefix) :].partition("/")
            found[f"{head}{slash}"] = None if slash else size
        entries = [ArtifactEntry(name.removesuffix("/"), size) for name, size in found.items()]
        if len(rows) < _PAGE:
            return entries, None
        last = list(found)[-1]
        return entries, f"{prefix}{last}{LAST}" if last.endswith("/") else rows[-1][0]

    async def files(self, folder: str) -> tuple[dict[str, RepositoryFile], bytes]:
        """Return the files below a folder, sorted by their path in the folder, and the version of the folder.

        Raise `NoArtifact` if the folder does not exist. Raise `LimitExceeded` if it has more files than a store may
        hold.
        """
        found = dict[str, RepositoryFile]()
        bounds = _range(_checked(folder))
        sql = f"SELECT name, {COLUMNS} FROM kept_files WHERE {_BELOW} ORDER BY name LIMIT :limit"
        while len(found) <= MAX_FILES:
            rows = await self._database.read(lambda tx: tx.all(sql, space=self._space, **bounds, limit=_PAGE))
            found |= {row[0]: kept(row[1:]) for row in rows}
            if len(rows) < _PAGE:
                break
            bounds["first"] = rows[-1][0]
        _check_count(folder, found)
        start = len(folder) + 1 if folder else 0
        version = folder_version({path: file.version for path, file in found.items()})
        return {path[start:]: file for path, file in found.items()}, version

    async def versions(self, folder: str) -> dict[str, bytes]:
        """Return the versions of the files below a folder, sorted by path.

        The result has at most one file more than a store may hold.
        """
        return await self._database.read(lambda tx: self._versions(tx, folder))

    async def freeze(self, folder: str, version: bytes, store: str) -> None:
        """Record the store that was made from a version of a folder, unless the folder now has another version.

        Without this condition, a slow replica would overwrite the record that another replica made for a later version.
        """
        lock = """
            SELECT 1 FROM names
            WHERE space = :space AND repository = 1 AND kind = 'folder' AND name = :name FOR UPDATE"""

        def work(tx: Transaction) -> None:
            require_store(tx, self._space, store)
            tx.all(lock, space=self._space, name=folder)  # writers of the folder now wait for this transaction
            if folder_version(self._versions(tx, folder)) != version:
                return
            there = tx.first(_FROZEN, space=self._space, name=folder)
            if there is not None and (there[0], bytes(there[1])) == (store, version):
                return
            tx.run(
                """
                INSERT INTO names (space, repository, kind, name, store, version, updated, label)
                VALUES (:space, 1, 'sealed', :name, :store, :version, :now, :label)
                ON CONFLICT (space, repository, kind, name) DO UPDATE SET
                    store = excluded.store, version = excluded.version, updated = excluded.updated""",
                space=self._space,
                name=folder,
                store=store,
                version=version,
                now=tx.now,
                label=label(self._space, MLFLOW, "", folder),
            )
            record(tx, self._space, "draft.stored", folder, {"store": store})

        await self._database.write(work)

    async def last_frozen(self, folder: str) -> tuple[str, bytes] | None:
        """Return the last store that was made from a folder, and the folder's version at that time, or None."""
        row = await self._database.read(lambda tx: tx.first(_FROZEN, space=self._space, name=folder))
        return None if row is None else (row[0], bytes(row[1]))

    async def frozen_store(self, folder: str) -> str | None:
        """Return the store that was made from the current files of a folder, or None if there is no such store.

        Raise `NoArtifact` if the folder does not exist. Raise `LimitExceeded` if it has more files than a store may
        hold.
        """
        versions = await self.versions(_checked(folder))
        _check_count(folder, versions)
        found = await self.last_frozen(folder)
        return found[0] if found is not None and found[1] == folder_version(versions) else None

    async def is_frozen(self, folder: str, store: str) -> bool:
        """Return True if `store` was made from the current files of a folder."""
        with suppress(NoArtifact, LimitExceeded):
            return await self.frozen_store(folder) == store
        return False

    async def folders(self, below: str, *, limit: int, after: str | None) -> tuple[list[ArtifactFolder], bool]:
        """Return a page of the artifact folders in or below a folder, sorted by path, and True if more follow.

        Artifact folders are called `artifacts`; MLflow creates one for each run and model. Any other folder that
        directly holds files counts too.
        """
        _checked(below)
        sql = """
            SELECT name, updated FROM names WHERE space = :space AND repository = 1 AND kind = 'folder'
                AND name > :after AND name >= :below AND name < :end AND (name = :below OR name > :first)
            ORDER BY name LIMIT :limit"""
        values = {"space": self._space, "below": below, "after": after or "", "limit": limit + 1, **_range(below)}
        rows = await self._database.read(lambda tx: tx.all(sql, **values))
        found = [ArtifactFolder(name, time_of(updated)) for name, updated in rows]
        return found[:limit], len(found) > limit

    def _versions(self, tx: Transaction, folder: str) -> dict[str, bytes]:
        sql = f"SELECT name, version FROM kept_files WHERE {_BELOW} ORDER BY name LIMIT :limit"
        rows = tx.all(sql, space=self._space, **_range(folder), limit=MAX_FILES + 1)
        return {name: bytes(version) for name, version in rows}

    def _lock(self, tx: Transaction) -> None:
        """Lock the repository's row: concurrent writers would otherwise not see each other's new files."""
        tx.all("SELECT 1 FROM repositories WHERE space = :space AND id = :id FOR UPDATE", space=self._space, id=_ID)

    def _check_tree(self, tx: Transaction, path: str) -> None:
        """Raise `Conflict` if there are files below `path`, or if a parent of `path` is a file."""
        below = f"SELECT name FROM kept_files WHERE {_BELOW} LIMIT 1"
        if tx.first(below, space=self._space, **_range(path)) is not None:
            raise Conflict(f"{path!r} is a folder: remove it first, or choose another name for the file")
        names = {f"n{end}": path[:end] for end, character in enumerate(path) if character == "/"}
        if names:
            above = (
                f"SELECT name FROM kept_files WHERE {_THESE} AND name IN ({', '.join(f':{each}' for each in names)})"
            )
            found = tx.first(above, space=self._space, **names)
            if found is not None:
                raise Conflict(f"{found[0]!r} is a file and not a folder: remove it first, or choose another folder")

    def _note(self, tx: Transaction, folder: str) -> None:
        tx.run(
            """
            INSERT INTO names (space, repository, kind, name, version, updated, changed)
            VALUES (:space, 1, 'folder', :name, :version, :now, :now)
            ON CONFLICT (space, repository, kind, name) DO UPDATE SET
                updated = excluded.updated, changed = excluded.changed""",
            space=self._space,
            name=folder,
            version=secrets.token_bytes(16),
            now=tx.now,
        )

    def _drop_empty(self, tx: Transaction, folder: str) -> None:
        """Delete the row of a folder if the folder has no files."""
        tx.run(
            """
            DELETE FROM names WHERE space = :space AND repository = 1 AND kind = 'folder' AND name = :folder
                AND NOT EXISTS (
                    SELECT 1 FROM kept_files WHERE space = :space AND repository = 1 AND folder = :folder
                )""",
            space=self._space,
            folder=folder,
        )


def artifact_folder(path: str) -> str:
    """Return the outermost folder called `artifacts` in the path of a file, else the folder of the file.

    Return an empty text for a file that is in no folder.
    """
    *folders, _ = path.split("/")
    return "/".join(folders[: folders.index(ARTIFACTS) + 1] if ARTIFACTS in folders else folders)


def folder_version(versions: Mapping[str, bytes]) -> bytes:
    """Return the version of a folder, computed from the versions of its files, by path."""
    return hashlib.sha256(json.dumps([(path, versions[path].hex()) for path in sorted(versions)]).encode()).digest()


class ChangedFolders:
    """The folders of artifacts, in all spaces, whose latest changes are in no store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def quiet(self, seconds: float, limit: int) -> list[ChangedFolder]:
        """Return at most `limit` folders that have been unchanged for at least `seconds`, oldest first."""
        sql = """
            SELECT space, name, changed FROM names WHERE changed IS NOT NULL AND changed <= :before
            ORDER BY changed LIMIT :limit"""
        return await self._database.read(
            lambda tx: [ChangedFolder(*row) for row in tx.all(sql, before=tx.now - int(seconds * SECOND), limit=limit)],
            background=True,
        )

    async def settle(self, folder: ChangedFolder) -> None:
        """Record that a store was made from a folder, unless the folder has changed since `folder` was read."""
        sql = """
            UPDATE names SET changed = NULL
            WHERE space = :space AND repository = 1 AND kind = 'folder' AND name = :name AND changed = :changed"""
        values = {"space": folder.space, "name": folder.name, "changed": folder.changed}
        await self._database.write(lambda tx: tx.run(sql, **values), background=True)


def _range(folder: str) -> dict[str, str]:
    """Return SQL parameters with the bounds of the paths below a folder."""
    return {"first": f"{folder}/", "end": f"{folder}0"} if folder else {"first": "", "end": LAST}  # "0" sorts after "/"


def _checked(folder: str) -> str:
    return check_form(folder) if folder else folder


def _check_count(folder: str, found: Mapping[str, object]) -> None:
    if not found:
        raise NoArtifact(folder)
    if len(found) > MAX_FILES:
        raise LimitExceeded(f"The folder {folder!r} has more than {MAX_FILES} artifacts: choose a folder inside it")
