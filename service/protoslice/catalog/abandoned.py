"""Commits that no name leads to any more, and the stores that only they have made."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from protoslice.catalog.database import Database, Transaction
from protoslice.catalog.labels import REMOVED
from protoslice.catalog.live_stores import LIVE
from protoslice.catalog.spaces import Account
from protoslice.catalog.stores import mark_removed

_OF_REPOSITORIES: Final = {
    "names": "kind, name",
    "kept_files": "kind, name",
    "manifests": "digest",
    "commits": "id",
    "former_names": "folded",
}
"""Tables whose rows belong to repositories, and the columns that tell the rows of one repository apart."""
_REFERRING: Final = ("names", "commits", "manifests", "kept_files")
# Without joins: PostgreSQL cannot know the size of `reached`, and may read all commits for each of its rows.
_UNREACHED: Final = """
    DELETE FROM commits WHERE space = :space AND repository = :repository AND id IN (
        WITH RECURSIVE reached (id) AS (
            SELECT commit_id FROM names
            WHERE space = :space AND repository = :repository AND commit_id IS NOT NULL UNION
            SELECT (
                SELECT parent FROM commits WHERE space = :space AND repository = :repository AND id = reached.id
            ) FROM reached WHERE id IS NOT NULL
        )
        SELECT id FROM commits WHERE space = :space AND repository = :repository
            AND id NOT IN (SELECT id FROM reached WHERE id IS NOT NULL) LIMIT :limit
    )"""


async def purge_repositories(database: Database) -> None:
    """Delete all rows of repositories that were removed, and the stores that go with their commits."""

    def work(tx: Transaction, limit: int) -> int:
        sql = f"SELECT space, id FROM repositories WHERE protocol = '{REMOVED}' LIMIT :limit"
        done, counted, stores = 0, dict[str, int](), dict[str, set[str]]()
        for space, id in tx.all(sql, limit=limit):
            for table, columns in _OF_REPOSITORIES.items():
                these = f"{table} WHERE space = :space AND repository = :id"
                picked = f"({columns}) IN (SELECT {columns} FROM {these} LIMIT :rest)"
                returned = "store" if table == "commits" else "NULL"
                rows = tx.all(
                    f"DELETE FROM {these} AND {picked} RETURNING {returned}", space=space, id=id, rest=limit - done
                )
                done += len(rows)
                stores.setdefault(space, set()).update(store for (store,) in rows if store is not None)
                # Files of the hub are staged or git's own, which do not count.
                counted[space] = counted.get(space, 0) + (len(rows) if table != "kept_files" else 0)
            if done >= limit:
                break
            deleted = tx.run("DELETE FROM repositories WHERE space = :space AND id = :id", space=space, id=id)
            done, counted[space] = done + deleted, counted[space] + deleted
        for space, entries in sorted(counted.items()):
            _remove_stores(tx, space, stores[space], entries=entries)
        return done

    async for _ in database.write_in_batches(work):
        pass


async def purge_commits(database: Database, account: Account, repository: int) -> None:
    """Delete the commits of a repository that no branch or tag leads to, and the stores that go with them."""
    key = {"space": account.space, "repository": repository}

    def work(tx: Transaction, limit: int) -> int:
        # Requests that point a name at a commit wait: the name would go with the commit.
        tx.all("SELECT 1 FROM repositories WHERE space = :space AND id = :repository FOR UPDATE", **key)
        rows = tx.all(f"{_UNREACHED} RETURNING store", **key, limit=limit)
        _remove_stores(tx, account.space, {store for (store,) in rows if store is not None}, entries=len(rows))
        return len(rows)

    async for _ in database.write_in_batches(work):
        pass


def _remove_stores(tx: Transaction, space: str, stores: Collection[str], *, entries: int) -> None:
    """Remove those of `stores` that only commits have made and that nothing names; count `entries` fewer."""
    locked = f"SELECT 1 FROM stores WHERE {LIVE} AND of_commits = 1 FOR UPDATE"
    named = " OR ".join(
        f"EXISTS (SELECT 1 FROM {table} WHERE space = :space AND store = :digest)" for table in _REFERRING
    )
    count = size = 0
    for digest in sorted(stores):
        key = {"space": space, "digest": digest}
        # The second statement sees the names that were written while this one waited for the lock.
        if tx.first(locked, **key) is None or tx.all(f"SELECT {named}", **key)[0][0]:
            continue
        removed = mark_removed(tx, space, digest)
        if removed is not None:
            count, size, entries = count + 1, size + removed[0], entries + len(removed[1])
    Account(space).charge(tx, stores=-count, logical_bytes=-size, entries=-entries)
