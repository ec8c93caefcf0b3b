"""Lists of stores: filtered, sorted and paged, at a cost that does not grow with the number of stores.

A list reads stores from the index of its sort key. If other filters apply, this index alone might require the list to
read many rows. The statement therefore first collects candidates from the index of one filter. If there are few
candidates, it sorts them. Otherwise, it filters the next `_WALKED` rows of the sort key's index. A page may then be
short or even empty, although another page follows. Only the first `_NAMES` names of a store are examined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from protoslice.catalog.labels import LabelSearch
from protoslice.catalog.live_stores import is_named
from protoslice.database.transactions import LAST, Actor, Row, Transaction

Sort: TypeAlias = Literal["created", "size", "name", "type", "uploader"]
SORTS: Final[tuple[Sort, ...]] = get_args(Sort)
Key: TypeAlias = tuple[int | str, ...]
"""Values of a row in the columns by which a list is sorted; they mark a position in the list."""

_CANDIDATES: Final = 2000
_WALKED: Final = 2000
_NAMES: Final = 64
"""Largest number of names that are examined for each store when a list walks through an index."""
_TYPE: Final = "coalesce(type, '')"
_KEYS: Final[Mapping[Sort, tuple[str, ...]]] = {
    "created": ("created", "id"),
    "size": ("size", "id"),
    "name": ("label", "store"),
    "type": (_TYPE, "created", "id"),
    "uploader": ("uploader", "created", "id"),
}
_LIVE: Final = "space = :space AND deleted IS NULL"
_CONDITIONS: Final[Mapping[str, str]] = {
    "uploader": "uploader = :uploader",
    "type": f"{_TYPE} = :type",
    "size": "size BETWEEN :min_size AND :max_size",
    "created": "created >= :since AND created < :until",
}
_NAMED: Final = "s.space = :space AND s.digest = n.store AND s.deleted IS NULL"
_WITHIN: Final = "n.label >= :first AND n.label < :end"
_FEW: Final = "(SELECT count(*) FROM hits) < :candidates"
_MANY: Final = "(SELECT count(*) FROM hits) >= :candidates"
_ROW: Final = "id, digest, weight, type, size, created, uploader"
_STORE: Final = ", ".join(f"s.{column}" for column in _ROW.split(", "))
_LARGEST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreQuery:
    """The filters and the order of a list of stores; times are in microseconds since the epoch.

    In a list that is sorted by name, a store appears at its first matching name. Stores that match only by the path
    of a file come last.
    """

    name: str | None = None
    """Part of a name or of a file's path; upper and lower case make no difference."""
    type: str | None = None
    """Type of the root; an empty text selects stores without a type."""
    uploader: str | None = None
    min_size: int | None = None
    max_size: int | None = None
    since: int | None = None
    """Earliest creation time of the stores."""
    until: int | None = None
    """Time before which the stores were created."""
    nameless: bool = False
    """True to select only stores without a name; such a list cannot be sorted by name."""
    sort: Sort = "created"
    descending: bool = True

    @property
    def order(self) -> Sort:
        """The sort key that is used; a sort by type or uploader is replaced by time if a filter fixes that field."""
        fixed = {"type": self.type, "uploader": self.uploader}.get(self.sort)
        return self.sort if fixed is None else "created"

    @property
    def key_types(self) -> Sequence[Any]:
        """The types of the values in a store's key."""
        return tuple(int if each in {"created", "size", "id"} else str for each in _KEYS[self.order])

    @property
    def filters(self) -> list[str]:
        """The active filters on columns of stores, with the filters that yield the best candidates first."""
        given = {
            "uploader": self.uploader is not None,
            "type": self.type is not None,
            "size": self.min_size is not None or self.max_size is not None,
            "created": self.since is not None or self.until is not None,
        }
        return [name for name, is_given in given.items() if is_given]

    @property
    def values(self) -> dict[str, Any]:
        """The SQL parameters of the filters."""
        return {
            "type": self.type,
            "uploader": self.uploader,
            "min_size": self.min_size or 0,
            "max_size": _LARGEST if self.max_size is None else self.max_size,
            "since": -_LARGEST if self.since is None else self.since,
            "until": _LARGEST if self.until is None else self.until,
        }


@dataclass(frozen=True, slots=True)
class FoundStore:
    """A store in a list, with its position `key`, after which the next page may begin."""

    id: int
    digest: str
    weight: int
    uploader: Actor
    description: str
    manifest: bytes | None
    key: Key


