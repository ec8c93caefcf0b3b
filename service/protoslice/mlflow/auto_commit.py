"""Folders of artifacts that have changed, and become stores after a time without writes.

Any replica can make the store: the result is the same.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from protoslice.catalog.mlflow import ChangedFolder, ChangedFolders
from protoslice.concurrency.gather import map_concurrently
from protoslice.database import Database
from protoslice.errors import Conflict, NotFound, ProtosliceError, StorageUnavailable
from protoslice.mlflow.artifacts import MlflowArtifacts
from protoslice.stores import Stores

_log = logging.getLogger(__name__)

LOOKS: Final = 4
"""Looks within the time after which a folder is quiet, about."""
_PAGE: Final = 256
_AT_ONCE: Final = 4
"""Stores that a replica makes at a time, of up to 10 000 files each, beside its requests."""


class AutoCommit:
    """Folders of all spaces, which become stores once `seconds` pass without a write."""

    def __init__(self, database: Database, stores_of: Callable[[str], Awaitable[Stores]], seconds: float) -> None:
        self._table = ChangedFolders(database)
        self._stores_of = stores_of
        self._seconds = seconds
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def look_for_ever(self) -> None:
        """Look time and again; a failure is tried again."""
        while True:
            await asyncio.sleep(max(self._seconds / LOOKS, 1) * (0.5 + random.random()))
            try:
                await self.look()
            except ProtosliceError as error:
                _log.warning("could not search for MLflow folders to turn into stores: %s", type(error).__name__)

    async def look(self) -> None:
        """Make stores of folders that are quiet; those that cannot be made are left to their next change."""
        while True:
            found = await self._table.quiet(self._seconds, _PAGE)
            first = int(secrets.token_hex(4), 16) % max(1, len(found))  # replicas that look at once begin apart
            settled = await map_concurrently(self._settle, found[first:] + found[:first])
            if len(found) < _PAGE or not all(settled):
                return

    async def _settle(self, folder: ChangedFolder) -> bool:
        """Make the store of a folder; return False if storage or database do not answer, to be tried again."""
        async with self._turns:
            try:
                await MlflowArtifacts(await self._stores_of(folder.space)).freeze(folder.name)
            except NotFound:  # emptied since, or the space is gone
                pass
            except (Conflict, StorageUnavailable):
                return False
            except ProtosliceError as error:
                _log.warning(
                    "could not create a store of the MLflow folder %s in space %s: %s",
                    folder.name[:200],
                    folder.space,
                    error.message,
                )
            await self._table.settle(folder)
            return True
