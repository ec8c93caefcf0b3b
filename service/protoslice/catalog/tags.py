"""The tags of stores: names in repository 0 of each space, which point at stores by digest."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from protoslice.catalog.labels import STORES, label
from protoslice.catalog.live_stores import lock_store
from protoslice.catalog.repositories import ensure_repository
from protoslice.catalog.spaces import Usage
from protoslice.catalog.syntax import check_tag
from protoslice.catalog.webhooks import emit
from protoslice.database.transactions import LAST, Database, Row, Transaction, check_unchanged, time_of
from protoslice.errors import Changed, LimitExceeded, NotFound
from protoslice.facts import Tag

TAGS: Final = "space = :space AND repository = 0 AND kind = 'tag'"
TAGS_OF_A_STORE: Final = 1000
"""Largest number of tags of one store; all of them are shown with the store and removed with it."""
_COLUMNS: Final = "name, store, version, updated"
_ID: Final = 0
_FAMILY: Final = 1000
"""Largest number of tags with one prefix that are searched for the tag that was set last."""


@dataclass(frozen=True, slots=True)
class StoredTag(Tag):
    """A tag with its entity tag, which changes whenever the tag is set."""

    etag: str


@dataclass(frozen=True, slots=True)
class SetTag:
    """A tag after an attempt to set it; `created` is True if it is new, and `is_set` is True if the attempt set it."""

    tag: StoredTag
    created: bool
    is_set: bool = True


class TagTable:
    """The tags of one space."""

    def __init__(self, database: Database, usage: Usage) -> None:
        self._database = database
        self._usage = usage
        self._space = usage.space

    async def get(self, name: str) -> StoredTag:
        """Return a tag; raise `NotFound` if it does not exist."""
        check_tag(name)
        sql = f"SELECT {_COLUMNS} FROM names WHERE {TAGS} AND name = :name"
        row = await self._database.read(lambda tx: tx.first(sql, space=self._space, name=name))
        if row is None:
            raise NotFound(f"No tag {name!r}")
        return _tag(row)

    async def page(
        self, limit: int, cursor: str | None = None, *, store: str | None = None
    ) -> tuple[list[StoredTag], str | None]:
        """Return a page of tags, sorted by name, and the cursor of the next page or None.

        If `store` is not None, return only tags of that store.
        """
        after = "" if cursor is None else check_tag(cursor)
        sql = f"""
            SELECT {_COLUMNS} FROM names
            WHERE {TAGS} AND name > :after {"AND store = :store" if store is not None else ""}
            ORDER BY name LIMIT :limit"""
        values = {"space": self._space, "after": after, "store": store, "limit": limit + 1}
        found = await self._database.read(lambda tx: [_tag(row) for row in tx.all(sql, **values)])
        return found[:limit], found[limit - 1].name if len(found) > limit else None

    async def last_set(self, prefix: str) -> StoredTag | None:
        """Return the tag that was set last among the first 1000 tags that begin with `prefix`, or None."""
        sql = f"""
            SELECT {_COLUMNS} FROM (
                SELECT {_COLUMNS} FROM names
                WHERE {TAGS} AND name >= :prefix AND name < :end ORDER BY name LIMIT {_FAMILY}
            ) family ORDER BY updated DESC, name DESC LIMIT 1"""
        values = {"space": self._space, "prefix": prefix, "end": prefix + LAST}
        row = await self._database.read(lambda tx: tx.first(sql, **values))
        return None if row is None else _tag(row)

    async def put(
        self, names: Sequence[str], store: str, *, if_match: str | None = None, if_none_match: bool = False
    ) -> list[tuple[StoredTag, bool]]:
        """Point tags at a store in one transaction; return the tags, sorted by name, each with True if it is new.

        Raise `NotFound` if the store does not exist. Raise `Changed` if `if_match` is neither None nor the entity tag
        of each tag. If `if_none_match` is True, raise `Changed` if any of the tags exists.
        """
        names = sorted(map(check_tag, names))

        def work(tx: Transaction) -> list[tuple[StoredTag, bool]]:
            if not lock_store(tx, self._space, store):
                raise NotFound(f"No store {store}")
            found = []
            for name in names:
                if if_match is not None:
                    there = _locked(tx, self._space, name)
                    check_unchanged(f"Tag {name!r}", there and there.etag, if_match)
                each = set_tag(tx, self._space, name, store, new=if_none_match)
                if not each.is_set:
                    raise Changed(f"Tag {name!r} exists already")
                found.append((each.tag, each.created))
            self._usage.add(tx, entries=sum(created for _, created in found))
            return found

        return await self._database.write(work)

    async def remove(self, name: str, *, if_match: str | None = None) -> None:
        """Delete a tag; raise `NotFound` if it does not exist.

        Raise `Changed` if `if_match` is neither None nor the tag's entity tag.
        """
        check_tag(name)

        def work(tx: Transaction) -> None:
            there = _locked(tx, self._space, name)
            if there is None:
                raise NotFound(f"No tag {name!r}")
            check_unchanged(f"Tag {name!r}", there.etag, if_match)
            tx.run(f"DELETE FROM names WHERE {TAGS} AND name = :name", space=self._space, name=name)
            emit(tx, self._space, "tag.removed", name, {"tag": name, "store": there.store})
            self._usage.add(tx, entries=-1)

        await self._database.write(work)


def set_tag(tx: Transaction, space: str, name: str, store: str, *, new: bool = False) -> SetTag:
    """Point a tag at a store that exists; if `new` is True, leave an existing tag of that name unchanged.

    The caller must add a created tag to the usage. Raise `LimitExceeded` if the store would have too many tags.
    """
    values: dict[str, Any] = {"space": space, "name": name}
    old = _locked(tx, space, name)
    if old is not None and new:
        return SetTag(old, created=False, is_set=not new)
    if old is None or old.store != store:
        sql = f"SELECT count(*) FROM names WHERE {TAGS} AND store = :store"
        if tx.all(sql, space=space, store=store)[0][0] >= TAGS_OF_A_STORE:
            raise LimitExceeded(f"Store {store[:12]} already has {TAGS_OF_A_STORE} tags, the limit: remove some")
    version = secrets.token_bytes(16)
    values |= {"store": store, "version": version, "now": tx.now, "label": label(space, STORES, "", name)}
    if old is None:
        ensure_repository(tx, space, STORES, "", _ID)
    changed = tx.run(
        f"""
        INSERT INTO names (space, repository, kind, name, store, version, updated, label)
        VALUES (:space, 0, 'tag', :name, :store, :version, :now, :label)
        ON CONFLICT (space, repository, kind, name) DO {
            "NOTHING"
            if new
            else '''UPDATE SET
            store = excluded.store, version = excluded.version, updated = excluded.updated'''
        }""",
        **values,
    )
    tag = _tag((name, store, version, tx.now))
    if changed:
        emit(tx, space, "tag.set", name, {"tag": name, "store": store})
    return SetTag(tag, created=old is None and changed == 1, is_set=changed == 1)


def tag_names(tx: Transaction, space: str, stores: Collection[str], most: int) -> dict[str, list[str]]:
    """Return the first `most` tags of each store, as a mapping from stores to names."""
    sql = f"""
        SELECT store, name FROM (
            SELECT store, name, row_number() OVER (PARTITION BY store ORDER BY name) AS number FROM names
            WHERE {TAGS} AND store IN {{listed}}
        ) ranked WHERE number <= :most ORDER BY name"""
    found: dict[str, list[str]] = {}
    for store, name in tx.among(sql, stores, space=space, most=most):
        found.setdefault(store, []).append(name)
    return found


def _locked(tx: Transaction, space: str, name: str) -> StoredTag | None:
    """Return a tag, which is locked until the transaction ends, or None if it does not exist."""
    row = tx.first(f"SELECT {_COLUMNS} FROM names WHERE {TAGS} AND name = :name FOR UPDATE", space=space, name=name)
    return None if row is None else _tag(row)


def _tag(row: Row) -> StoredTag:
    name, store, version, updated = row
    return StoredTag(name, store, time_of(updated), bytes(version).hex())
