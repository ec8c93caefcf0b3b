"""Plans of statements in SQLite: each finds its rows by an index, and reads no others of the space."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from tests.support.catalogues import InlineDatabase

from protoslice.catalog.artifacts import ArtifactTable, ManifestRow
from protoslice.catalog.database import Row
from protoslice.catalog.drafts import ChangedFolders, DraftTable, folder_version
from protoslice.catalog.kept_files import KeptFile, KeptFiles, purge_kept_files
from protoslice.catalog.letters import LetterTable
from protoslice.catalog.repositories import HUB, CommitRow, HistoryTable, NamesOfStores, RepositoryTable
from protoslice.catalog.sqlite import SqliteTransaction
from protoslice.catalog.uploads import UploadRow, UploadTable

_LOCKS = re.compile(r"\s+FOR (UPDATE|SHARE)( SKIP LOCKED)?")
_SMALL = ("webhooks", "uploads_open")
"""Tables and indexes of few rows in a space."""


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Plan of each statement that was executed."""
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


async def _drafts(db: InlineDatabase) -> None:
    table = DraftTable(db, "team")
    await table.put("r/a", "r", KeptFile(size=1, store="x", path="p"))
    await table.get("r/a")
    await table.entries("r", "")
    await table.files("r", 3)
    await table.versions("r", 3)
    await table.seal("r", folder_version(await table.versions("r", 9)), "x", 9)
    await table.sealed("r")
    await table.folders("r", 3, "")
    for folder in await ChangedFolders(db).quiet(-1, 3):
        await ChangedFolders(db).settle(folder)
    await table.remove("r")


async def _artifacts(db: InlineDatabase) -> None:
    table = ArtifactTable(db, "team", "m")
    manifest = ManifestRow(digest="d", media_type="m", body=b"", store="x", subject="z", referrer="{}")
    await table.put_manifest(manifest, ["t"])
    await table.put_blobs({"b": KeptFile(size=1, upload="u")})
    await table.change_blob("b", KeptFile(size=1, store="x"), (await table.blob("b") or KeptFile(size=0)).version)
    await table.manifest(digest="d")
    await table.manifest(tag="t")
    await table.known(["d"])
    await table.of_store("x")
    await table.stores(3)
    await table.tags(3, "")
    await table.newest_tag()
    await table.referrers("z", 3, "")
    await table.descriptors(["d"])
    await NamesOfStores(db, "team").naming(["x", "y"], 3)
    await NamesOfStores(db, "team").named_since({"x": 0.0})
    await table.remove_tag("t")
    await table.remove_manifest("d")
    await table.remove_blob("b")


async def _repositories(db: InlineDatabase) -> None:
    repositories = RepositoryTable(db, "team", HUB)
    row = await repositories.create("m")
    await repositories.page("m", 3, "")
    table = HistoryTable(db, "team", row)
    commit = CommitRow(id="c", digits="d", store="x", parent=None, number=1)
    moved = await table.move("heads", "main", commit, None, new=True)
    await table.move("heads", "main", commit, moved.version, new=False)
    await table.names(3)
    await table.commit("d")
    await table.ancestors("c", 3)
    await table.remove("heads", "main")
    await KeptFiles(db, "team", row.id, "staged").put("a", KeptFile(size=1, upload="u"))
    await purge_kept_files(db, "team", 0.0)
    await repositories.remove("m")


async def _others(db: InlineDatabase) -> None:
    uploads = UploadTable(db, "team")
    held = await uploads.create(UploadRow(id="u", client="c", state="open", used=False, record="{}"), keep_seconds=9)
    await uploads.get("u")
    await uploads.epoch("u")
    await uploads.take("u")
    await uploads.open_by_client()
    await uploads.page("", 9, before=0.0)
    await uploads.end(moment=0.0, before=0.0)
    assert held.id == "u"
    letters = LetterTable(db)
    await letters.take(1.0, 2.0)
    await letters.page("h", dead=False, limit=3)
    await letters.trim("h", 3)
    await letters.purge()


def test_statements_find_their_rows_by_an_index(plans: dict[str, list[str]]) -> None:
    async def work() -> None:
        db = InlineDatabase()
        plans.clear()
        for part in (_drafts, _artifacts, _repositories, _others):
            await part(db)

    asyncio.run(work())
    assert len(plans) > 50
    bad = {
        " ".join(sql.split()): step
        for sql, plan in plans.items()
        for step in plan
        if not any(small in step for small in _SMALL)
        and (step.endswith("(space=?)") or re.match(r"SCAN (?!CONSTANT|line|[cknm]?s\d|\()", step))
    }
    assert bad == {}, bad
