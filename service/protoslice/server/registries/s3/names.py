"""Names of stores in the order of keys: tags, revisions of repositories, tags of artifacts, and ids."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, Final, NamedTuple

from protoslice.database.transactions import LAST, Database, Row, time_of

TAGS, STORES, HUB, OCI = "tags/", "stores/", "hub/", "oci/"
_THESE_TAGS: Final = "space = :space AND repository = 0 AND kind = 'tag' AND store IS NOT NULL"
_BATCH: Final = 200
"""Names that are read at a time."""
_REPOSITORIES: Final = 64
_LONGEST: Final = 255
"""Characters of the longest name of a tag or a repository."""
_ENDS: Final = {HUB: "@", OCI: ":"}
_KINDS: Final = {HUB: "('heads', 'tags')", OCI: "('tags')"}
_ENCODED: Final = "replace(n.name, '/', '%2F') || '/'"


class NamedStore(NamedTuple):
    """A store by a name: keys of its files begin with `prefix`."""

    prefix: str
    store: str
    updated: datetime


Rows = Callable[[str, bool], AsyncIterator[Row]]
"""Rows of names, in the order of the names, from one on; without it if the flag is False."""


class NamesInSpace:
    """Names of the stores of one space."""

    def __init__(self, database: Database, space: str) -> None:
        self._database = database
        self._space = space

    async def find(self, section: str, repository: str, name: str) -> NamedStore | None:
        """Return the store of a name; None if there is none."""
        if section == STORES:
            sql = "SELECT digest, created FROM stores WHERE space = :space AND digest = :name AND deleted IS NULL"
        elif section == TAGS:
            sql = f"SELECT store, updated FROM names WHERE {_THESE_TAGS} AND name = :name"
        else:
            sql = f"""
                SELECT n.store, n.updated FROM names n
                WHERE n.space = :space AND n.name = :name AND n.kind IN {_KINDS[section]} AND n.repository = (
                    SELECT id FROM repositories WHERE space = :space AND protocol = :protocol AND name = :repository
                ) ORDER BY n.kind"""
        rows = await self._all(sql, name=name, protocol=section[:-1], repository=repository)
        return next((NamedStore("", row[0], time_of(row[1])) for row in rows if row[0]), None)

    def listed(self, section: str, prefix: str, after: str) -> AsyncIterator[NamedStore]:
        """Return the names of a section whose keys may begin with `prefix` and lie behind `after`, in order of keys."""
        prefix = prefix.removeprefix(section) if prefix.startswith(section) else ""
        after = after.removeprefix(section) if after.startswith(section) else ""
        match section:
            case "stores/":
                return self._stores(prefix, after)
            case "tags/":
                return self._tags(prefix, after)
        return self._revisions(section, prefix, after)

    async def _stores(self, prefix: str, after: str) -> AsyncIterator[NamedStore]:
        sql = """
            SELECT digest, created FROM stores
            WHERE space = :space AND deleted IS NULL AND digest >= :after AND digest >= :prefix AND digest < :end
            ORDER BY digest LIMIT :limit"""
        name = prefix.partition("/")[0]
        at = after.partition("/")[0]
        while True:
            rows = await self._all(sql, after=at, prefix=name, end=name + LAST, limit=_BATCH)
            for digest, created in rows:
                yield NamedStore(f"{STORES}{digest}/", digest, time_of(created))
            if len(rows) < _BATCH:
                return
            at = rows[-1][0] + "0"

    async def _tags(self, prefix: str, after: str) -> AsyncIterator[NamedStore]:
        those = f"SELECT name, store, updated FROM names WHERE {_THESE_TAGS} AND"
        exact, order = f"{those} name IN ", those
        async for name, store, updated in self._in_order(exact, order, "/", prefix, after):
            yield NamedStore(f"{TAGS}{name}/", store, time_of(updated))

    async def _revisions(self, section: str, prefix: str, after: str) -> AsyncIterator[NamedStore]:
        end, those = _ENDS[section], "space = :space AND protocol = :protocol"
        exact = f"SELECT name, id FROM repositories WHERE {those} AND name IN "
        order = f"SELECT name, id FROM repositories WHERE {those} AND"
        batch = list[Row]()
        async for row in self._in_order(exact, order, end, prefix, after, protocol=section[:-1]):
            batch.append(row)
            if len(batch) == _REPOSITORIES:
                async for found in self._refs(section, batch, after):
                    yield found
                batch = []
        async for found in self._refs(section, batch, after):
            yield found

    async def _refs(self, section: str, repositories: Sequence[Row], after: str) -> AsyncIterator[NamedStore]:
        """Yield the revisions of repositories; those of a large one page by page."""
        end, names = _ENDS[section], {id: name for name, id in repositories}
        if not names:
            return
        columns = f"SELECT n.repository, {_ENCODED}, n.kind, n.store, n.updated FROM names n"
        those = f"n.space = :space AND n.kind IN {_KINDS[section]} AND n.store IS NOT NULL AND n.store <> ''"
        ids = ", ".join(str(int(id)) for id in names)
        most = _BATCH * 5
        rows = await self._all(
            f"{columns} WHERE {those} AND n.repository IN ({ids}) ORDER BY n.repository LIMIT :limit", limit=most
        )
        by_repository = {id: [*found] for id, found in groupby(rows, key=lambda row: row[0])}
        for id, name in names.items():
            if len(rows) < most:
                yield_from = sorted(by_repository.get(id, []), key=lambda row: (row[1], row[2]))
                for found in _named(section, name, end, yield_from):
                    yield found
                continue
            at = after.removeprefix(f"{name}{end}") if after.startswith(f"{name}{end}") else ""
            at = at[: at.find("/") + 1] or at
            while True:
                found_rows = await self._all(
                    f"{columns} WHERE {those} AND n.repository = {int(id)} AND {_ENCODED} >= :at "
                    f"ORDER BY {_ENCODED}, n.kind LIMIT :limit",
                    at=at, limit=most,
                )  # fmt: skip
                for found in _named(section, name, end, found_rows):
                    yield found
                if len(found_rows) < most:
                    break
                at = found_rows[-1][1] + "!"

    async def _in_order(
        self, exact: str, order: str, end: str, prefix: str, after: str, **values: Any
    ) -> AsyncIterator[Row]:
        """Yield rows of names in the order of name and `end`, which differs from that of the names.

        `m-1` and `end` may come before `m` and `end`, though the name `m` is the shorter one. A name waits for those
        that begin with it and go on with a smaller character than `end`: they follow it in the order of names.
        """
        whole, ended, _ = prefix.partition(end)
        if ended:
            for row in await self._all(f"{exact} (:n0)", n0=whole, **values):
                yield row
            return
        current, behind, _ = after.partition(end)
        if len(current) > _LONGEST:  # it lies between the same names as what is left
            current, behind = current[: _LONGEST + 1], ""
        shorter = [current[:n] for n in range(1, len(current)) if current[n] < end]
        waiting = list[Row]()
        if names := {f"n{n}": name for n, name in enumerate([*shorter, *([current] if behind else [])])}:
            marks = ", ".join(f":{mark}" for mark in names)
            found = await self._all(f"{exact} ({marks}) ORDER BY name", **names, **values)
            waiting = [row for row in found if row[0].startswith(prefix)]
        at = max(prefix, current + behind)
        while True:
            rows = await self._all(
                f"{order} name >= :at AND name < :last ORDER BY name LIMIT :limit",
                at=at, last=prefix + LAST, limit=_BATCH, **values,
            )  # fmt: skip
            for row in rows:
                while waiting and not (row[0].startswith(waiting[-1][0]) and row[0][len(waiting[-1][0])] < end):
                    yield waiting.pop()
                waiting.append(row)
            if len(rows) < _BATCH:
                break
            at = rows[-1][0] + "!"  # no name has a smaller character
        while waiting:
            yield waiting.pop()

    async def _all(self, sql: str, **values: Any) -> list[Row]:
        return await self._database.read(lambda tx: tx.all(sql, space=self._space, **values))


def _named(section: str, name: str, end: str, rows: Sequence[Row]) -> list[NamedStore]:
    """Return the first kind of each revision."""
    firsts = {row[1]: row for row in reversed(rows)}
    return [NamedStore(f"{section}{name}{end}{at}", row[3], time_of(row[4])) for at, row in sorted(firsts.items())]
