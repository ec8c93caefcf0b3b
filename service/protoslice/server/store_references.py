"""Names of registries that refer to stores.

Branches, tags and commits of repositories, and artifacts of MLflow are rows, found by their stores. Tags of OCI are
found by a scan of their records: the removal of a store looks at all, what is shown comes from a bounded number.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from protoslice.artifacts import RepositoryName, catalog
from protoslice.artifacts.records import ArtifactRecords
from protoslice.catalog.drafts import PROTOCOL
from protoslice.catalog.repositories import HUB, NamesOfStores
from protoslice.concurrency.gather import each_concurrently, first, run_concurrently
from protoslice.drafts import Drafts
from protoslice.errors import IntegrityError, NotFound, StillNamed
from protoslice.facts import Store, StoreName
from protoslice.server.store_names import MLFLOW
from protoslice.stores import Stores

MOST_NAMES: Final = 100
"""Names shown with a store, or with the refusal to remove it."""
_MOST_REPOSITORIES: Final = 256
"""Repositories of OCI that are looked at to show names."""
_PAGE: Final = 250

_log = logging.getLogger(__name__)


class StoreReferences:
    """Names that refer to the stores of one space."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._named = NamesOfStores(stores.database, stores.space)
        self._drafts = Drafts(stores)

    async def named(self, stores: Sequence[Store]) -> list[Store]:
        """Return the stores with their names, as far as a bounded scan finds them."""
        if not stores:
            return []
        found = await self._scan([store.id for store in stores], bounded=True)
        return [_with_names(store, found.get(store.id, ())) for store in stores]

    async def check(self, forced: Collection[str], store_id: str, tags: Collection[str]) -> None:
        """Raise `StillNamed` if names refer to a store that are not among `forced`.

        A name that is made after this has looked for it is not seen: it breaks, as it would if the store had been
        removed just before.
        """
        try:
            await self._stores.outline(store_id)
        except NotFound:
            return
        except IntegrityError:
            pass  # a damaged store has names too
        names = [*(StoreName("tag", tag) for tag in sorted(tags))]
        found = await self._scan([store_id], bounded=False, most=MOST_NAMES + len(forced))
        names += found.get(store_id, ())
        left = [each for each in names if each.name not in forced]
        if left:
            raise _still_named(store_id, left)

    async def _scan(
        self, ids: Sequence[str], *, bounded: bool, most: int = MOST_NAMES
    ) -> Mapping[str, list[StoreName]]:
        """Return names of stores by their ids, of repositories at most `most` and one more."""
        found: dict[str, set[StoreName]] = {}

        def note(protocol: str, store: str, name: str) -> None:
            found.setdefault(store, set()).add(StoreName(protocol, name))

        async def named() -> None:
            names = await self._named.naming(ids, most + 1)
            for each in names:
                if each.protocol == HUB:
                    note("hub", each.store, f"{each.repository}@{each.name}")
            sealed = [each for each in names if each.protocol == PROTOCOL]
            for store, folder in await self._drafts.naming(ids, sealed):
                note("mlflow", store, MLFLOW + folder)

        async def oci(name: str) -> None:
            for store, reference in await ArtifactRecords(self._stores.storage, RepositoryName(name)).naming(ids):
                note("oci", store, name + reference)

        repositories = first(self._oci_names(), _MOST_REPOSITORIES if bounded else None)
        await run_concurrently(named, lambda: each_concurrently(_unless_damaged(oci), repositories))
        return {store: sorted(names, key=_order) for store, names in found.items()}

    async def _oci_names(self) -> AsyncIterator[str]:
        after, more = None, True
        while more:
            names, more = await catalog(self._stores, limit=_PAGE, after=after)
            for after in names:
                yield after


def _unless_damaged(look: Callable[[str], Awaitable[None]]) -> Callable[[str], Awaitable[None]]:
    """Pass over a repository with a damaged record, which is logged: it must not keep stores for ever."""

    async def looking(name: str) -> None:
        try:
            await look(name)
        except IntegrityError:
            _log.exception(
                "repository %r skipped in the search for references to a store: its records are damaged", name
            )

    return looking


def _order(name: StoreName) -> tuple[str, str]:
    return name.protocol, name.name


def _with_names(store: Store, names: Collection[StoreName]) -> Store:
    tags = [StoreName("tag", tag) for tag in store.tags]
    return replace(store, names=(*tags, *names)[:MOST_NAMES])


def _still_named(store_id: str, left: Sequence[StoreName]) -> StillNamed:
    shown = ", ".join(f"{each.name} ({each.protocol})" for each in left[:10])
    others = f" and {len(left) - 10} more" if len(left) > 10 else ""
    error = StillNamed(
        f"Store {store_id[:12]} is referenced by {shown}{others}: remove these names first, or list them in `force`"
    )
    error.names = tuple((each.protocol, each.name) for each in left[:MOST_NAMES])
    error.more = len(left) > MOST_NAMES
    return error
