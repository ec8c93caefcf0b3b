"""Names of stores in the order of S3 keys: tags, revisions of repositories, tags of artifacts, and ids."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from protoslice.catalog.stores import StoreRow
from protoslice.database.transactions import LAST, Database, Row, time_of

TAGS, STORES, HUB, OCI = "tags/", "stores/", "hub/", "oci/"
_BATCH: Final = 200
"""The number of names that are read at a time."""
_REVISIONS: Final = 1000
_REPOSITORIES: Final = 64
_LONGEST: Final = 255
"""The length of the longest name of a tag or a repository, in characters."""
_PLAIN: Final = {
    TAGS: """SELECT name, store, updated FROM names
        WHERE space = :space AND repository = 0 AND kind = 'tag' AND store IS NOT NULL""",
    STORES: """SELECT name, name, created
        FROM (SELECT digest AS name, created FROM stores WHERE space = :space AND deleted IS NULL) AS named
        WHERE 0 = 0""",
}
"""Queries for stores by name. Conditions on the name are appended."""
_ENDS: Final = {HUB: "@", OCI: ":"}
_KINDS: Final = {HUB: "('heads', 'tags')", OCI: "('tags')"}


class NamedStore(NamedTuple):
    """A store with a name. The keys of its files begin with `prefix`."""

    prefix: str
    store: str
    updated: datetime


class NamesInSpace:
    """The names of the stores of one space."""

    def __init__(self, database: Database, space: str) -> None:
        self._database = database
        self._space = space

    async def find(self, section: str, repository: str, name: str) -> NamedStore | None:
        """Return the store with a name. Return None if no store has the name."""
        if section in _PLAIN:
            sql = f"{_PLAIN[section]} AND name = :name"
        else:
            sql = f"""
                SELECT n.name, n.store, n.updated FROM names n
                WHERE n.space = :space AND n.name = :name AND n.kind IN {_KINDS[section]} AND n.repository = (
                    SELECT id FROM repositories WHERE space = :space AND protocol = :protocol AND name = :repository
                ) ORDER BY n.kind"""
        rows = await self._all(sql, name=name, protocol=section[:-1], repository=repository)
        return next((NamedStore("", store, time_of(updated)) for _, store, updated in rows if store), None)

    async def listed(self, section: str, prefix: str, after: str) -> AsyncIterator[NamedStore]:
        """Yield those names of a section whose keys may begin with `prefix` and follow `after`, in the keys' order."""
        prefix = prefix.removeprefix(section) if prefix.startswith(section) else ""
        after = after.removeprefix(section) if after.startswith(section) else ""
        if section in _PLAIN:
            async for name, store, updated in self._in_order(_PLAIN[section], "/", prefix, after):
                yield NamedStore(f"{section}{name}/", store, time_of(updated))
            return
        sql = "SELECT name, id FROM repositories WHERE space = :space AND protocol = :protocol"
        batch = list[Row]()
        async for row in self._in_order(sql, _ENDS[section], prefix, after, protocol=section[:-1]):
            batch.append(row)
            if len(batch) == _REPOSITORIES:
                async for found in self._revisions(section, batch, prefix, after):
                    yield found
                batch = []
        async for found in self._revisions(section, batch, prefix, after):
            yield found

    async def _revisions(
        self, section: str, repositories: Sequence[Row], prefix: str, after: str
    ) -> AsyncIterator[NamedStore]:
        """Yield the revisions of repositories in order.

        If a branch and a tag have the same name, yield only the branch.
        """
        end, last, ref = _ENDS[section], ("", ""), "replace(n.name, '/', '%2F') || '/'"
        wanted = prefix.partition(end)[2]
        wanted = wanted[: wanted.find("/") + 1] or wanted
        passed = after.partition(end)[2] if repositories and after.startswith(f"{repositories[0][0]}{end}") else ""
        at = max(wanted, passed[: passed.find("/") + 1] or passed)
        while repositories:
            ids = [str(int(id)) for _, id in repositories]
            order = " ".join(f"WHEN {id} THEN {number}" for number, id in enumerate(ids))
            sql = f"""
                SELECT CASE n.repository {order} END AS number, {ref} AS ref, n.store, n.updated FROM names n
                WHERE n.space = :space AND n.repository IN ({", ".join(ids)}) AND n.kind IN {_KINDS[section]}
                    AND n.store <> '' AND {ref} < :last AND (n.repository <> {ids[0]} OR {ref} >= :at)
                ORDER BY number, ref, n.kind LIMIT :limit"""
            rows = await self._all(sql, at=at, last=wanted + LAST, limit=_REVISIONS)
            for number, found, store, updated in rows:
                name = repositories[number][0]
                if (name, found) != last:
                    yield NamedStore(f"{section}{name}{end}{found}", store, time_of(updated))
                last = name, found
            if len(rows) < _REVISIONS:
                return
            repositories, at = repositories[rows[-1][0] :], rows[-1][1] + "!"

    async def _in_order(self, sql: str, end: str, prefix: str, after: str, **values: Any) -> AsyncIterator[Row]:
        """Yield rows in the order of each name followed by `end`. The database only sorts by the name itself.

        For example, "m" sorts before "m-1", but "m/" sorts after "m-1/". A row therefore waits for later names that
        begin with its name and continue with a smaller character than `end`.
        """
        whole, ended, _ = prefix.partition(end)
        if ended:
            for row in await self._all(f"{sql} AND name = :whole", whole=whole, **values):
                yield row
            return
        current, behind, _ = after.partition(end)
        if len(current) > _LONGEST:  # the shortened name lies between the same names
            current, behind = current[: _LONGEST + 1], ""
        shorter = [current[:n] for n in range(1, len(current)) if current[n] < end]
        waiting = list[Row]()
        if names := {f"n{n}": name for n, name in enumerate([*shorter, *([current] if behind else [])])}:
            marks = ", ".join(f":{mark}" for mark in names)
            found = await self._all(f"{sql} AND name IN ({marks}) ORDER BY name", **names, **values)
            waiting = [row for row in found if row[0].startswith(prefix)]
        at = max(prefix, current + behind)
        while True:
            rows = await self._all(
                f"{sql} AND name >= :at AND name < :last ORDER BY name LIMIT :limit",
                at=at, last=prefix + LAST, limit=_BATCH, **values,
            )  # fmt: skip
            for row in rows:
                while waiting and not (row[0].startswith(waiting[-1][0]) and row[0][len(waiting[-1][0])] < end):
                    yield waiting.pop()
                waiting.append(row)
            if len(rows) < _BATCH:
                break
            at = rows[-1][0] + "!"  # names have no smaller character than "!"
        while waiting:
            yield waiting.pop()

    async def rows_of(self, stores: Collection[str]) -> list[StoreRow]:
        """Return the rows of those stores that exist."""
        sql = "SELECT id, digest, manifest FROM stores WHERE space = :space AND digest IN {listed} AND deleted IS NULL"
        rows = await self._database.read(lambda tx: tx.among(sql, stores, space=self._space)) if stores else []
        return [StoreRow(id, digest, bytes(manifest)) for id, digest, manifest in rows]

    async def _all(self, sql: str, **values: Any) -> list[Row]:
        return await self._database.read(lambda tx: tx.all(sql, space=self._space, **values))
