"""Lists of repositories by name, as clients of the hub ask for them, at a cost that depends on the page alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from protoslice.catalog.database import LAST, Database, Transaction
from protoslice.catalog.labels import LabelSearch

WALKED: Final = 2000
"""Repositories that one page looks at; a page of a search may be short, or empty, and be followed by another."""
_DATASETS: Final = "datasets/"
_COLUMNS: Final = "r.id, r.name, r.created, n.store, n.updated"
_NAMED: Final = "n.space = r.space AND n.repository = r.id"
_HEADS: Final = (
    f"LEFT JOIN names n ON {_NAMED} AND n.kind = 'heads' AND n.name = 'main' WHERE r.protocol = 'hub'",
    f"""
        LEFT JOIN names n ON {_NAMED} AND n.kind = 'tags' AND n.name = 'latest' WHERE r.protocol = 'oci'
        AND EXISTS (SELECT 1 FROM names o
            WHERE o.space = r.space AND o.repository = r.id AND o.kind = 'tags' AND coalesce(o.store, '') <> '')
        AND NOT EXISTS (SELECT 1 FROM repositories h
            WHERE h.space = r.space AND h.folded = r.name)""",
)
"""Current versions of repositories of the hub, and of OCI: a name that both have is one repository.

Without `coalesce` SQLite would read the stores of all names of a space, for each repository of OCI.
"""


@dataclass(frozen=True, slots=True)
class ListedRepository:
    """A repository, and the store of its current version, if it has one; times are in microseconds."""

    id: int
    name: str
    created: int
    store: str | None
    updated: int


class RepositoryListing:
    """Repositories of models, or of datasets, of one space, whose names begin with a prefix."""

    def __init__(self, database: Database, space: str, prefix: str, search: str, *, datasets: bool) -> None:
        self._database = database
        self._search = LabelSearch.of(database.dialect, space, search) if search else None
        self._datasets = datasets
        begin = (_DATASETS if datasets else "") + prefix
        self._values = {
            "space": space,
            "prefix": begin,
            "end": begin + LAST,
            "set": _DATASETS,
            "last": _DATASETS + LAST,
        }

    async def rows(self, after: str) -> list[ListedRepository]:
        """Return the next repositories behind a name, at most `WALKED`; a search may leave some of them in."""
        return await self._database.read(lambda tx: self._rows(tx, after))

    def _rows(self, tx: Transaction, after: str) -> list[ListedRepository]:
        values: dict[str, Any] = {**self._values, "after": after, "walked": WALKED}
        conditions = "r.space = :space AND r.name > :after AND r.name >= :prefix AND r.name < :end"
        if not self._datasets:
            conditions += " AND NOT (r.name >= :set AND r.name < :last)"
        source = "repositories"
        if self._search is not None and self._search.by_trigrams:
            values |= self._search.values
            hits = tx.all(f"{self._search.repositories} LIMIT :walked", **values)
            if len(hits) < WALKED:
                marks = {f"i{number}": id for number, (id,) in enumerate(hits)}
                values |= marks
                # The limit cuts nothing off: it keeps SQLite from reading all names of the space in order.
                among = ", ".join(f":{mark}" for mark in marks) or "NULL"
                source = f"(SELECT * FROM repositories WHERE space = :space AND id IN ({among}) LIMIT :walked)"
        found = list[ListedRepository]()
        for head in _HEADS:
            sql = f"SELECT {_COLUMNS} FROM {source} r {head} AND {conditions} ORDER BY r.name LIMIT :walked"
            found += [
                ListedRepository(id, name, created, store, updated or created)
                for id, name, created, store, updated in tx.all(sql, **values)
            ]
        return sorted(found, key=lambda row: row.name)[:WALKED]
