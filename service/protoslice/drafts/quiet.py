"""Folders of drafts that have changed lately, by time; those that are quiet since become stores.

changing/<window>/<space>/d-<folder>/…/n    a folder was written in the window that began at that millisecond

A writer notes the folder once it has written, and answers after that. A note is due when the window behind its own has
passed too; a folder that was noted in that one waits for the later note. Any replica makes the store, and removes the
note after that: it is the same store whoever makes it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from protoslice.concurrency.gather import WINDOW, map_concurrently
from protoslice.concurrency.lru import LruCache
from protoslice.drafts.drafts import Drafts
from protoslice.drafts.records import artifact_folder, folder_at, folder_segments
from protoslice.errors import Conflict, NotFound, ProtosliceError, StorageUnavailable
from protoslice.storage import ObjectKey, Storage
from protoslice.stores import Stores

_log = logging.getLogger(__name__)

_CHANGING: Final = ObjectKey("changing")
_NOTED: Final = 1 << 14
"""Notes that a process remembers: a folder costs a write for each window, not for each file."""
LOOKS: Final = 4
"""Looks within a window, about."""
_PAGE: Final = 4 * WINDOW
_AT_ONCE: Final = 4
"""Stores that a replica makes at a time, of up to 10 000 files each, beside its requests."""


class QuietFolders:
    """Folders of all spaces of a storage, which become stores once `seconds` pass without a write."""

    def __init__(self, storage: Storage, stores_of: Callable[[str], Awaitable[Stores]], seconds: float) -> None:
        self._storage = storage
        self._stores_of = stores_of
        self._seconds = seconds
        self._step = max(1, int(seconds * 1000))
        self._noted: LruCache[ObjectKey, bool] = LruCache(most=_NOTED, room=_NOTED)
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def changed(self, space: str, path: str) -> None:
        """Note that a file has changed; see `artifact_folder` for its path."""
        folder = artifact_folder(path)
        if not folder:
            return
        key = _key(self._window(), space, folder_segments(folder))
        if self._noted.get(key) is None:
            await self._storage.put(key, b"")
            self._noted.put(key, True, 1)

    async def look_for_ever(self) -> None:
        """Look time and again; a failure is tried again."""
        while True:
            await asyncio.sleep(max(self._seconds / LOOKS, 1) * (0.5 + random.random()))
            try:
                await self.look()
            except ProtosliceError as error:
                _log.warning("could not look for finished artifacts: %s", type(error).__name__)

    async def look(self) -> None:
        """Make stores of folders that are quiet; those that cannot be made are left to their next change."""
        due, after = f"{self._window() - 2 * self._step:015}", None
        while True:
            page = await self._storage.list(_CHANGING, after=after, limit=_PAGE)
            found = [item.key for item in page.items if item.key.segments[1] <= due]
            first = int(secrets.token_hex(4), 16) % max(1, len(found))  # replicas that look at once begin apart
            await map_concurrently(self._settle, found[first:] + found[:first])
            if page.after is None or len(found) < len(page.items):
                return
            after = page.after

    def _window(self) -> int:
        # A time, not a number of windows: notes keep their meaning when the setting changes.
        return int(time.time() * 1000) // self._step * self._step

    async def _settle(self, note: ObjectKey) -> None:
        """Make the store of the folder of a note, unless a later note will, and remove the note."""
        _, window, space, *folder, _ = note.segments
        async with self._turns:
            if not await self._has(note):  # another replica was first
                return
            later = _key(int(window) + self._step, space, folder)
            if await self._has(later) or await self._made(space, folder_at(folder)):
                with suppress(NotFound):
                    await self._storage.delete(note)

    async def _made(self, space: str, folder: str) -> bool:
        """Make the store of a folder; False when the storage does not answer, to be tried again."""
        try:
            await Drafts(await self._stores_of(space)).sealed(folder)
        except NotFound:  # emptied since, or the space is gone
            return True
        except (Conflict, StorageUnavailable):
            return False
        except ProtosliceError as error:
            _log.warning(
                "could not create a store of the artifacts in %s of %s: %s", folder[:200], space, error.message
            )
        return True

    async def _has(self, key: ObjectKey) -> bool:
        with suppress(NotFound):
            await self._storage.stat(key)
            return True
        return False


def _key(window: int, space: str, folder: Sequence[str]) -> ObjectKey:
    return ObjectKey("/".join([*_CHANGING.segments, f"{window:015}", space, *folder, "n"]))
