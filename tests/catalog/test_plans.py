"""The plans of statements in SQLite: each statement finds its rows by an index, and reads no others of the space."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from tests.support.catalogues import InlineDatabase
from tests.support.rows import ACCOUNT, SPACE, an_upload, own, put_store, reserved

from protoslice.catalog.artifacts import ArtifactTable, StoredManifest
from protoslice.catalog.collector import CollectorTable
from protoslice.catalog.derived import DerivedTable
from protoslice.catalog.git_objects import GitCommitRow, GitObjectRow, GitObjectTable
from protoslice.catalog.histories import Commit, History, Ref
from protoslice.catalog.kept_files import KeptFiles, RepositoryFile, purge_kept_files
from protoslice.catalog.labels import HUB
from protoslice.catalog.mlflow import ChangedFolders, MlflowTable, folder_version
from protoslice.catalog.objects import ObjectTable
from protoslice.catalog.repositories import NamesOfStores, RepositoryListing, RepositoryTable
from protoslice.catalog.spaces import SpaceTable, Usage
from protoslice.catalog.store_lists import SORTS, Sort, StoreQuery
from protoslice.catalog.stores import StoreTable
from protoslice.catalog.syntax import Digest
from protoslice.catalog.tags import TagTable
from protoslice.catalog.uploads import ObjectChanges, UploadTable, XorbRow
from protoslice.catalog.webhooks import DeliveryTable
from protoslice.database.sqlite import SqliteTransaction
from protoslice.database.transactions import Row

_LOCKS = re.compile(r"\s+FOR ((NO KEY )?UPDATE|(KEY )?SHARE)( SKIP LOCKED)?")
_SMALL = ("webhooks", "uploads_open", "usage", "kept_files_upload")
"""The tables and indexes that have few rows in a space."""
_IN_ORDER = tuple(f"stores USING INDEX stores_{sort}" for sort in SORTS)
"""The indexes of which a list reads only as many rows as it shows."""


_FILTERS: tuple[dict[str, Any], ...] = (
    {}, {"type": "t"}, {"uploader": "u"}, {"min_size": 1}, {"since": 1}, {"name": "t"}, {"name": "store"},
    {"type": "t", "uploader": "u", "name": "store"}, {"nameless": True}, {"nameless": True, "type": "t"},
)  # fmt: skip
QUERIES = [
    StoreQuery(sort=sort, descending=descending, **given)
    for sort in SORTS
    for descending in (False, True)
    for given in _FILTERS
    if not (sort == "name" and given.get("nameless"))
]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Return the plan of each executed statement."""
    found = dict[str, list[str]]()
    for name in ("all", "run"):
        plain = getattr(SqliteTransaction, name)

        def explained(self: SqliteTransaction, sql: str, *, plain: Any = plain, **values: Any) -> Any:
            if sql not in found:
                found[sql] = []
                rows: list[Row] = self._connection.execute(
                    f"EXPLAIN QUERY PLAN {_LOCKS.sub('', sql)}", values
                ).fetchall()
                found[sql] = [str(row[3]) for row in rows]
            return plain(self, sql, **values)

        monkeypatch.setattr(SqliteTransaction, name, explained)
    return found


async def _mlflow(db: InlineDatabase) -> None:
    table = MlflowTable(db, ACCOUNT)
    await table.put("r/a", RepositoryFile(size=1, store="x", path="p"))
    await table.get("r/a")
    await table.entries("r")
    await table.files("r")
    await table.freeze("r", folder_version(await table.versions("r")), "x")
    await table.frozen_store("r")
    await table.folders("r", limit=3, after=None)
    for folder in await ChangedFolders(db).quiet(-1, 3):
        await ChangedFolders(db).settle(folder)
    await table.remove("r")


async def _artifacts(db: InlineDatabase) -> None:
    table, d, z = ArtifactTable(db, ACCOUNT, "m"), Digest.of(b"d"), Digest.of(b"z")
    await table.put_manifest(StoredManifest(d, "m", b"", "x", z, "{}"), ["t"])
    await table.put_blobs({d: RepositoryFile(size=1, upload="u")})
    await table.change_blob(d, RepositoryFile(size=1, store="x"), await table.blob(d))
    await table.manifest(d)
    await table.tagged("t")
    await table.known([d])
    await table.of_store("x")
    await table.stores(3)
    await table.tags(limit=3, after=None)
    await table.newest_tag()
    await table.referrers(z, limit=3, after=None)
    await table.descriptors([d])
    await NamesOfStores(db, "team").naming(["x", "y"], 3)
    await table.remove_tag("t")
    await table.remove_manifest(d)
    await table.remove_blob(d)


