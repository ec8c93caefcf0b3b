"""JSON of repositories, files and commits as the hub's clients read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from protoslice.facts import File
from protoslice.file_names import without_version_control
from protoslice.repositories import VIEWS, Commit, ComputedFile, NoFile, Ref, ShownCommit
from protoslice.repositories.git_format import blob_id, is_plain, pointer_of
from protoslice.server.registries.hub.cards import Card, known_of

__all__ = ["Ids", "commit_json", "entries_of", "file_json", "info_json", "listed_json", "refs_json", "time_text"]

Ids = Mapping[str, str]
"""Ids in git of small text files by SHA-256; all others are of git-lfs."""


def file_json(file: File, ids: Ids) -> dict[str, Any]:
    """A file; one of git-lfs has `lfs`, and clients copy it by that. Ids are those of git."""
    return {"type": "file", "path": file.path, "size": file.size, **_identity(file, ids, "oid", "oid")}


def _sibling_json(file: File, ids: Ids | None) -> dict[str, Any]:
    """A file of a repository's description, with size and ids if they are given; the digest has another name."""
    if ids is None:
        return {"rfilename": file.path}
    return {"rfilename": file.path, "size": file.size, **_identity(file, ids, "blobId", "sha256")}


def _identity(file: File, ids: Ids, blob: str, digest: str) -> dict[str, Any]:
    if isinstance(file, ComputedFile):
        return {blob: file.tag}
    sha256 = file.sha256 or ""
    if is_plain(file.path, file.size):
        return {blob: ids[sha256]}
    pointer = pointer_of(sha256, file.size)
    lfs = {digest: sha256, "size": file.size, "pointerSize": len(pointer)}
    return {blob: blob_id(pointer), "lfs": lfs}


def _folder_json(path: str) -> dict[str, Any]:
    return {"type": "directory", "path": path, "size": 0, "oid": ""}


def entries_of(files: Mapping[str, File], folder: str, *, recursive: bool) -> list[tuple[str, File | None]]:
    """Files and folders (None) below a folder, by path; `NoFile` for a folder that does not exist.

    Cost follows the number of entries: a folder is looked at once, however many files it holds.
    """
    prefix = f"{folder}/" if folder else ""
    found: dict[str, File | None] = {}
    for path, file in without_version_control(files).items():
        if not path.startswith(prefix):
            continue
        below = path.find("/", len(prefix))
        if not recursive:
            found[path if below < 0 else path[:below]] = file if below < 0 else None
            continue
        found[path] = file
        parent = path.rpartition("/")[0]
        while len(parent) > len(folder) and parent not in found:
            found[parent] = None
            parent = parent.rpartition("/")[0]
    if folder and not found:
        raise NoFile(folder)
    return sorted(found.items(), key=lambda entry: entry[0])


def listed_json(
    entries: Sequence[tuple[str, File | None]], ids: Ids, last: Mapping[str, Commit] | None = None
) -> list[dict[str, Any]]:
    """Files and folders, with the `last` commits that changed them, as far as they are known."""

    def shown(path: str, file: File | None) -> dict[str, Any]:
        found = _folder_json(path) if file is None else file_json(file, ids)
        if last is not None and path in last:
            commit = commit_json(last[path])
            found["lastCommit"] = {name: commit[name] for name in ("id", "title", "date")}
        return found

    return [shown(*entry) for entry in entries]


def info_json(
    name: str,
    created: datetime,
    shown: ShownCommit,
    files: Mapping[str, File],
    ids: Ids | None,
    card: Card,
    *,
    dataset: bool,
    private: bool,
) -> dict[str, Any]:
    """A repository at a commit, or at its view; with sizes and ids of files if ids are given."""
    siblings = [_sibling_json(file, ids) for _, file in sorted(without_version_control(files).items())]
    return {
        "_id": shown.id[:24],
        "id": name,
        "sha": shown.id,
        "private": private,
        "gated": False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "createdAt": time_text(created),
        "lastModified": time_text(max(shown.commit.time, created)),
        "siblings": siblings,
        **known_of(card, dataset=dataset),
        **({"cardData": card} if card else {}),
    }


def refs_json(refs: Sequence[Ref]) -> dict[str, Any]:
    """Branches and tags, and views of those with files: clients know the list of what a service converts.

    There are no pull requests.
    """
    by_kind: dict[str, list[dict[str, str]]] = {"heads": [], "tags": [], "views": []}
    for ref in refs:
        by_kind[ref.kind].append({"name": ref.name, "ref": f"refs/{ref.key}", "targetCommit": ref.commit.id})
        if ref.commit.store is not None:
            view, id = f"{VIEWS}{ref.name}", ShownCommit(ref.commit, viewed=True).id
            by_kind["views"].append({"name": view, "ref": f"refs/{view}", "targetCommit": id})
    return {
        "branches": by_kind["heads"],
        "tags": by_kind["tags"],
        "converts": by_kind["views"],
        "pullRequests": list[object](),
    }


def commit_json(commit: Commit) -> dict[str, Any]:
    """A commit of a history."""
    return {
        "id": commit.id,
        "title": commit.author.title,
        "message": commit.author.message,
        "authors": [{"user": commit.author.user or "anonymous"}],
        "date": time_text(commit.time),
    }


def time_text(time: datetime) -> str:
    """A time in UTC with milliseconds, the one form that clients parse."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1000:03d}Z"
