"""Revisions that show a commit's tensors as computed safetensors files, next to the commit's own files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from protoslice.catalog.histories import COMMIT_DIGITS, Commit
from protoslice.catalog.syntax import VIEWS
from protoslice.errors import NoRoot, Unsupported
from protoslice.facts import File
from protoslice.repositories.change import files_of
from protoslice.serving import Representation
from protoslice.stores import Stores
from protoslice.tensors.safetensors_file import INDEX, WHOLE
from protoslice.versions import READERS
from protoslice.views import tensors

_SPELLED_OUT: Final = f"refs/{VIEWS}"
_MASK: Final = int(hashlib.sha256(f"protoslice views {READERS}".encode()).hexdigest()[:COMMIT_DIGITS], 16)


@dataclass(frozen=True, slots=True)
class ComputedFile(File):
    """A computed file of a view, whose SHA-256 is not known."""

    content: Representation

    @property
    def tag(self) -> str:
        """The entity tag, which differs for other bytes and does not look like a SHA-256."""
        return self.content.etag[:COMMIT_DIGITS]


@dataclass(frozen=True, slots=True)
class ShownCommit:
    """A commit as clients see it: the commit itself or a view of it."""

    commit: Commit
    viewed: bool = False

    @property
    def id(self) -> str:
        """The id of the commit, or the id of its view, which no other commit has."""
        return counterpart(self.commit.id) if self.viewed else self.commit.id

    async def files(self, stores: Stores) -> Mapping[str, File]:
        """Return the files by path; a view adds computed files unless the commit has safetensors or has no tensors."""
        found = await files_of(stores, self.commit)
        if not self.viewed or self.commit.store is None or WHOLE in found or INDEX in found:
            return found
        made = dict[str, File]()
        with suppress(NoRoot, Unsupported):
            shards = await tensors.shards(await stores.view(self.commit.store))
            made |= {path: ComputedFile(path, shard.size, None, shard) for path, shard in shards.items()}
        return {**made, **found}


def viewed_revision(revision: str) -> str | None:
    """Return the revision whose view `revision` names, or None if it does not name a view."""
    for prefix in (VIEWS, _SPELLED_OUT):
        if revision.startswith(prefix):
            return revision.removeprefix(prefix)
    return None


def counterpart(commit: str) -> str:
    """Convert the id of a commit to the id of its view, or the id of a view to the id of its commit.

    The ids of views change with the version of the model readers, because the bytes may change.
    """
    return f"{int(commit, 16) ^ _MASK:0{COMMIT_DIGITS}x}"