class StoreListing:
    """The SQL statements of one list in one space."""

    def __init__(self, dialect: str, space: str, query: StoreQuery) -> None:
        self._query = query
        self._sort = query.order
        self._keys = _KEYS[self._sort]
        self._order = "DESC" if query.descending else "ASC"
        self._search = None if query.name is None else LabelSearch.of(dialect, space, query.name)
        # The indexes of uploaders and of types are sorted by time within each uploader or type.
        index = next((name for name in query.filters if name in {"uploader", "type"}), "")
        served = {self._sort, index} if self._sort == "created" else {self._sort}
        self._served = [_CONDITIONS[name] for name in query.filters if name in served]
        self._rest = [_CONDITIONS[name] for name in query.filters if name not in served]
        self._values = query.values | {
            "space": space, "first": f"{space}\n", "end": f"{space}\n{LAST}", "candidates": _CANDIDATES,
            "most": _LARGEST, "walked": _WALKED, **({} if self._search is None else self._search.values),
        }  # fmt: skip

    def page(self, tx: Transaction, *, limit: int, after: Key | None, room: int) -> tuple[list[FoundStore], Key | None]:
        """Return at most `limit` stores that follow the key `after`.

        For a short page, also return the key after which to continue, or None if the list has ended. A manifest is
        None if the manifests before it already fill `room` bytes.
        """
        values = self._values | {"limit": limit, "room": room}
        behind = ""
        if after is not None:
            values |= {f"after{number}": value for number, value in enumerate(after)}
            given = ", ".join(f":after{number}" for number in range(len(after)))
            behind = f"({', '.join(self._keys)}) {'<' if self._query.descending else '>'} ({given})"
        if self._sort == "name":
            chosen, walk = self._by_name(behind)
        else:
            chosen, walk = self._by_store(behind)
        rows = tx.planned(self._ordered(chosen), **values)
        found = [found_store(row) for row in rows if row[0] is not None]
        if len(found) == len(rows) or len(found) >= limit:  # without an added row of nulls, all rows were considered
            return found, None
        last = tx.first(f"SELECT {self._named} FROM ({walk}) w {self._sorted} LIMIT 1 OFFSET :walked - 1", **values)
        return found, None if last is None else tuple(last)

    @property
    def _named(self) -> str:
        """The columns of the key, each under its name in the page, such as `k0`."""
        return ", ".join(f"{key} AS k{number}" for number, key in enumerate(self._keys))

    @property
    def _sorted(self) -> str:
        return f"ORDER BY {', '.join(f'{key} {self._order}' for key in self._keys)}"

    def _ordered(self, chosen: str) -> str:
        """Return the statement for a page of the `chosen` stores, in order, with the manifests that fit."""
        names = [f"k{number}" for number in range(len(self._keys))]
        order = ", ".join(f"{name} {self._order}" for name in names)
        keys = ", ".join(f"p.{name}" for name in names)
        return f"""
            SELECT p.id, p.digest, p.weight, s.uploader_id, s.uploader, s.description,
                CASE WHEN p.ahead < :room THEN s.manifest END, {keys} FROM (
                SELECT q.*, sum(weight) OVER (ORDER BY {order} ROWS UNBOUNDED PRECEDING) - weight AS ahead
                FROM ({chosen}) q
            ) p LEFT JOIN stores s ON s.space = :space AND s.id = p.id ORDER BY {order}"""

    def _by_store(self, behind: str) -> tuple[str, str]:
        """Return two SQL statements: for the stores of a page, and for the index rows that the page examines.

        Both statements read a limited number of stores.
        """
        walk = f"""
            SELECT {_ROW} FROM stores WHERE {_all(_LIVE, *self._served, behind)} {self._sorted} LIMIT :walked"""
        if self._query.nameless:  # no index contains the stores without a name
            nameless = f"NOT ({is_named('listed.digest')})"
            return f"{self._picked(f'({walk}) listed', *self._rest, nameless)} {self._nulls}", walk
        if self._search is None and not self._rest:
            return self._picked("stores", _LIVE, *self._served, behind), walk
        if self._search is None:
            hits, source, named = f"SELECT {_ROW} FROM stores WHERE {_LIVE} AND {self._rest[0]}", "hits", ""
        else:
            hits, source = (
                f"SELECT n.store FROM {self._search.rows('n')}",
                _of_names("(SELECT DISTINCT store FROM hits)"),
            )
            named = f"(SELECT 1 FROM {_first_names('listed.digest')} WHERE {self._search.condition('n')} LIMIT 1) = 1"
        few = self._picked(source, _FEW, *self._served, *self._rest, behind)
        many = self._picked(f"({walk}) listed", _MANY, *self._rest, named)
        return self._choice(hits, few, many), walk

    def _by_name(self, behind: str) -> tuple[str, str]:
        """Return two SQL statements: for the stores of a page sorted by name, and for the names that the page examines.

        Both statements read a limited number of names.
        """
        search = self._search
        if search is not None and search.by_trigrams:
            walk = self._names(_WITHIN, behind)
            before = f"n.label < listed.label AND {search.condition('n')}"
            first = f"(SELECT 1 FROM {_first_names('listed.store')} WHERE {before} LIMIT 1) IS NULL"
            hits = f"SELECT n.label, n.store FROM {search.rows('n')}"
            source = _of_names("(SELECT store, min(label) AS label FROM hits GROUP BY store)", "n.label, ")
            few = self._picked(source, _FEW, *self._rest, behind)
            matching = search.condition("listed")
            many = self._picked(_of_names(f"({walk})", "n.label, "), _MANY, *self._rest, matching, first)
            return self._choice(hits, few, many), walk
        low, end = ("first", "end") if search is None else ("label", "label_end")
        walk = self._names(f"n.label >= :{low} AND n.label < :{end}", behind)
        first = f"label = {_first_label('listed.store', low)}"
        walked = _of_names(f"({walk})", "n.label, ")
        if not self._rest:
            return f"{self._picked(walked, first)} {self._nulls}", walk
        hits = f"SELECT {_ROW} FROM stores WHERE {_LIVE} AND {self._rest[0]}"
        labelled = f"SELECT {_first_label('hits.digest', low)} AS label, digest AS store, hits.* FROM hits LIMIT :most"
        few = self._picked(f"({labelled}) listed", _FEW, *self._rest, f"label < :{end}", behind)
        many = self._picked(walked, _MANY, *self._rest, first)
        return self._choice(hits, few, many), walk

    def _names(self, within: str, behind: str) -> str:
        """Return the statement for the names that a list examines."""
        conditions = _all(within, "store IS NOT NULL", behind)
        return f"SELECT label, store FROM names n WHERE {conditions} {self._sorted} LIMIT :walked"

    def _choice(self, hits: str, few: str, many: str) -> str:
        """Return the statement that selects stores from `few` or from `many`, depending on the number of `hits`."""
        ends = f"{few} UNION ALL {many} {self._nulls} WHERE {_MANY}"
        return f"WITH hits AS MATERIALIZED ({hits} LIMIT :candidates) {ends}"

    def _picked(self, source: str, *conditions: str) -> str:
        """Return the statement for at most one page of the rows of `source` that meet the conditions, in order."""
        return f"""
            SELECT * FROM (
                SELECT id, digest, weight, {self._named} FROM {source} WHERE {_all(*conditions)}
                {self._sorted} LIMIT :limit
            ) picked"""

    @property
    def _nulls(self) -> str:
        return f"UNION ALL SELECT {', '.join(['NULL'] * (3 + len(self._keys)))}"