async def _repositories(db: InlineDatabase) -> None:
    repositories = RepositoryTable(db, Usage("team"), HUB)
    row = await repositories.create("m")
    await repositories.get("m")
    await repositories.names("m", limit=3, after=None)
    history = History(db, Usage("team"), row.id, row.name)
    main = await history.move(Ref("heads", "main", Commit()), Commit(place="c", store="x"))
    await history.move(main, Commit(place="d", store="x"))
    await history.page(3, None)
    await history.by_id("x")
    await history.ancestors("c", 3)
    await history.ids("x", 3)
    git = GitObjectTable(db, "team", row.id)
    await git.put([GitCommitRow("c", "00", "x")], [GitObjectRow("01", b"tree")], None)
    await git.put([GitCommitRow("e", "02", "x")], [], ("c", "00"))
    await git.put_blobs({"d": "03"})
    for found in (git.objects(["01"]), git.commits(["c"]), git.blobs(["d"]), git.is_stale(), git.clear()):
        await found
    for search in ("", "m@", "main"):
        for datasets in (False, True):
            await RepositoryListing(db, "team", "", search, datasets=datasets).rows("")
    await repositories.rename("m", "n")
    await repositories.rename("n", "m")
    await history.remove("heads", "main")
    await KeptFiles(db, "team", row.id, "staged").put("a", RepositoryFile(size=1, upload="u"))
    await purge_kept_files(db, 0.0)
    await repositories.remove("m")


async def _stores(db: InlineDatabase) -> None:
    objects = await reserved(db, 3)
    table, tags = StoreTable(db, ACCOUNT), TagTable(db, ACCOUNT)
    row = (await put_store(db, "x", own=own(objects[:1]), tags=["t"], paths=["p"], digests=[(0, b"d")])).row
    await put_store(db, "z", shared=[objects[0].id], replaces=row.id + 1)
    await table.get("x")
    await table.starting_with("x")
    await table.starting_with("x", removed=True)
    for query in QUERIES:
        _, rest = await table.page(query, limit=3, after=None, room=9, tags=3)
        key = tuple("" if kind is str else 0 for kind in query.key_types)
        await table.page(query, limit=3, after=rest or key, room=9, tags=3)
    await table.tagged("t", limit=3, after="", room=9, tags=3)
    await table.shown(digest="x", tags=3)
    await table.shown(tag="t", tags=3)
    await table.about("x", 3)
    await table.with_file(b"d")
    await table.with_pieces([b"p"])
    ((found, _),) = await tags.put(["t"], "x")
    await tags.put(["t"], "x", if_match=found.etag)
    await tags.page(3)
    await tags.page(3, store="x")
    await tags.last_set("t")
    await tags.remove("t")
    for name in ("f", "g"):
        await DerivedTable(db, SPACE).put(row.id, name, None, own=own(objects, None).pop(1 + (name == "g")))
    await DerivedTable(db, SPACE).get(row.id, "f")
    await table.remove("x")
    await table.last_with("t")
    await table.restore("x")
    await SpaceTable(db).create(SPACE)
    await SpaceTable(db).get(SPACE)
    await SpaceTable(db).page(3)


async def _collector(db: InlineDatabase) -> None:
    objects = await reserved(db, 3)
    table = CollectorTable(db)
    await ObjectTable(db).drop(SPACE, objects[:1])
    await ObjectTable(db).delete([(SPACE, objects[1])])
    await ObjectTable(db).count_unpublished(0)
    await db.write(lambda tx: tx.many("UPDATE stores SET deleted = 1", [{}]))
    await table.expire_objects(0)
    await table.expire_uploads()
    await table.purge_uploads(0)
    await table.purge_stores(0)
    await table.drop_objects(-1)
    async for rows in table.trash():
        await table.deleted(rows)


