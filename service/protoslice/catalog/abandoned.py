"""Deletion of unreachable commits, removed repositories and removed spaces, and of the stores that only these made."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from functools import partial
from typing import Final

from protoslice.catalog.kept_files import COUNTED
from protoslice.catalog.labels import REMOVED
from protoslice.catalog.live_stores import LIVE, is_named
from protoslice.catalog.spaces import Usage
from protoslice.catalog.stores import mark_removed
from protoslice.database.transactions import BATCH, SECOND, Database, Row, Transaction

_OF_REPOSITORIES: Final = {
    "names": "kind, name",
    "kept_files": "kind, name",
    "manifests": "digest",
    "commits": "id",
    "former_names": "folded",
}
"""Tables whose rows belong to repositories, each with the columns that distinguish the rows of one repository."""
_RETURNED: Final = {
    "commits": "store, 0, 1",
    "manifests": "store, length(body) + length(coalesce(referrer, '')), 1",
    "kept_files": f"NULL, 0, CASE WHEN kind IN {COUNTED} THEN 1 ELSE 0 END",
}
"""SQL columns that the deletion of a row returns: the row's store and counted bytes, and 1 if it counts as an entry.

Rows of tables that are not listed here have no store and no counted bytes, and each counts as an entry.
"""
_COMMIT: Final = "commits WHERE space = :space AND repository = :repository AND id = :id"
# The statement finds rows by their keys only: PostgreSQL then reads no other rows, even if its statistics are wrong.
_UNREACHED: Final = f"""
    DELETE FROM {_COMMIT} AND NOT EXISTS (
        SELECT 1 FROM names WHERE space = :space AND repository = :repository AND commit_id = :id
    ) AND NOT EXISTS (
        SELECT 1 FROM commits c WHERE c.space = :space AND c.repository = :repository AND c.parent = :id
    ) RETURNING parent, store"""


async def purge_repositories(database: Database) -> None:
    """Delete all rows of removed repositories, and the stores that only commits of these repositories name."""

    def work(tx: Transaction, limit: int) -> int:
        sql = f"SELECT space, id FROM repositories WHERE protocol = '{REMOVED}' LIMIT :limit"
        done, counted, sizes, stores = 0, Counter[str](), Counter[str](), defaultdict[str, set[str]](set)
        for space, id in tx.all(sql, limit=limit):
            for table, columns in _OF_REPOSITORIES.items():
                these = f"{table} WHERE space = :space AND repository = :id"
                picked = f"({columns}) IN (SELECT {columns} FROM {these} LIMIT :rest)"
                returned = _RETURNED.get(table, "NULL, 0, 1")
                rows = tx.all(
                    f"DELETE FROM {these} AND {picked} RETURNING {returned}", space=space, id=id, rest=limit - done
                )
                done += len(rows)
                stores[space].update(store for store, _, _ in rows if store is not None)
                sizes[space] += sum(size for _, size, _ in rows)
                counted[space] += sum(count for _, _, count in rows)
            if done >= limit:
                break
            deleted = tx.run("DELETE FROM repositories WHERE space = :space AND id = :id", space=space, id=id)
            done, counted[space] = done + deleted, counted[space] + deleted
        for space, entries in sorted(counted.items()):
            remove_stores(tx, space, stores[space], entries=entries, size=sizes[space])
        return done

    async for _ in database.write_in_batches(work):
        pass


_REMOVED: Final = "SELECT name FROM spaces WHERE removed = 0"
_OF_SPACES: Final = (
    # These statements only mark repositories, stores and open uploads: other steps of the collection delete them.
    f"""
    UPDATE repositories SET protocol = '{REMOVED}', name = CAST(id AS text), folded = NULL WHERE (space, id) IN (
        SELECT space, id FROM repositories WHERE protocol <> '{REMOVED}' AND space IN ({_REMOVED}) LIMIT :limit
    )""",
    f"""
    UPDATE stores SET deleted = 0, tags = NULL WHERE (space, id) IN (
        SELECT space, id FROM stores WHERE (deleted IS NULL OR deleted > 0) AND space IN ({_REMOVED}) LIMIT :limit
    )""",
    f"""
    UPDATE uploads SET state = 'gone', epoch = epoch + 1, modified = 0 WHERE (space, id) IN (
        SELECT space, id FROM uploads WHERE state <> 'gone' AND space IN ({_REMOVED}) LIMIT :limit
    )""",
    f"""
    DELETE FROM uploads WHERE (space, id) IN (
        SELECT space, id FROM uploads
        WHERE state = 'gone' AND modified > 0 AND space IN ({_REMOVED}) LIMIT :limit
    )""",
    f"""
    DELETE FROM deliveries WHERE (hook, id) IN (
        SELECT d.hook, d.id FROM deliveries d JOIN webhooks w ON w.id = d.hook
        WHERE w.space IN ({_REMOVED}) LIMIT :limit
    )""",
    f"DELETE FROM webhooks WHERE id IN (SELECT id FROM webhooks WHERE space IN ({_REMOVED}) LIMIT :limit)",
    f"DELETE FROM tokens WHERE id IN (SELECT id FROM tokens WHERE space IN ({_REMOVED}) LIMIT :limit)",
    f"""
    DELETE FROM schemas WHERE (space, name) IN (
        SELECT space, name FROM schemas WHERE space IN ({_REMOVED}) LIMIT :limit
    )""",
)
_EMPTY: Final = " AND ".join(
    f"NOT EXISTS (SELECT 1 FROM {table} r WHERE r.space = spaces.name{more})"
    for table, more in {
        "stores": "", "repositories": "", "uploads": "", "objects": " AND r.size IS NOT NULL", "webhooks": "",
        "tokens": "", "schemas": "",
    }.items()
)  # fmt: skip


async def purge_spaces(database: Database, grace_seconds: float) -> None:
    """Delete the rows of spaces whose grace period after their removal has ended.

    Repositories, stores and uploads are only marked here; other steps of the collection delete them.
    """
    due = "UPDATE spaces SET removed = 0 WHERE removed > 0 AND removed < :before"
    grace = int(grace_seconds * SECOND)
    await database.write(lambda tx: tx.run(due, before=tx.now - grace), background=True)
    if await database.read(lambda tx: tx.first(_REMOVED), background=True) is None:
        return
    for sql in _OF_SPACES:
        async for _ in database.write_in_batches(partial(_run, sql)):
            pass


async def forget_spaces(database: Database) -> None:
    """Delete the rows of removed spaces that are empty, which makes their names available again."""

    def work(tx: Transaction) -> None:
        for (name,) in tx.all(f"{_REMOVED} AND {_EMPTY} LIMIT {BATCH}"):
            for sql in ("DELETE FROM usage WHERE space = :name", "DELETE FROM spaces WHERE name = :name"):
                tx.run(sql, name=name)

    if await database.read(lambda tx: tx.first(_REMOVED), background=True) is not None:
        await database.write(work, background=True)


def _run(sql: str, tx: Transaction, limit: int) -> int:
    return tx.run(sql, limit=limit)


async def purge_commits(database: Database) -> None:
    """Delete the commits that no branch or tag leads to any more, and the stores that only these commits name.

    A commit becomes due when it loses a name. When a commit is deleted, its parent is examined next. Commits that are
    not due are never read, except these parents.
    """
    due = "SELECT space, repository, id FROM commits WHERE due = 1 ORDER BY space, repository, id LIMIT :limit"

    def work(tx: Transaction, limit: int) -> int:
        done, counted, stores = 0, Counter[str](), defaultdict[str, set[str]](set)
        for space, repository, id in tx.all(due, limit=limit):
            key = {"space": space, "repository": repository}
            # Requests that point a name at a commit wait for this lock; otherwise, such a commit could be deleted.
            tx.all("SELECT 1 FROM repositories WHERE space = :space AND id = :repository FOR UPDATE", **key)
            gone: Row | None = (id, None)
            while gone is not None and gone[0] is not None and done < limit:
                id, done = gone[0], done + 1
                gone = tx.first(_UNREACHED, **key, id=id)
                if gone is not None:
                    counted[space] += 1
                    stores[space].update({gone[1]} - {None})
            if gone is None:  # a name or another commit leads to the commit
                tx.run(f"UPDATE {_COMMIT.replace('WHERE', 'SET due = NULL WHERE')}", **key, id=id)
            elif gone[0] is not None:  # the limit is reached: the next batch continues with the parent
                tx.run(f"UPDATE {_COMMIT.replace('WHERE', 'SET due = 1 WHERE')}", **key, id=gone[0])
            if done >= limit:
                break
        for space, entries in sorted(counted.items()):
            remove_stores(tx, space, stores[space], entries=entries)
        return done

    async for _ in database.write_in_batches(work):
        pass


def remove_stores(tx: Transaction, space: str, stores: Collection[str], *, entries: int, size: int = 0) -> None:
    """Remove those of `stores` that only commits or manifests created and that have no name any more.

    Subtract the removed stores from the usage of the space. Also subtract `entries` further entries and `size` further
    bytes.
    """
    locked = f"SELECT 1 FROM stores WHERE {LIVE} AND of_commits = 1 FOR UPDATE"
    computed = f"DELETE FROM manifests WHERE space = :space AND store = :digest RETURNING {_RETURNED['manifests']}"
    count = logical = 0
    for digest in sorted(stores):
        key = {"space": space, "digest": digest}
        # The lock comes first: the second statement then sees all names that were written during the wait for the lock.
        if tx.first(locked, **key) is None or tx.all(f"SELECT {is_named(':digest')}", **key)[0][0]:
            continue
        removed = mark_removed(tx, space, digest)
        if removed is not None:
            count, logical, entries = count + 1, logical + removed[0], entries + len(removed[1])
            rows = tx.all(computed, **key)
            entries, size = entries + len(rows), size + sum(held for _, held, _ in rows)
    Usage(space).add(tx, stored_bytes=-size, stores=-count, logical_bytes=-logical, entries=-entries)