def _first_label(store: str, low: str) -> str:
    """Return the SQL for a store's first label that is not below `low`; row values let PostgreSQL use an index."""
    return f"""(
        SELECT m.label FROM names m WHERE m.store = {store} AND (m.store, m.label) >= ({store}, :{low})
        ORDER BY m.store, m.label LIMIT 1
    )"""


def _first_names(store: str) -> str:
    """Return the SQL source of a store's first `_NAMES` names; the number of names of a store is unlimited."""
    return f"""(
        SELECT m.label FROM names m
        WHERE m.store = {store} AND (m.store, m.label) >= ({store}, :first) AND (m.store, m.label) < ({store}, :end)
        ORDER BY m.store, m.label LIMIT {_NAMES}
    ) n"""


def _of_names(names: str, columns: str = "") -> str:
    """Return the SQL source of the stores of `names`, which looks up each store by its digest.

    The limit is never reached; it keeps PostgreSQL from joining the tables in another order.
    """
    return f"(SELECT {columns}n.store, {_STORE} FROM {names} n CROSS JOIN stores s WHERE {_NAMED} LIMIT :most) listed"


def _all(*conditions: str) -> str:
    return " AND ".join(filter(None, conditions)) or "1 = 1"


def found_store(row: Row) -> FoundStore:
    """Return the store of a row: id, digest, weight, uploader's id and name, description, manifest and key."""
    id, digest, weight, uploader_id, uploader, description, manifest, *key = row
    data = None if manifest is None else bytes(manifest)
    return FoundStore(id, digest, weight, Actor(uploader_id, uploader), description, data, tuple(key))
