"""Repositories by name, and files of repositories that are in no commit.

The tests also cover objects of git, and lists of repositories and their names, on both engines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.rows import ACCOUNT, put_store

from protoslice.catalog import git_objects
from protoslice.catalog.git_objects import GitCommitRow, GitObjectRow, GitObjectTable
from protoslice.catalog.histories import Commit, History, NoRepository, Ref
from protoslice.catalog.kept_files import KeptFiles, RepositoryFile, purge_kept_files
from protoslice.catalog.labels import HUB, OCI
from protoslice.catalog.repositories import RepositoryExists, RepositoryListing, RepositoryRow, RepositoryTable
from protoslice.catalog.spaces import Usage
from protoslice.catalog.stores import StoreTable
from protoslice.database import Database
from protoslice.database.transactions import Transaction
from protoslice.errors import Conflict


async def test_names_of_repositories_are_listed_by_prefix(database: Database) -> None:
    table = RepositoryTable(database, ACCOUNT, HUB)
    for name in ("b", "a/b", "a", "a-b", "A-", "ab"):
        await table.create(name)
    await RepositoryTable(database, ACCOUNT, OCI).create("aa")
    await RepositoryTable(database, Usage("elsewhere"), HUB).create("aa")
    assert await table.names("", limit=10, after=None) == (["A-", "a", "a-b", "a/b", "ab", "b"], False)
    assert await table.names("a", limit=2, after="a") == (["a-b", "a/b"], True)
    assert await table.names("a", limit=9, after="a/b") == (["ab"], False)
    with pytest.raises(RepositoryExists):
        await table.create("a")
    assert await table.remove("a")
    assert not await table.remove("a")
    assert await table.get("a") is None


async def test_kept_files_are_replaced_and_go_with_their_uploads(database: Database) -> None:
    row = await RepositoryTable(database, ACCOUNT, HUB).create("m")
    await put_store(database, "s")
    with pytest.raises(Conflict, match="removed in the meantime"):
        await KeptFiles(database, "team", row.id, "staged").put("a", RepositoryFile(size=3, store="none", path="p"))
    kept = KeptFiles(database, "team", row.id, "staged")
    first = await kept.put("a", RepositoryFile(size=3, upload="u"))
    assert await kept.get("a") == first
    second = await kept.put("a", RepositoryFile(size=1 << 40, store="s", path="p"))
    assert second.version != first.version
    assert await kept.get("a") == second == replace(second, upload=None)
    await kept.put("b", RepositoryFile(size=3, upload="u"))
    await purge_kept_files(database, 3600)
    assert await kept.get("b") is not None
    await purge_kept_files(database, -1)
    assert await kept.get("b") is None
    assert await kept.get("a") == second


ONE, TWO, THREE = "1" * 40, "2" * 40, "3" * 40


async def _repository(database: Database, name: str, store: str | None = None) -> RepositoryRow:
    row = await RepositoryTable(database, Usage("team"), HUB).create(name)
    if store is not None:
        history = History(database, Usage("team"), row.id, row.name)
        await history.create(Ref("heads", "main", Commit(store=store)))
    return row


async def test_objects_are_found_by_id_and_written_once(database: Database) -> None:
    table = GitObjectTable(database, "team", (await _repository(database, "ann/m")).id)
    tree = GitObjectRow(ONE, b"tree", "x")
    await table.put([GitCommitRow("c", TWO, "x")], [tree], None)
    await table.put(
        [GitCommitRow("c", THREE, "x")], [GitObjectRow(ONE, b"other"), GitObjectRow(THREE, None, "x", "p")], None
    )
    assert await table.objects([ONE, THREE, "0" * 40]) == {ONE: tree, THREE: GitObjectRow(THREE, None, "x", "p")}
    assert await table.commits(["c", "none"]) == {"c": TWO}
    await table.put_blobs({f"{number:064x}": f"{number:040x}" for number in range(1200)})
    found = await table.blobs([f"{number:064x}" for number in range(0, 2400, 2)])
    assert found == {f"{number:064x}": f"{number:040x}" for number in range(0, 1200, 2)}
    other = GitObjectTable(database, "team", (await _repository(database, "ann/other")).id)
    assert (await other.objects([ONE]), await other.commits(["c"]), await other.blobs(["0" * 64])) == ({}, {}, {})


async def test_many_objects_are_written_in_several_transactions(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = GitObjectTable(database, "team", (await _repository(database, "ann/m")).id)
    monkeypatch.setattr(git_objects, "_ROWS", 10)
    rows = [GitObjectRow(f"{number:040x}", b"x") for number in range(35)]
    written, write = list[int](), table._write

    async def counted(work: Callable[[Transaction], None]) -> None:
        await write(work)
        written.append(len(await table.objects([row.id for row in rows])))
        assert await table.commits(["c"]) == ({"c": ONE} if written[-1] == 35 else {})

    monkeypatch.setattr(table, "_write", counted)
    await table.put([GitCommitRow("c", ONE, None)], rows, None)
    assert written == [10, 20, 30, 35]


async def test_a_commit_is_not_written_if_its_objects_were_cleared(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = GitObjectTable(database, "team", (await _repository(database, "ann/m")).id)
    monkeypatch.setattr(git_objects, "_ROWS", 10)
    write, other = table._write, GitObjectTable(database, "team", table._key["repository"])

    async def cleared(work: Callable[[Transaction], None]) -> None:
        await write(work)
        await other.clear()

    monkeypatch.setattr(table, "_write", cleared)
    with pytest.raises(Conflict):
        await table.put([GitCommitRow("c", ONE, None)], [GitObjectRow(f"{n:040x}", b"x") for n in range(15)], None)


async def test_a_pointer_replaces_an_equal_text_and_not_the_reverse(database: Database) -> None:
    table = GitObjectTable(database, "team", (await _repository(database, "ann/m")).id)
    pointer = GitObjectRow(ONE, b"pointer", "x", "m.bin")
    for row in (GitObjectRow(ONE, None, "x", "a.txt"), pointer, GitObjectRow(ONE, None, "x", "a.txt")):
        await table.put([], [row], None)
    assert await table.objects([ONE]) == {ONE: pointer}


async def test_commits_follow_one_that_still_has_its_id(database: Database) -> None:
    table = GitObjectTable(database, "team", (await _repository(database, "ann/m")).id)
    for seen in (("c", ONE), ("c", TWO)):
        with pytest.raises(Conflict):
            await table.put([GitCommitRow("d", THREE, None)], [], seen)
        await table.put([GitCommitRow("c", THREE, None)], [], None)
    await table.put([GitCommitRow("d", TWO, None)], [], ("c", THREE))
    assert await table.commits(["c", "d"]) == {"c": THREE, "d": TWO}


async def test_a_removed_store_makes_the_history_stale_and_so_does_its_return(database: Database) -> None:
    await put_store(database, "x")
    table = GitObjectTable(database, "team", (await _repository(database, "ann/m")).id)
    await table.put([GitCommitRow("c", ONE, "x"), GitCommitRow("e", ONE, None)], [GitObjectRow(TWO, b"")], None)
    await table.put_blobs({"d": THREE})
    assert not await table.is_stale()
    await StoreTable(database, ACCOUNT).remove("x")
    assert await table.is_stale()
    await table.clear()
    assert (await table.is_stale(), await table.commits(["c"]), await table.objects([TWO])) == (False, {}, {})
    assert await table.blobs(["d"]) == {"d": THREE}
    await table.put([GitCommitRow("c", ONE, "x", is_gone=True)], [], None)
    assert not await table.is_stale()
    await put_store(database, "x")
    assert await table.is_stale()


async def test_repositories_are_listed_and_renamed(database: Database) -> None:
    await put_store(database, "x")
    for name in ("ann/bert", "ann/empty", "datasets/ann/bert", "bob/x_y"):
        await _repository(database, name, None if name == "ann/empty" else "x")

    async def names(prefix: str = "", search: str = "", *, datasets: bool = False) -> list[str]:
        listing = RepositoryListing(database, "team", prefix, search, datasets=datasets)
        return [row.name for row in await listing.rows("")]

    assert await names() == ["ann/bert", "ann/empty", "bob/x_y"]
    assert await names("ann/") == ["ann/bert", "ann/empty"]
    assert await names(datasets=True) == ["datasets/ann/bert"]
    assert await names(search="ERT") == ["ann/bert"]
    assert await names(search="ERT", datasets=True) == ["datasets/ann/bert"]
    assert await names(search="b/x_y") == ["bob/x_y"]
    assert await names(search="Empt") == ["ann/empty"]
    assert (await names(search="main"), await names(search="ann%")) == ([], [])
    table = RepositoryTable(database, Usage("team"), HUB)
    with pytest.raises(RepositoryExists):
        await table.rename("ann/bert", "bob/x_y")
    await table.rename("ann/bert", "ann/tiny")
    with pytest.raises(NoRepository):
        await table.rename("ann/bert", "ann/other")
    assert (await names(search="tiny"), await names(search="bert")) == (["ann/tiny"], [])
    await table.rename("ann/empty", "ann/full")
    assert await table.remove("bob/x_y")
    assert [await names(search=each) for each in ("full", "empty", "bob")] == [["ann/full"], [], []]
    (row,) = await RepositoryListing(database, "team", "ann/t", "", datasets=False).rows("")
    assert row.store == "x"
    history = History(database, Usage("team"), row.id, row.name)
    assert (await history.page(3, None))[0][0].name == "main"
    assert await history.ids("x", 2) == ["x"]