async def _others(db: InlineDatabase) -> None:
    uploads = UploadTable(db, ACCOUNT)
    held = await uploads.create(an_upload("u"), keep_seconds=9)
    await uploads.get("u")
    await uploads.epoch("u")
    held = await uploads.take("u")
    (mine,) = own(await reserved(db, 1))
    changes = ObjectChanges(own=[mine])
    held = await uploads.put(held, kept_parts=0, keep_seconds=9, objects=changes)
    await uploads.put(held, kept_parts=0, keep_seconds=-9, objects=ObjectChanges(gone=frozenset({mine.id})))
    await uploads.add_xorb("u", "x", XorbRow(1, b""), own(await reserved(db, 1))[0])
    await uploads.xorbs("u")
    await uploads.xorb("u", "x")
    await uploads.open_by_client()
    deliveries = DeliveryTable(db)
    await deliveries.take(1.0, 2.0)
    await deliveries.page("h", dead=False, limit=3)
    await deliveries.redeliver("h", 1.0)
    await deliveries.trim("h", 3)
    await deliveries.purge()


_NAMES = ("(space=? AND repository=?)", "(space=? AND repository=? AND kind=?)")
"""The conditions that all tags of a space meet."""
_OF_STORE = re.compile(r"\bstore (=|IN)")
_SMALL_ROWS = (
    r"CONSTANT|line|meta$|[cknm]?s\d|[cnpqw]$|ranked|family|hits|holds|listed|picked|t VIRTUAL TABLE INDEX 0:G|\("
)
_SCAN = rf"SCAN (?!{_SMALL_ROWS})"
"""A pattern for a scan, except scans of small subqueries."""


def test_statements_find_their_rows_by_an_index(plans: dict[str, list[str]]) -> None:
    async def work() -> None:
        db = InlineDatabase()
        plans.clear()
        for store in ("x", "y"):
            await put_store(db, store)
        for part in (_mlflow, _artifacts, _repositories, _others):
            await part(db)
        await StoreTable(db, ACCOUNT).remove("x")
        for part in (_stores, _collector):
            await part(db)

    asyncio.run(work())
    assert len(plans) > 120
    bad = {
        " ".join(sql.split()): step
        for sql, plan in plans.items()
        for step in plan
        if not any(small in step for small in (*_SMALL, *_IN_ORDER))
        and f"CO-ROUTINE {step.removeprefix('SCAN ')}" not in plan
        and (
            step.endswith(("(space=?)", "(space=? AND store>?)"))
            or re.match(_SCAN, step)
            or (step.endswith(_NAMES) and _OF_STORE.search(sql))
        )
    }
    assert bad == {}, "\n".join(f"{step}: {sql}" for sql, step in bad.items())


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("descending", [False, True])
def test_lists_read_the_index_of_their_sort_key(sort: Sort, descending: bool, plans: dict[str, list[str]]) -> None:
    async def work() -> None:
        db = InlineDatabase()
        await put_store(db, "x", tags=["t"])
        plans.clear()
        query = StoreQuery(sort=sort, descending=descending)
        key = tuple("" if kind is str else 0 for kind in query.key_types)
        for after in (None, key):
            await StoreTable(db, ACCOUNT).page(query, limit=3, after=after, room=9, tags=3)

    asyncio.run(work())
    index = "names_label" if sort == "name" else f"stores_{sort}"
    lists = [plan for sql, plan in plans.items() if "ahead" in sql]
    assert len(lists) == 2
    for plan in lists:
        step = next(step for step, line in enumerate(plan) if index in line)
        assert "TEMP B-TREE" not in plan[step + 1] or sort == "name", plan
        assert not any("USING INDEX stores_" in line and index not in line and sort != "name" for line in plan)


def test_search_for_repositories_reads_those_that_match(plans: dict[str, list[str]]) -> None:
    async def work() -> None:
        db = InlineDatabase()
        await RepositoryTable(db, Usage("team"), HUB).create("m")
        plans.clear()
        await RepositoryListing(db, "team", "", "name", datasets=False).rows("")

    asyncio.run(work())
    hits, *lists = plans.values()
    assert hits == ["SCAN t VIRTUAL TABLE INDEX 0:G0"]
    assert len(lists) == 2
    assert all("SEARCH repositories USING PRIMARY KEY (space=? AND id=?)" in plan for plan in lists), lists
