"""Repositories, the names in them and their commits.

A name is moved by the writer that saw its latest version, in the transaction that inserts the commit: of concurrent
writers one succeeds.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from protoslice.catalog.audit import record
from protoslice.catalog.database import BATCH, LAST, Database, ForeignKeyViolation, Row, Transaction
from protoslice.catalog.labels import HUB, OCI, REMOVED, label
from protoslice.catalog.letters import tell
from protoslice.catalog.live_stores import require_repository, require_store
from protoslice.catalog.spaces import Account
from protoslice.errors import Conflict, InvalidInput, NotFound

"""Protocol of Hugging Face's clients."""
FILE: Final = "file"
"""Kind of the files of MLflow's artifacts."""
FIRST_ID: Final = 1 << 32
"""Least id of a repository that has a name; 0 is kept for the tags of stores, 1 is that of MLflow's artifacts."""
NO_FILES: Final = hashlib.sha256(b"").hexdigest()
"""Digest whose first digits are the id of a commit without files."""
_IS_HUB: Final = f"r.protocol = '{HUB}'"
_GIT: Final = ".git"
_COMMIT: Final = "c.id, c.digits, c.store, c.parent, c.number, c.title, c.message, c.author, c.at"
_NAMES: Final = f"""
    SELECT n.kind, n.name, n.version, {_COMMIT} FROM names n LEFT JOIN commits c
    ON c.space = n.space AND c.repository = n.repository AND c.id = n.commit_id
    WHERE n.space = :space AND n.repository = :repository"""
_DUE: Final = "UPDATE commits SET due = 1 WHERE space = :space AND repository = :repository AND id = :id"
_ROWS_OF_REF: Final = 4
"""Rows that change with a branch or tag that goes: its name and commit, the audit, and an event."""
_STORES: Final = 100
"""Stores that one statement asks about; SQLite allows 500 parts of a compound statement."""


_INSERT: Final = """
    INSERT INTO repositories (space, id, protocol, name, created, folded)
    VALUES (:space, :id, :protocol, :name, :now, :folded)"""
_REPOSITORY: Final = "SELECT r.id, r.name, r.created FROM repositories r"


class Moved(Conflict):
    """The name has another version, is gone, or exists already."""


class RepositoryGone(NotFound):
    """The repository was removed."""


@dataclass(frozen=True, slots=True)
class RepositoryRow:
    """A repository; times are in microseconds since the epoch."""

    id: int
    name: str
    created: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRow:
    """A commit, which never changes."""

    id: str
    digits: str
    store: str | None
    parent: str | None
    number: int
    title: str = ""
    message: str = ""
    author: str = ""
    at: int = 0


@dataclass(frozen=True, slots=True)
class NameRow:
    """A name of a repository, and the commit at which it points; None before the first."""

    kind: str
    name: str
    commit: CommitRow | None
    version: bytes


