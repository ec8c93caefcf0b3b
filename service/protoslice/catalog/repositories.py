"""Repositories: their names, lists of repositories, and the names that repositories give to stores."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from protoslice.catalog.audit import record
from protoslice.catalog.histories import NoRepository, emit_refs, refs_of, thin_refs
from protoslice.catalog.labels import HUB, OCI, REMOVED, LabelSearch, label
from protoslice.catalog.spaces import Usage
from protoslice.database.transactions import BATCH, LAST, Database, Transaction, UniqueViolation
from protoslice.errors import Conflict, InvalidInput

FILE: Final = "file"
"""Kind of the rows for files of MLflow's artifacts."""
FIRST_ID: Final = 1 << 32
"""Smallest id of a repository with a name; id 0 belongs to the tags of stores, id 1 to MLflow's artifacts."""
_GIT: Final = ".git"
_ROWS_OF_REF: Final = 4
"""Number of rows that the deletion of a branch or tag changes: its name, its commit, the audit and an event."""
_STORES: Final = 100
"""Number of stores that one statement looks up; SQLite allows 500 parts in a compound statement."""
_INSERT: Final = """
    INSERT INTO repositories (space, id, protocol, name, created, folded)
    VALUES (:space, :id, :protocol, :name, :now, :folded)"""
_REPOSITORY: Final = "SELECT r.id, r.name, r.created FROM repositories r"
WALKED: Final = 2000
"""Largest number of repositories that a page examines; a search's page may be empty although another page follows."""
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
"""SQL joins from repositories, of the hub and of OCI, to their current versions.

A name that exists in both protocols is listed once, as the hub's repository. `coalesce` keeps SQLite from reading the
stores of all names of the space for each OCI repository.
"""


class RepositoryMoved(NoRepository):
    """The error for a repository's former name, or for a name that differs from a repository's name only in case."""

    def __init__(self, name: str, current: str) -> None:
        super().__init__(name)
        self.name = name
        self.current = current


class RepositoryExists(Conflict):
    """The error for a new name that the repository `current` already has, perhaps in another case."""

    def __init__(self, name: str, current: str) -> None:
        super().__init__(f"The repository {name!r} already exists")
        self.current = current


@dataclass(frozen=True, slots=True)
class RepositoryRow:
    """A repository; `created` is in microseconds since the epoch."""

    id: int
    name: str
    created: int


