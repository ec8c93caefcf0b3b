"""Pages of stores, at a cost that depends on the page and not on the number of stores."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from protoslice.catalog.stores import ListedStore, StoreTable
from protoslice.errors import IntegrityError, InvalidInput, NotFound
from protoslice.facts import Store
from protoslice.stores.catalog.manifests import Manifests
from protoslice.stores.manifest import Manifest
from protoslice.stores.names import is_tag_prefix
from protoslice.stores.paging import PAGE_BYTES, PageBudget, ResultPage

TAGS_SHOWN: Final = 100
"""Tags shown with a store, at most; `Tags.page` pages through all of them."""
_PLACE: Final = re.compile(r"([0-9a-f]{1,15})-([0-9a-f]{1,16})")

_log = logging.getLogger(__name__)


class StorePages:
    """Stores of one space as the API shows them."""

    def __init__(self, table: StoreTable, manifests: Manifests) -> None:
        self._table = table
        self._manifests = manifests

    async def get(self, store_id: str) -> Store:
        """Return a store with up to `TAGS_SHOWN` tags; raise `NotFound` if there is none."""
        return await self._known(await self._table.shown(digest=store_id, tags=TAGS_SHOWN), f"No store {store_id}")

    async def tagged(self, tag: str) -> Store:
        """Return the store that a tag points at; raise `NotFound` if the tag does not exist."""
        return await self._known(await self._table.shown(tag=tag, tags=TAGS_SHOWN), f"No tag {tag!r}")

    async def described(self, manifest: Manifest) -> Store:
        """Return the store of a manifest, with up to `TAGS_SHOWN` tags."""
        return manifest.as_store(await self._table.tags_of(manifest.id, TAGS_SHOWN))

    async def page(self, *, tag: str | None, type: str | None, limit: int, cursor: str | None) -> ResultPage[Store]:
        """Return a page of stores, newest first, filtered by `type`.

        With `tag`, a prefix of tag names: the stores of those tags in the order of the names, each at its first. Such a
        page may hold fewer stores than there is room for, or none, and yet be followed by another.
        """
        listed = await (self._newest(type, limit + 1, cursor) if tag is None else self._tagged(tag, limit + 1, cursor))
        room = PageBudget(limit)
        fitting = [*takewhile(lambda each: room.takes(each.weight), listed[:limit])]
        after = fitting[-1].place if len(fitting) < len(listed) else None
        found = [store for each in fitting if (store := await self._shown(each)) is not None]
        fits = [store for store in found if tag is None or type in {None, store.type}]
        if not fits and after is not None and tag is None:  # all of them are gone or damaged
            return await self.page(tag=tag, type=type, limit=limit, cursor=after)
        return ResultPage(fits, after)

    async def _newest(self, type: str | None, limit: int, cursor: str | None) -> Sequence[ListedStore]:
        place = None if cursor is None else _PLACE.fullmatch(cursor)
        if cursor is not None and place is None:
            raise InvalidInput("this cursor was not given by this service")
        after = None if place is None else (int(place[1], 16), int(place[2], 16))
        if after is not None and max(after) >= 1 << 63:
            raise InvalidInput("this cursor was not given by this service")
        return await self._table.page(type=type, limit=limit, after=after, room=PAGE_BYTES, tags=TAGS_SHOWN)

    async def _tagged(self, prefix: str, limit: int, cursor: str | None) -> Sequence[ListedStore]:
        if cursor is not None and not is_tag_prefix(cursor):
            raise InvalidInput("this cursor was not given by this service")
        if prefix and not is_tag_prefix(prefix):
            return ()
        return await self._table.tagged(prefix, limit=limit, after=cursor or "", room=PAGE_BYTES, tags=TAGS_SHOWN)

    async def _known(self, found: ListedStore | None, missing: str) -> Store:
        if found is None:
            raise NotFound(missing)
        return (await self._manifests.of(found.row)).as_store(found.tags)

    async def _shown(self, listed: ListedStore) -> Store | None:
        """Return a store of a list; None for a damaged one, which is logged, and one that is gone."""
        try:
            return (await self._manifests.of(listed.row)).as_store(listed.tags)
        except IntegrityError:
            _log.exception("store %s is unreadable and was left out of a list", listed.row.digest)
        except NotFound:
            pass
        return None
