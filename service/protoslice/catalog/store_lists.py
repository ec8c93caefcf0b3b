"""Lists of stores: filtered, sorted and paged, at a cost that does not grow with the number of stores.

A list reads the index of its sort key. With filters that this index does not serve, it might have to read many rows, so
the statement first takes candidates from the index of one filter. If there are few candidates, it sorts them. Otherwise
it filters the next `_WALKED` rows of the sort key: a short or empty page may then be followed by another page. Only the
first `_NAMES` names of a store are examined.
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
"""Values of a row in the columns by which a list is sorted."""

_CANDIDATES: Final = 2000
_WALKED: Final = 2000
_NAMES: Final = 64
"""Names of a store that a walk looks at."""
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
    """Which stores a list shows, and in which order; times are in microseconds since the epoch.

    A list that is sorted by name shows each store at its first matching name. Stores whose only match is a file come
    last.
    """

    name: str | None = None
    """Part of a name or of the path of a file, in upper or lower case."""
    type: str | None = None
    """Type of the root; empty for stores without one."""
    uploader: str | None = None
    min_size: int | None = None
    max_size: int | None = None
    since: int | None = None
    """Time of the oldest store."""
    until: int | None = None
    """Time before which the newest store was created."""
    nameless: bool = False
    """True for stores that have no name, by which they could be sorted."""
    sort: Sort = "created"
    descending: bool = True

    @property
    def order(self) -> Sort:
        """Effective sort key: stores of one type, or of one uploader, are sorted by time."""
        fixed = {"type": self.type, "uploader": self.uploader}.get(self.sort)
        return self.sort if fixed is None else "created"

    @property
    def key_types(self) -> Sequence[Any]:
        """Types of the values in the key of a store."""
        return tuple(int if each in {"created", "size", "id"} else str for each in _KEYS[self.order])

    @property
    def filters(self) -> list[str]:
        """Given filters on the columns of a store, in the order in which they yield candidates."""
        given = {
            "uploader": self.uploader is not None,
            "type": self.type is not None,
            "size": self.min_size is not None or self.max_size is not None,
            "created": self.since is not None or self.until is not None,
        }
        return [name for name, is_given in given.items() if is_given]

    @property
    def values(self) -> dict[str, Any]:
        """Values of the filters."""
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
    """A store of a list; the list continues after `key`."""

    id: int
    digest: str
    weight: int
    uploader: Actor
    description: str
    manifest: bytes | None
    key: Key


class StoreListing:
    """The statements of one list in one space."""

    def __init__(self, dialect: str, space: str, query: StoreQuery) -> None:
        self._query = query
        self._sort = query.order
        self._keys = _KEYS[self._sort]
        self._order = "DESC" if query.descending else "ASC"
        self._search = None if query.name is None else LabelSearch.of(dialect, space, query.name)
        # The index of an uploader or a type is sorted by time.
        index = next((name for name in query.filters if name in {"uploader", "type"}), "")
        served = {self._sort, index} if self._sort == "created" else {self._sort}
        self._served = [_CONDITIONS[name] for name in query.filters if name in served]
        self._rest = [_CONDITIONS[name] for name in query.filters if name not in served]
        self._values = query.values | {
            "space": space, "first": f"{space}\n", "end": f"{space}\n{LAST}", "candidates": _CANDIDATES,
            "most": _LARGEST, "walked": _WALKED, **({} if self._search is None else self._search.values),
        }  # fmt: skip

    def page(self, tx: Transaction, *, limit: int, after: Key | None, room: int) -> tuple[list[FoundStore], Key | None]:
        """Return at most `limit` stores after a key, and, for a short page, the key after which to continue.

        Manifests are left out once earlier ones have filled `room` bytes.
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
        if len(found) == len(rows) or len(found) >= limit:  # without a row of nulls, all stores were looked at
            return found, None
        last = tx.first(f"SELECT {self._named} FROM ({walk}) w {self._sorted} LIMIT 1 OFFSET :walked - 1", **values)
        return found, None if last is None else tuple(last)

    @property
    def _named(self) -> str:
        """The key, each column with its name in the page."""
        return ", ".join(f"{key} AS k{number}" for number, key in enumerate(self._keys))

    @property
    def _sorted(self) -> str:
        return f"ORDER BY {', '.join(f'{key} {self._order}' for key in self._keys)}"

    def _ordered(self, chosen: str) -> str:
        """Return the statement of a page of chosen stores, in order and with the manifests that fit."""
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
        """Return the statement for the stores of a page, which examines a bounded number of stores."""
        walk = f"""
            SELECT {_ROW} FROM stores WHERE {_all(_LIVE, *self._served, behind)} {self._sorted} LIMIT :walked"""
        if self._query.nameless:  # no index has them
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
        """Return the statement for the stores of a page, which examines a bounded number of names."""
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
        """Return the statement for the stores of `few` or of `many`, depending on the number of `hits`."""
        ends = f"{few} UNION ALL {many} {self._nulls} WHERE {_MANY}"
        return f"WITH hits AS MATERIALIZED ({hits} LIMIT :candidates) {ends}"

    def _picked(self, source: str, *conditions: str) -> str:
        """Return the statement for at most one page of the rows of `source` that meet conditions, in order."""
        return f"""
            SELECT * FROM (
                SELECT id, digest, weight, {self._named} FROM {source} WHERE {_all(*conditions)}
                {self._sorted} LIMIT :limit
            ) picked"""

    @property
    def _nulls(self) -> str:
        return f"UNION ALL SELECT {', '.join(['NULL'] * (3 + len(self._keys)))}"


def _first_label(store: str, low: str) -> str:
    """Return the first label of a store, starting at `low`; row values make PostgreSQL use the index of stores."""
    return f"""(
        SELECT m.label FROM names m WHERE m.store = {store} AND (m.store, m.label) >= ({store}, :{low})
        ORDER BY m.store, m.label LIMIT 1
    )"""


def _first_names(store: str) -> str:
    """Return the source of the first names of a store, at most `_NAMES`: it may have any number."""
    return f"""(
        SELECT m.label FROM names m
        WHERE m.store = {store} AND (m.store, m.label) >= ({store}, :first) AND (m.store, m.label) < ({store}, :end)
        ORDER BY m.store, m.label LIMIT {_NAMES}
    ) n"""


def _of_names(names: str, columns: str = "") -> str:
    """Return the source of the stores of `names`, each looked up by its digest.

    The limit is never reached: it keeps PostgreSQL from joining in another order.
    """
    return f"(SELECT {columns}n.store, {_STORE} FROM {names} n CROSS JOIN stores s WHERE {_NAMED} LIMIT :most) listed"


def _all(*conditions: str) -> str:
    return " AND ".join(filter(None, conditions)) or "1 = 1"


def found_store(row: Row) -> FoundStore:
    """Return the store of a row: id, digest, weight, id and name of its uploader, description, manifest and key."""
    id, digest, weight, uploader_id, uploader, description, manifest, *key = row
    data = None if manifest is None else bytes(manifest)
    return FoundStore(id, digest, weight, Actor(uploader_id, uploader), description, data, tuple(key))