class RepositoryTable:
    """The repositories of one protocol in one space."""

    def __init__(self, database: Database, usage: Usage, protocol: str) -> None:
        self._database = database
        self._usage = usage
        self._place = {"space": usage.space, "protocol": protocol}

    async def create(self, name: str) -> RepositoryRow:
        """Insert a repository; raise `RepositoryExists` if a name that differs at most in case exists already."""
        check_new(name)
        id = FIRST_ID + secrets.randbits(62)

        def work(tx: Transaction) -> RepositoryRow:
            tx.run(_INSERT, **self._place, id=id, name=name, now=tx.now, folded=self._folded(name))
            record(tx, self._place["space"], "repository.created", name, {"protocol": self._place["protocol"]})
            self._usage.add(tx, entries=1 - self._forget(tx, name))
            return RepositoryRow(id, name, tx.now)

        try:
            return await self._database.write(work)
        except UniqueViolation:
            raise await self._exists(name) from None

    async def get(self, name: str) -> RepositoryRow | None:
        """Return the repository that has or had a name, or None.

        Prefer an exact match, then a name that differs only in case, then the repository that had the name last.
        """
        sql = f"""
            {_REPOSITORY} WHERE r.space = :space AND r.protocol = :protocol AND r.name = :name
            UNION ALL {_REPOSITORY} WHERE r.space = :space AND r.protocol = :protocol AND r.folded = :folded
            UNION ALL {_REPOSITORY} JOIN former_names f ON f.space = r.space AND f.repository = r.id
            WHERE f.space = :space AND f.folded = :folded AND r.protocol = :protocol"""
        values = {**self._place, "name": name, "folded": name.lower()}
        found = await self._database.read(lambda tx: [RepositoryRow(*row) for row in tx.all(sql, **values)])
        return next((row for row in found if row.name == name), found[0] if found else None)

    async def names(self, prefix: str, *, limit: int, after: str | None) -> tuple[list[str], bool]:
        """Return a page of the names that begin with `prefix`, in order, and True if more names follow."""
        sql = """
            SELECT name FROM repositories
            WHERE space = :space AND protocol = :protocol AND name > :after AND name >= :prefix AND name < :end
            ORDER BY name LIMIT :limit"""
        values = self._place | {"after": after or "", "prefix": prefix, "end": prefix + LAST, "limit": limit + 1}
        found = await self._database.read(lambda tx: [name for (name,) in tx.all(sql, **values)])
        return found[:limit], len(found) > limit

    async def rename(self, name: str, new: str) -> None:
        """Rename a repository and its artifacts; the old name still works until another repository takes it.

        Raise `NoRepository` if the repository does not exist, and `RepositoryExists` if the new name is in use.
        """
        check_new(new)

        def work(tx: Transaction) -> None:
            sql = """
                SELECT id, folded FROM repositories
                WHERE space = :space AND protocol = :protocol AND name = :name FOR UPDATE"""
            row = tx.first(sql, **self._place, name=name)
            if row is None:
                raise NoRepository(name)
            key = {"space": self._place["space"], "repository": row[0]}
            tx.run(
                "UPDATE repositories SET name = :new, folded = :folded WHERE space = :space AND id = :repository",
                **key,
                new=new,
                folded=self._folded(new),
            )
            entries = -self._forget(tx, new)
            if row[1] == name.lower() != new.lower() and not self._pass_on(tx, name):
                sql = "INSERT INTO former_names (space, folded, repository) VALUES (:space, :folded, :repository)"
                entries += tx.run(sql, **key, folded=name.lower())
            _label(tx, key, HUB, new)
            if row[1] == name.lower() != new.lower():
                sql = """
                    UPDATE repositories SET name = :new WHERE space = :space AND protocol = :oci AND name = :name
                    RETURNING id"""
                artifacts = tx.first(sql, space=key["space"], oci=OCI, name=name.lower(), new=new.lower())
                if artifacts is not None:
                    _label(tx, key | {"repository": artifacts[0]}, OCI, new.lower())
            record(tx, key["space"], "repository.renamed", name, {"protocol": self._place["protocol"], "to": new})
            self._usage.add(tx, entries=entries)

        try:
            await self._database.write(work)
        except UniqueViolation:
            raise await self._exists(new) from None

    async def remove(self, name: str) -> bool:
        """Delete a repository and its content; return False if it does not exist.

        The repository loses its name at once, and `purge_repositories` deletes its rows later. If it has very many
        branches and tags, most of them are deleted first, in batches.
        """
        these = "WHERE space = :space AND protocol = :protocol AND name = :name"
        space, found = self._place["space"], f"SELECT id FROM repositories {these}"

        def thin(tx: Transaction, limit: int) -> int:
            row, most = tx.first(found, **self._place, name=name), max(limit // _ROWS_OF_REF, 1)
            key = {"space": space, "repository": 0 if row is None else row[0]}
            gone = [] if row is None else thin_refs(tx, key, most)
            emit_refs(tx, space, name, "ref.removed", gone)
            self._usage.add(tx, entries=-len(gone))
            return len(gone)

        def work(tx: Transaction) -> bool:
            sql = f"UPDATE repositories SET protocol = :removed, name = CAST(id AS text), folded = NULL {these}"
            row = tx.first(f"{sql} RETURNING id", **self._place, name=name, removed=REMOVED)
            if row is None:
                return False
            self._pass_on(tx, name)
            emit_refs(tx, space, name, "ref.removed", refs_of(tx, {"space": space, "repository": row[0]}, BATCH))
            record(tx, space, "repository.removed", name, {"protocol": self._place["protocol"]})
            return True

        async for _ in self._database.write_in_batches(thin):
            pass
        return await self._database.write(work)

    async def _exists(self, name: str) -> RepositoryExists:
        row = await self.get(name)
        return RepositoryExists(name, name if row is None else row.name)

    def _folded(self, name: str) -> str | None:
        """Return the lower-case name that must be unique in the space, or None for OCI, whose names lack capitals."""
        return name.lower() if self._place["protocol"] == HUB else None

    def _forget(self, tx: Transaction, name: str) -> int:
        """Delete a former name that a repository now takes; return 1 if the former name existed, else 0."""
        sql = "DELETE FROM former_names WHERE space = :space AND folded = :folded"
        return tx.run(sql, space=self._place["space"], folded=name.lower())

    def _pass_on(self, tx: Transaction, name: str) -> bool:
        """Make a free name lead to a repository whose name differs from it only in case.

        Return False if there is no such repository. Only repositories from before migration 11 can differ only in case.
        """
        these = "space = :space AND folded > :start AND folded < :end"
        sql = f"""
            UPDATE repositories SET folded = :folded
            WHERE {these} AND id = (SELECT id FROM repositories WHERE {these} ORDER BY folded LIMIT 1)
            AND NOT EXISTS (SELECT 1 FROM repositories WHERE space = :space AND folded = :folded)"""
        folded = name.lower()
        return tx.run(sql, space=self._place["space"], folded=folded, start=f"{folded}=", end=f"{folded}>") > 0


def _label(tx: Transaction, key: Mapping[str, Any], protocol: str, repository: str) -> None:
    """Compute the labels of all names in a renamed repository again.

    The rows are deleted and inserted, because SQLite's index of labels follows only insertions and deletions.
    """
    columns = "kind, name, store, commit_id, manifest, version, updated, changed"
    these = "WHERE space = :space AND repository = :repository"
    names = [
        dict(zip(columns.split(", "), each, strict=True))
        for each in tx.all(f"SELECT {columns} FROM names {these}", **key)
    ]
    tx.run(f"DELETE FROM names {these}", **key)
    values = ", ".join(f":{each}" for each in columns.split(", "))
    tx.many(
        f"INSERT INTO names (space, repository, {columns}, label) VALUES (:space, :repository, {values}, :label)",
        [{**key, **each, "label": label(key["space"], protocol, repository, each["name"])} for each in names],
    )


def check_new(name: str) -> None:
    """Raise `InvalidInput` for a name that new repositories must not have; older repositories keep such names."""
    if name.lower().endswith(_GIT):
        raise InvalidInput(
            f"Invalid repository name {name[:200]!r}: choose one without '.git' at the end, because git would take it "
            f"for the URL of {name[: -len(_GIT)][:200]!r}"
        )


def ensure_repository(tx: Transaction, space: str, protocol: str, name: str, id: int) -> int:
    """Insert a repository unless its id or name exists; return 1 if this call inserted it, else 0."""
    check_new(name)
    sql = f"{_INSERT} ON CONFLICT DO NOTHING"
    return tx.run(sql, space=space, id=id, protocol=protocol, name=name, now=tx.now, folded=None)


@dataclass(frozen=True, slots=True)
class NamedStore:
    """A store and one of its names in a repository.

    The name is a branch or tag. A commit without a name appears with its id, and a manifest without a name with its
    digest. For a folder of artifacts with files in the store, `kind` is `FILE`.
    """

    store: str
    protocol: str
    repository: str
    name: str
    kind: str


class NamesOfStores:
    """The names in all repositories of one space, found by the stores that they point at."""

    def __init__(self, database: Database, space: str) -> None:
        self._database = database
        self._space = space

    async def naming(self, stores: Collection[str], most: int) -> list[NamedStore]:
        """Return the names of stores, limited to `most` names of each kind for each store."""
        listed = list(stores)
        parts = [listed[start : start + _STORES] for start in range(0, len(listed), _STORES)]
        naming = _naming_by_join if self._database.dialect == "postgresql" else _naming
        found = [await self._database.read(partial(naming, self._space, part, most)) for part in parts]
        return [name for names in found for name in names]


_NAMING: Final = """
    SELECT * FROM (
        SELECT n.store, r.protocol, r.name, n.name, n.kind FROM names n JOIN repositories r
        ON r.space = n.space AND r.id = n.repository AND r.protocol <> 'removed'
        WHERE n.space = :space AND n.store = {store} AND n.repository <> 0 LIMIT :most
    ) n{alias} UNION ALL SELECT * FROM (
        SELECT DISTINCT c.store, r.protocol, r.name, c.digits, 'commit' FROM commits c JOIN repositories r
        ON r.space = c.space AND r.id = c.repository AND r.protocol <> 'removed'
        WHERE c.space = :space AND c.store = {store} AND NOT EXISTS (
            SELECT 1 FROM names n WHERE n.space = c.space AND n.repository = c.repository AND n.store = c.store
        ) LIMIT :most
    ) c{alias} UNION ALL SELECT * FROM (
        SELECT m.store, r.protocol, r.name, m.digest, 'manifest' FROM manifests m JOIN repositories r
        ON r.space = m.space AND r.id = m.repository AND r.protocol <> 'removed'
        WHERE m.space = :space AND m.store = {store} AND m.pushed > 0 AND NOT EXISTS (
            SELECT 1 FROM names n WHERE n.space = m.space AND n.repository = m.repository AND n.manifest = m.digest
        ) LIMIT :most
    ) m{alias} UNION ALL SELECT * FROM (
        SELECT DISTINCT k.store, r.protocol, r.name, coalesce(k.folder, k.name), k.kind FROM kept_files k
        JOIN repositories r ON r.space = k.space AND r.id = k.repository AND r.protocol <> 'removed'
        WHERE k.space = :space AND k.store = {store} AND k.kind = 'file' LIMIT :most
    ) k{alias}"""
# SQLite has no LATERAL; PostgreSQL would need a third of a second to plan SQLite's statement for a hundred stores.
_NAMING_BY_JOIN: Final = f"""
    SELECT found.* FROM unnest(CAST(:stores AS text[])) listed (store)
    CROSS JOIN LATERAL ({_NAMING.format(store="listed.store", alias="")}) found"""


def _naming_by_join(space: str, stores: Sequence[str], most: int, tx: Transaction) -> list[NamedStore]:
    return [NamedStore(*row) for row in tx.all(_NAMING_BY_JOIN, stores=list(stores), space=space, most=most)]


def _naming(space: str, stores: Sequence[str], most: int, tx: Transaction) -> list[NamedStore]:
    values = {f"s{number}": store for number, store in enumerate(stores)}
    parts = (_NAMING.format(store=f":{name}", alias=name) for name in values)
    sql = " UNION ALL ".join(f"SELECT * FROM ({part})" for part in parts)
    return [NamedStore(*row) for row in tx.all(sql, **values, space=space, most=most)]


@dataclass(frozen=True, slots=True)
class ListedRepository:
    """A repository, with the store of its current version, if any; times are in microseconds since the epoch."""

    id: int
    name: str
    created: int
    store: str | None
    updated: int


class RepositoryListing:
    """A list of the model or dataset repositories of one space whose names begin with a prefix."""

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
        """Return at most `WALKED` repositories that follow a name; some may not match the search, if there is one."""
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
                # The limit has no effect on the result, but keeps SQLite from reading all names of the space in order.
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
