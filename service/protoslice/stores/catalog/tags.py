"""Tags: mutable names of stores."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from protoslice.catalog import Database
from protoslice.catalog.database import time_of
from protoslice.catalog.spaces import Account
from protoslice.catalog.tags import TagRow, TagTable
from protoslice.errors import Changed, NotFound
from protoslice.facts import Tag
from protoslice.stores.catalog.trust import TrustedTags
from protoslice.stores.names import check_tag
from protoslice.stores.paging import ResultPage


@dataclass(frozen=True, slots=True)
class StoredTag(Tag):
    """A tag with its entity tag, which changes whenever the tag is set."""

    etag: str


class Tags:
    """Tags of one space."""

    def __init__(self, database: Database, account: Account, *, trust_seconds: float = 0) -> None:
        self._table = TagTable(database, account)
        self._trusted = TrustedTags(trust_seconds)

    async def page(self, limit: int, cursor: str | None, *, store: str | None = None) -> ResultPage[StoredTag]:
        """Return a page of the tags by name: all, or those that point at `store`."""
        rows = await self._table.page(limit + 1, check_tag(cursor) if cursor is not None else "", store=store)
        return ResultPage([_stored(row) for row in rows[:limit]], rows[limit - 1].name if len(rows) > limit else None)

    async def get(self, name: str) -> StoredTag:
        """Return the tag called `name`; raise `NotFound` if there is none."""
        row = await self._table.get(check_tag(name))
        if row is None:
            raise NotFound(f"No tag {name!r}")
        return _stored(row)

    async def trusted(self, name: str) -> str:
        """Return the id of the store that a tag points at, or did a moment ago; see `TrustedTags`."""
        return await self._trusted.store(name, self._store_of)

    async def version_before(self, name: str) -> str | None:
        """Return the id of the store that a tag points at, or else that of the last of its name; None if there is none.

        The last of its name is for `resnet50:4` the tag set last among those that begin with `resnet50:`.
        """
        with suppress(NotFound):
            return await self.trusted(name)
        family, colon, _ = name.rpartition(":")
        last = await self._table.last_set(family + colon) if colon else None
        return None if last is None else last.store

    async def put(
        self, names: Sequence[str], store: str, *, if_match: str | None = None, if_none_match: bool = False
    ) -> list[tuple[StoredTag, bool]]:
        """Point tags at a store; return each, and True for a new one. Raise `NotFound` if the store does not exist.

        `if_match` requires that entity tag of the present tag, `if_none_match` that there is none; else `Changed`.
        """
        version = None if if_match is None else _version(if_match)
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(self._trusted.changing(check_tag(name)))
            found = await self._table.put(names, store, if_match=version, if_none_match=if_none_match)
        return [(_stored(each.row), each.created) for each in found]

    async def delete(self, name: str, *, if_match: str | None) -> None:
        """Remove a tag, on condition of `if_match` unless None; the store stays."""
        with self._trusted.changing(check_tag(name)):
            removed = await self._table.remove(name, None if if_match is None else _version(if_match))
        if not removed:
            raise NotFound(f"No tag {name!r}")

    async def _store_of(self, name: str) -> str:
        return (await self.get(name)).store

    def forget(self, names: Sequence[str]) -> None:
        """Believe tags no longer, which this process has changed with a store."""
        for name in names:
            with self._trusted.changing(name):
                pass


def _stored(row: TagRow) -> StoredTag:
    return StoredTag(row.name, row.store, time_of(row.updated), row.version.hex())


def _version(etag: str) -> bytes:
    """Return the version in an entity tag; no tag has that of another."""
    with suppress(ValueError):
        return bytes.fromhex(etag)
    raise Changed("The tag has another entity tag")