class RepositoryTable:
    """Repositories of one protocol in one space."""

    def __init__(self, database: Database, account: Account, protocol: str) -> None:
        self._database = database
        self._account = account
        self._place = {"space": account.space, "protocol": protocol}

    async def create(self, name: str) -> RepositoryRow:
        """Insert a repository; raise `UniqueViolation` if there is one of that name in any case."""
        check_new(name)
        id = FIRST_ID + secrets.randbits(62)

        def work(tx: Transaction) -> RepositoryRow:
            tx.run(_INSERT, **self._place, id=id, name=name, now=tx.now, folded=self._folded(name))
            record(tx, self._place["space"], "repository.created", name, {"protocol": self._place["protocol"]})
            self._account.charge(tx, entries=1 - self._forget(tx, name))
            return RepositoryRow(id, name, tx.now)

        return await self._database.write(work)

    async def get(self, name: str) -> RepositoryRow | None:
        """Return the repository of a name, else the one that has it in another case, else the last that had it."""
        sql = f"""
            {_REPOSITORY} WHERE r.space = :space AND r.protocol = :protocol AND r.name = :name
            UNION ALL {_REPOSITORY} WHERE r.space = :space AND r.protocol = :protocol AND r.folded = :folded
            UNION ALL {_REPOSITORY} JOIN former_names f ON f.space = r.space AND f.repository = r.id
            WHERE f.space = :space AND f.folded = :folded AND r.protocol = :protocol"""
        values = {**self._place, "name": name, "folded": name.lower()}
        found = await self._database.read(lambda tx: [RepositoryRow(*row) for row in tx.all(sql, **values)])
        return next((row for row in found if row.name == name), found[0] if found else None)

    async def page(self, prefix: str, limit: int, after: str) -> list[RepositoryRow]:
        """Return at most `limit` repositories whose names begin with `prefix`, in order, behind `after`."""
        sql = """
            SELECT id, name, created FROM repositories
            WHERE space = :space AND protocol = :protocol AND name > :after AND name >= :prefix AND name < :end
            ORDER BY name LIMIT :limit"""
        values = self._place | {"after": after, "prefix": prefix, "end": prefix + LAST, "limit": limit}
        return await self._database.read(lambda tx: [RepositoryRow(*row) for row in tx.all(sql, **values)])

    async def rename(self, name: str, new: str) -> bool:
        """Rename a repository and the artifacts of its name; it is found by its old name until another one takes that.

        Return False if there is none; raise `UniqueViolation` if the new name is taken.
        """
        check_new(new)

        def work(tx: Transaction) -> bool:
            sql = """
                SELECT id, folded FROM repositories
                WHERE space = :space AND protocol = :protocol AND name = :name FOR UPDATE"""
            row = tx.first(sql, **self._place, name=name)
            if row is None:
                return False
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
            self._account.charge(tx, entries=entries)
            return True

        return await self._database.write(work)

    async def remove(self, name: str) -> bool:
        """Delete a repository with all that is in it; return False if there is none of that name.

        It has no name from now on; `purge_repositories` deletes its rows. Of very many branches and tags, all but the
        last ones are deleted before, in batches.
        """
        these = "WHERE space = :space AND protocol = :protocol AND name = :name"
        space, found = self._place["space"], f"SELECT id FROM repositories {these}"

        def thin(tx: Transaction, limit: int) -> int:
            row, most = tx.first(found, **self._place, name=name), max(limit // _ROWS_OF_REF, 1)
            key = {"space": space, "repository": 0 if row is None else row[0]}
            refs = _refs(tx, key, most + 1)
            if row is None or len(refs) <= most:
                return 0
            sql = (
                "DELETE FROM names WHERE space = :space AND repository = :repository AND kind = :kind AND name = :name"
            )
            gone = [ref for ref in refs[:most] if tx.run(sql, **key, kind=ref.kind, name=ref.name)]
            tx.many(_DUE, [{**key, "id": ref.commit.id} for ref in gone if ref.commit is not None])
            _tell(tx, space, name, "ref.removed", gone)
            self._account.charge(tx, entries=-len(gone))
            return most

        def work(tx: Transaction) -> bool:
            sql = f"UPDATE repositories SET protocol = :removed, name = CAST(id AS text), folded = NULL {these}"
            row = tx.first(f"{sql} RETURNING id", **self._place, name=name, removed=REMOVED)
            if row is None:
                return False
            self._pass_on(tx, name)
            _tell(tx, space, name, "ref.removed", _refs(tx, {"space": space, "repository": row[0]}, BATCH))
            record(tx, space, "repository.removed", name, {"protocol": self._place["protocol"]})
            return True

        async for _ in self._database.write_in_batches(thin):
            pass
        return await self._database.write(work)

    def _folded(self, name: str) -> str | None:
        """Return the name by which a repository is unique in its space; OCI has names in lower case alone."""
        return name.lower() if self._place["protocol"] == HUB else None

    def _forget(self, tx: Transaction, name: str) -> int:
        """Delete a former name that a repository takes; return 1 if there was one, else 0."""
        sql = "DELETE FROM former_names WHERE space = :space AND folded = :folded"
        return tx.run(sql, space=self._place["space"], folded=name.lower())

    def _pass_on(self, tx: Transaction, name: str) -> bool:
        """Give a name that has become free to a repository whose name differs in case; return False if there is none.

        Such repositories are older than the rule that names differ in more than case: see migration 11.
        """
        these = "space = :space AND folded > :start AND folded < :end"
        sql = f"""
            UPDATE repositories SET folded = :folded
            WHERE {these} AND id = (SELECT id FROM repositories WHERE {these} ORDER BY folded LIMIT 1)
            AND NOT EXISTS (SELECT 1 FROM repositories WHERE space = :space AND folded = :folded)"""
        folded = name.lower()
        return tx.run(sql, space=self._place["space"], folded=folded, start=f"{folded}=", end=f"{folded}>") > 0


def _label(tx: Transaction, key: Mapping[str, Any], protocol: str, repository: str) -> None:
    """Label the names of a renamed repository again; SQLite's index of labels follows rows that come and go."""
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
    """Raise `InvalidInput` for a name that no new repository may have; older ones keep it."""
    if name.lower().endswith(_GIT):
        raise InvalidInput(
            f"Invalid repository name {name[:200]!r}: choose one that does not end in '.git', as git would take it for "
            f"the URL of {name[: -len(_GIT)][:200]!r}"
        )


def ensure_repository(tx: Transaction, space: str, protocol: str, name: str, id: int) -> int:
    """Insert a repository unless there is one of that id or name; return 1 if it was inserted, else 0."""
    check_new(name)
    sql = f"{_INSERT} ON CONFLICT DO NOTHING"
    return tx.run(sql, space=space, id=id, protocol=protocol, name=name, now=tx.now, folded=None)


class HistoryTable:
    """Names and commits of one repository."""

    def __init__(self, database: Database, account: Account, repository: RepositoryRow) -> None:
        self._database = database
        self._account = account
        self._space = account.space
        self._repository = repository
        self._key: Mapping[str, Any] = {"space": account.space, "repository": repository.id}

    @property
    def database(self) -> Database:
        """The database, which has the histories of other repositories too."""
        return self._database

    async def name(self, kind: str, name: str) -> NameRow | None:
        """Return a name, or None if there is none."""
        return await self._database.read(lambda tx: self._name(tx, kind, name))

    async def names(self, limit: int, after: tuple[str, str] = ("", "")) -> list[NameRow]:
        """Return at most `limit` names by kind and name, behind a kind and a name."""
        return await self._database.read(lambda tx: _refs(tx, self._key, limit, after))

    async def move(self, kind: str, name: str, commit: CommitRow | None, seen: bytes | None, *, new: bool) -> NameRow:
        """Point a name at a commit and return the name; a `new` commit is inserted in the same transaction.

        `seen` is the version of the name that the caller saw; None creates the name. Raise `Moved` if it has another
        one, `RepositoryGone` if the repository was removed.
        """
        version = secrets.token_bytes(16)

        def work(tx: Transaction) -> NameRow:
            require_repository(tx, self._space, self._repository.id)
            if commit is not None and new:
                require_store(tx, self._space, commit.store)
                self._insert(tx, commit)
            values = {
                **self._key,
                "kind": kind,
                "name": name,
                "store": None if commit is None else commit.store,
                "commit": None if commit is None else commit.id,
                "version": version,
                "now": tx.now,
            }
            if seen is None:
                changed = tx.run(
                    """
                    INSERT INTO names (space, repository, kind, name, store, commit_id, version, updated, label)
                    VALUES (:space, :repository, :kind, :name, :store, :commit, :version, :now, :label)
                    ON CONFLICT (space, repository, kind, name) DO NOTHING""",
                    **values,
                    label=label(self._space, HUB, self._repository.name, name),
                )
            else:
                if commit is None or commit.parent is None or not new:  # it does not lead to the one before
                    tx.run(
                        """
                        UPDATE commits SET due = 1 WHERE space = :space AND repository = :repository AND id = (
                            SELECT commit_id FROM names WHERE space = :space AND repository = :repository
                                AND kind = :kind AND name = :name AND version = :seen
                        )""",
                        **self._key, kind=kind, name=name, seen=seen,
                    )  # fmt: skip
                changed = tx.run(
                    """
                    UPDATE names SET store = :store, commit_id = :commit, version = :version, updated = :now
                    WHERE space = :space AND repository = :repository AND kind = :kind AND name = :name
                        AND version = :seen""",
                    **values,
                    seen=seen,
                )
            if changed == 0:
                raise Moved(f"The name {name!r} was changed by another request")
            moved = NameRow(kind, name, commit, version)
            _tell(tx, self._space, self._repository.name, "ref.set", [moved])
            self._account.charge(tx, entries=int(commit is not None and new) + int(seen is None))
            return moved

        try:
            return await self._database.write(work)
        except ForeignKeyViolation:
            raise RepositoryGone(f"The repository {self._repository.name!r} was removed") from None

    async def remove(self, kind: str, name: str) -> bool:
        """Delete a name; return False if there is none."""

        def work(tx: Transaction) -> bool:
            found = self._name(tx, kind, name)
            sql = """
                DELETE FROM names
                WHERE space = :space AND repository = :repository AND kind = :kind AND name = :name
                RETURNING commit_id"""
            row = tx.first(sql, **self._key, kind=kind, name=name)
            if found is None or row is None:
                return False
            tx.run(_DUE, **self._key, id=row[0])
            _tell(tx, self._space, self._repository.name, "ref.removed", [found])
            self._account.charge(tx, entries=-1)
            return True

        return await self._database.write(work)

    async def commit(self, digits: str) -> CommitRow | None:
        """Return the newest commit of an id, or None if there is none."""
        sql = f"""
            SELECT {_COMMIT} FROM commits c
            WHERE c.space = :space AND c.repository = :repository AND c.digits = :digits
            ORDER BY c.at DESC, c.number DESC LIMIT 1"""
        row = await self._database.read(lambda tx: tx.first(sql, **self._key, digits=digits))
        return None if row is None else _commit(row)

    async def ids(self, digits: str, limit: int) -> list[str]:
        """Return at most `limit` ids of commits that begin with `digits`."""
        sql = """
            SELECT DISTINCT digits FROM commits
            WHERE space = :space AND repository = :repository AND digits >= :digits AND digits < :end
            ORDER BY digits LIMIT :limit"""
        values = {**self._key, "digits": digits, "end": digits + LAST, "limit": limit}
        return await self._database.read(lambda tx: [str(row[0]) for row in tx.all(sql, **values)])

    async def ancestors(self, id: str, limit: int) -> list[CommitRow]:
        """Return at most `limit` commits from one on, along their parents."""
        sql = f"""
            WITH RECURSIVE line (id, depth) AS (
                SELECT c.id, 1 FROM commits c
                WHERE c.space = :space AND c.repository = :repository AND c.id = :id
                UNION ALL
                SELECT c.parent, depth + 1 FROM line JOIN commits c
                ON c.space = :space AND c.repository = :repository AND c.id = line.id
                WHERE depth < :limit AND c.parent IS NOT NULL
            )
            SELECT {_COMMIT} FROM line JOIN commits c
            ON c.space = :space AND c.repository = :repository AND c.id = line.id ORDER BY depth"""
        values = {**self._key, "id": id, "limit": limit}
        return await self._database.read(lambda tx: [_commit(row) for row in tx.all(sql, **values)])

    def _name(self, tx: Transaction, kind: str, name: str) -> NameRow | None:
        row = tx.first(
            f"{_NAMES} AND n.kind = :kind AND n.name = :name",
            **self._key,
            kind=kind,
            name=name,
        )
        return None if row is None else _named(row)

    def _insert(self, tx: Transaction, commit: CommitRow) -> None:
        tx.run(
            """
            INSERT INTO commits (space, repository, id, digits, store, parent, number, title, message, author, at)
            VALUES (:space, :repository, :id, :digits, :store, :parent, :number, :title, :message, :author, :at)""",
            **self._key,
            id=commit.id,
            digits=commit.digits,
            store=commit.store,
            parent=commit.parent,
            number=commit.number,
            title=commit.title,
            message=commit.message,
            author=commit.author,
            at=commit.at,
        )


@dataclass(frozen=True, slots=True)
class NamedStore:
    """A store, and a name of it in a repository: a branch or tag, else the id of a commit or digest of a manifest.

    A folder of artifacts that has files in the store is of the kind `FILE`.
    """

    store: str
    protocol: str
    repository: str
    name: str
    kind: str


class NamesOfStores:
    """Names in all repositories of one space, by the stores that they point at."""

    def __init__(self, database: Database, space: str) -> None:
        self._database = database
        self._space = space

    async def naming(self, stores: Collection[str], most: int) -> list[NamedStore]:
        """Return the names of stores, at most `most` of each kind for each store."""
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


def empty_commits(tx: Transaction, space: str, store: str, limit: int) -> int:
    """Take the files of a store from commits, then from the branches and tags that point at these; return how many.

    Histories stay as they are but for that, with the same titles and messages.
    """
    key = {"space": space, "store": store, "limit": limit}
    these = "SELECT {} FROM {} WHERE space = :space AND store = :store LIMIT :limit"
    picked = these.format("repository, id", "commits")
    done = tx.run(
        f"UPDATE commits SET store = NULL, digits = :none WHERE space = :space AND (repository, id) IN ({picked})",
        **key,
        none=NO_FILES[:40],
    )
    if done:
        return done
    repositories = f"SELECT r.name FROM repositories r WHERE r.space = n.space AND r.id = n.repository AND {_IS_HUB}"
    names = tx.all(
        f"""
        SELECT n.repository, ({repositories}), n.kind, n.name FROM names n
        WHERE n.space = :space AND n.store = :store AND EXISTS ({repositories}) LIMIT :limit""",
        **key,
    )
    for id, repository, kind, name in names:
        one = {"space": space, "repository": id, "kind": kind, "name": name}
        tx.run(
            """
            UPDATE names SET store = NULL, version = :version, updated = :now
            WHERE space = :space AND repository = :repository AND kind = :kind AND name = :name""",
            **one,
            version=secrets.token_bytes(16),
            now=tx.now,
        )
        row = tx.first(f"{_NAMES} AND n.kind = :kind AND n.name = :name", **one)
        _tell(tx, space, repository, "ref.set", [] if row is None else [_named(row)])
    return len(names)


def _refs(tx: Transaction, key: Mapping[str, Any], limit: int, after: tuple[str, str] = ("", "")) -> list[NameRow]:
    sql = f"{_NAMES} AND (n.kind, n.name) > (:kind, :name) ORDER BY n.kind, n.name LIMIT :limit"
    return [_named(row) for row in tx.all(sql, **key, kind=after[0], name=after[1], limit=limit)]


def _tell(tx: Transaction, space: str, repository: str, event: str, refs: Sequence[NameRow]) -> None:
    for ref in refs:
        commit = ref.commit
        data = {
            "repository": repository,
            "ref": f"refs/{ref.kind}/{ref.name}",
            "commit": None if commit is None else commit.digits,
            "store": None if commit is None else commit.store,
            "title": "" if commit is None else commit.title,
            "user": "" if commit is None else commit.author,
        }
        tell(tx, space, event, f"{repository}@{ref.name}", data)


def _named(row: Row) -> NameRow:
    kind, name, version, *commit = row
    return NameRow(kind, name, None if commit[0] is None else _commit(commit), bytes(version))


def _commit(row: Sequence[Any]) -> CommitRow:
    id, digits, store, parent, number, title, message, author, at = row
    return CommitRow(
        id=id, digits=digits, store=store, parent=parent, number=number, title=title, message=message, author=author,
        at=at,
    )  # fmt: skip
