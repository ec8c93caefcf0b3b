"""Names of registries that refer to stores."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from protoslice.catalog.labels import MLFLOW, shown_name
from protoslice.catalog.repositories import NamesOfStores
from protoslice.errors import IntegrityError, NotFound, StillNamed
from protoslice.facts import Store, StoreName
from protoslice.mlflow import MlflowArtifacts
from protoslice.stores import Stores

MOST_NAMES: Final = 100
"""Names shown with a store, or with the refusal to remove it."""


class StoreReferences:
    """Names that refer to the stores of one space."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._named = NamesOfStores(stores.database, stores.space)
        self._mlflow = MlflowArtifacts(stores)

    async def named(self, stores: Sequence[Store]) -> list[Store]:
        """Return the stores with their names, at most `MOST_NAMES` for each."""
        if not stores:
            return []
        found = await self._names([store.id for store in stores])
        return [_with_names(store, found.get(store.id, ())) for store in stores]

    async def check(self, forced: Collection[str], store_id: str, tags: Collection[str]) -> None:
        """Raise `StillNamed` if names refer to a store that are not among `forced`.

        A name that is made after this has looked for it is not seen: it breaks, as it would if the store had been
        removed just before.
        """
        try:
            await self._stores.manifests.get(store_id)
        except NotFound:
            return
        except IntegrityError:
            pass  # a damaged store has names too
        found = await self._names([store_id], most=MOST_NAMES + len(forced))
        names = [*(StoreName("tag", tag) for tag in sorted(tags)), *found.get(store_id, ())]
        left = [each for each in names if each.name not in forced]
        if left:
            raise _still_named(store_id, left)

    async def _names(self, ids: Sequence[str], *, most: int = MOST_NAMES) -> Mapping[str, list[StoreName]]:
        """Return names of stores by their ids, of repositories at most `most` and one more."""
        found: dict[str, set[StoreName]] = {}
        names = await self._named.naming(ids, most + 1)
        for each in names:
            if each.protocol != MLFLOW:
                name = StoreName(each.protocol, shown_name(each.protocol, each.repository, each.name))
                found.setdefault(each.store, set()).add(name)
        for store, folder in await self._mlflow.naming([each for each in names if each.protocol == MLFLOW]):
            found.setdefault(store, set()).add(StoreName(MLFLOW, shown_name(MLFLOW, "", folder)))
        return {store: sorted(names, key=_order) for store, names in found.items()}


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
