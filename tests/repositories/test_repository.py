"""Repositories by name, and the revisions, branches, tags and history of one."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.repositories import change, contents

from protoslice.errors import InvalidInput
from protoslice.repositories import (
    MAIN,
    Commit,
    NoCommit,
    NoRepository,
    RefExists,
    Repositories,
    Repository,
    RepositoryExists,
)
from protoslice.storage import Storage


async def titles(repository: Repository, commit: Commit, limit: int) -> list[str]:
    """Titles of all commits that lead to `commit`, newest first, read in pages."""
    found, cursor = list[str](), None
    while True:
        page = await repository.history(commit, limit=limit, cursor=cursor)
        found += [each.author.title for each in page.items]
        cursor = page.next
        if cursor is None:
            return found


async def test_a_revision_is_a_branch_a_tag_a_commit_or_a_store(repositories: Repositories) -> None:
    made = await repositories.create("m")
    first = await change(made, {"a": b"1"})
    await made.create("tags", "v1")
    await made.create("heads", "feat/x", "v1")
    last = await change(made, {"a": b"2"}, branch="feat/x")
    assert first.store is not None
    for revision in ("main", "v1", "refs/heads/main", "refs/tags/v1", first.id, first.store):
        assert (await made.commit(revision)).id == first.id, revision
    for revision in ("feat/x", "refs/heads/feat/x", last.id):
        assert await contents(made, revision) == {"a": b"2"}


@pytest.mark.parametrize("revision", ["no", "refs/tags/main", "f" * 40, "../main", "", "refs/pr/1", "m" * 400])
async def test_other_revisions_are_none(revision: str, repositories: Repositories) -> None:
    made = await repositories.create("m")
    await change(made, {"a": b"1"})
    with pytest.raises(NoCommit):
        await made.commit(revision)


async def test_a_commit_of_another_repository_is_none_here(repositories: Repositories) -> None:
    made, other = await repositories.create("m"), await repositories.create("other")
    commit = await change(other, {"a": b"1"})
    with pytest.raises(NoCommit):
        await made.commit(commit.id)
    with pytest.raises(NoCommit):
        await made.commit(commit.store or "")


async def test_refs_are_listed_and_removed(repositories: Repositories) -> None:
    made = await repositories.create("m")
    assert [ref.key async for ref in made.refs()] == ["heads/main"]
    await change(made, {"a": b"1"})
    await made.create("heads", "b/c")
    await made.create("tags", "v1")
    assert [ref.key async for ref in made.refs()] == ["heads/b/c", "heads/main", "tags/v1"]
    with pytest.raises(RefExists):
        await made.create("tags", "v1")
    await made.remove("tags", "v1")
    with pytest.raises(NoCommit):
        await made.remove("tags", "v1")
    assert [ref.key async for ref in made.refs()] == ["heads/b/c", "heads/main"]


@pytest.mark.parametrize("name", ["", "a b", "../a", "a..b", "a//b", "/a", "a/", "0" * 40, "x" * 129, "ä"])
async def test_names_of_refs_are_plain(name: str, repositories: Repositories) -> None:
    made = await repositories.create("m")
    with pytest.raises(InvalidInput):
        await made.create("heads", name)


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_history_follows_the_parents_of_its_branch(limit: int, repositories: Repositories) -> None:
    made = await repositories.create("m")
    for number in range(4):
        await change(made, {"a": b"%d" % number}, title=f"main {number}")
        if number == 1:
            await made.create("heads", "side")
    for number in range(3):
        await change(made, {"b": b"%d" % number}, branch="side", title=f"side {number}")
    main, side = await made.commit(MAIN), await made.commit("side")
    assert await titles(made, main, limit) == ["main 3", "main 2", "main 1", "main 0"]
    assert await titles(made, side, limit) == ["side 2", "side 1", "side 0", "main 1", "main 0"]
    assert await titles(made, Commit(), limit) == []


async def test_an_ambiguous_short_id_is_refused(repositories: Repositories) -> None:
    made = await repositories.create("m")
    for number in (1, 2):
        await change(made, {"a": b"%d" % number})
    sql = "UPDATE commits SET digits = 'abcdef1' || number || :rest"
    await made.stores.database.write(lambda tx: tx.run(sql, rest="0" * 32))
    assert (await made.commit("abcdef12")).number == 2
    with pytest.raises(InvalidInput, match="ambiguous"):
        await made.commit("abcdef1")
    with pytest.raises(NoCommit):
        await made.commit("abcdef2")


async def test_one_of_two_creations_at_once_succeeds(repositories: Repositories) -> None:
    made = await asyncio.gather(*(repositories.create("ann/m") for _ in range(3)), return_exceptions=True)
    assert sorted(type(each).__name__ for each in made) == ["Repository", "RepositoryExists", "RepositoryExists"]
    assert await contents(await repositories.get("ann/m")) == {}


async def test_a_removed_repository_is_none_and_a_new_one_of_its_name_is_empty(
    repositories: Repositories, storage: Storage
) -> None:
    made = await repositories.create("m")
    commit = await change(made, {"a": b"1"})
    await repositories.remove("m")
    with pytest.raises(NoRepository):
        await repositories.get("m")
    with pytest.raises(NoRepository):
        await repositories.remove("m")
    sql = "SELECT 1 FROM names WHERE repository <> 0 UNION ALL SELECT 1 FROM commits UNION ALL SELECT 1 FROM kept_files"
    assert await catalogue_of(storage).read(lambda tx: tx.all(sql)) == []
    with pytest.raises(NoRepository):
        await change(made, {"late": b"2"})  # by a replica that has not heard of the removal
    again = await repositories.create("m")
    assert await contents(again) == {}
    with pytest.raises(LookupError):
        await again.commit(commit.id)


async def test_slashes_tell_names_apart_and_capitals_do_not(repositories: Repositories) -> None:
    for name in ("Ann/M", "ann/m.x", "datasets/ann/m"):
        await repositories.create(name)
    for name in ("Ann/M", "ann/m"):
        with pytest.raises(RepositoryExists):
            await repositories.create(name)


@pytest.mark.parametrize(
    "name", ["", "/m", "m/", "a//b", "../m", "a..b", ".m", "a b", "ä", "m" * 97, "/".join("abcdefg" * 30)]
)
async def test_other_names_are_refused(name: str, repositories: Repositories) -> None:
    for call in (repositories.create, repositories.get, repositories.remove):
        with pytest.raises(InvalidInput):
            await call(name)
