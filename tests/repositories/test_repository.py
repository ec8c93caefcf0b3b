"""Repositories by name, with revisions, branches, tags and a history.

Staged files are found in their repository until they expire, and are adopted without a copy. Branches change by edits
and compare-and-set, also by two replicas at once.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.interrupted import InterruptedDatabase, InterruptedStorage, Interruption
from tests.support.repositories import change, contents
from tests.support.stores import assert_tidy, collect_everything, collect_garbage, opened, written

from protoslice.errors import Conflict, InvalidInput
from protoslice.repositories import (
    MAIN,
    Author,
    BranchMoved,
    Commit,
    NoCommit,
    NoFile,
    NoRepository,
    RefExists,
    Repositories,
    Repository,
    RepositoryExists,
)
from protoslice.storage import MemoryStorage, Storage
from protoslice.uploads import Body, Upload


async def titles(repository: Repository, commit: Commit, limit: int) -> list[str]:
    """Return the titles of all commits that lead to `commit`, newest first, read in pages."""
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
        await change(made, {"late": b"2"})  # by a replica that does not know of the removal
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


DATA = bytes(range(256)) * 4000


async def staged(repository: Repository, data: bytes) -> Upload:
    """Return the upload of `data`, complete and staged."""

    async def pieces() -> AsyncIterator[bytes]:
        yield data

    upload = await repository.staged.begin(hashlib.sha256(data).hexdigest(), len(data), "")
    upload = await repository.stores.uploads.append(upload.id, Body(pieces=pieces(), offset=0, last=True))
    await repository.staged.keep(upload)
    return upload


async def test_a_staged_file_is_adopted_without_a_copy(repositories: Repositories, storage: Storage) -> None:
    made = await repositories.create("m")
    upload = await staged(made, DATA)
    before = await written(storage)
    async with await made.change(MAIN) as change:
        await change.take("a", upload)
        await change.commit(Author())
    assert await contents(made) == {"a": DATA}
    assert await written(storage) == before


@pytest.mark.parametrize("lost", ["upload", "record"])
async def test_what_has_expired_is_sent_again(lost: str, repositories: Repositories, storage: Storage) -> None:
    made = await repositories.create("m")
    upload = await staged(made, DATA)
    digest = upload.sha256 or ""
    found = await made.staged.find(digest)
    assert found is not None
    assert found.id == upload.id
    if lost == "upload":
        await made.stores.uploads.remove(upload.id)
    else:
        await catalogue_of(storage).write(lambda tx: tx.run("UPDATE uploads SET expires = 0"))
        await collect_garbage(storage, grace_seconds=0)
    assert await made.staged.find(digest) is None
    again = await made.staged.begin(digest, len(DATA), "")
    assert not again.is_whole


async def test_an_upload_under_way_is_left_alone(repositories: Repositories) -> None:
    made = await repositories.create("m")
    digest = hashlib.sha256(DATA).hexdigest()
    first, second = [await made.staged.begin(digest, len(DATA), "") for _ in range(2)]
    assert first.id != second.id
    assert await made.staged.find(digest) is None


async def test_a_commit_keeps_what_it_does_not_name(repositories: Repositories) -> None:
    made = await repositories.create("ann/m")
    await change(made, {"a": b"1", "sub/b": b"2", "sub/c": b"3", "d": b"4"})
    await change(made, {"a": b"new", "sub/": None, "e": b""})
    assert await contents(made) == {"a": b"new", "d": b"4", "e": b""}


async def test_a_commit_writes_what_is_new_and_nothing_else(repositories: Repositories, storage: Storage) -> None:
    made = await repositories.create("m")
    old = {f"{number}.bin": bytes([number]) * 100_000 for number in range(20)}
    await change(made, old)
    before = sum((await written(storage)).values())
    await change(made, {"3.bin": b"new" * 30_000})
    assert sum((await written(storage)).values()) - before == 90_000
    assert await contents(made) == old | {"3.bin": b"new" * 30_000}


async def test_a_commit_of_no_files_is_the_beginning_again(repositories: Repositories) -> None:
    made = await repositories.create("m")
    beginning = await made.commit(MAIN)
    await change(made, {"a": b"1"})
    last = await change(made, {"a": None})
    assert (last.store, last.id, last.number) == (None, beginning.id, 2)
    assert await contents(made) == {}
    assert (await made.commit(beginning.id)).number == 2


async def test_a_commit_that_changes_nothing_is_the_present_one(repositories: Repositories) -> None:
    made = await repositories.create("m")
    first = await change(made, {"a": b"1"})
    assert await change(made, {"a": b"1"}) == first


async def test_a_file_is_copied_within_a_repository(repositories: Repositories) -> None:
    made = await repositories.create("m")
    first = await change(made, {"a": b"1"})
    assert first.store is not None
    async with await made.change(MAIN) as edits:
        edits.copy("b", (first.store, "a"))
        await edits.commit(Author())
    assert await contents(made) == {"a": b"1", "b": b"1"}


@pytest.mark.parametrize("path", ["b", "sub/", "su/"])
async def test_what_is_not_there_cannot_be_deleted(path: str, repositories: Repositories) -> None:
    made = await repositories.create("m")
    await change(made, {"a": b"1", "sub": b"a file"})
    with pytest.raises(NoFile):
        await change(made, {path: None})


async def test_a_path_is_named_once(repositories: Repositories) -> None:
    made = await repositories.create("m")
    await change(made, {"a": b"1"})
    async with await made.change(MAIN) as edits:
        edits.delete("a")
        with pytest.raises(InvalidInput, match="twice"):
            edits.copy("a", ("0" * 64, "a"))


@pytest.mark.parametrize("path", ["../a", "/a", "a//b", "a/./b", "a\\b", "a\nb"])
async def test_paths_that_climb_are_refused(path: str, repositories: Repositories) -> None:
    made = await repositories.create("m")
    with pytest.raises(InvalidInput):
        await change(made, {path: b"1"})
    assert await contents(made) == {}


async def test_an_expected_parent_is_compared(repositories: Repositories) -> None:
    made = await repositories.create("m")
    first = await change(made, {"a": b"1"})
    await change(made, {"a": b"2"}, parent=first.id[:7])
    with pytest.raises(BranchMoved):
        await change(made, {"a": b"3"}, parent=first.id)
    assert await contents(made) == {"a": b"2"}


@pytest.mark.parametrize("expecting", [False, True])
async def test_another_replica_commits_at_any_moment(expecting: bool) -> None:
    """Without an expected parent both changes are kept; with one, the later is refused."""

    async def play(at: int) -> bool:
        storage = MemoryStorage()
        async with opened(storage) as others:
            other = Repositories(others)
            made = await other.create("m")
            first = await change(made, {"a": b"1", "gone": b"x"})

            async def meanwhile() -> None:
                await change(await other.get("m"), {"theirs": b"2"})

            interrupted = Interruption(meanwhile)
            database = InterruptedDatabase(catalogue_of(storage), interrupted)
            async with opened(InterruptedStorage(storage, interrupted), database=database) as stores:
                repository = await Repositories(stores).get("m")
                interrupted.arm(at)
                try:
                    parent = first.id if expecting else None
                    ours = await change(repository, {"ours": b"3", "gone": None}, parent=parent)
                except BranchMoved:
                    assert expecting
                    assert await contents(made) == {"a": b"1", "gone": b"x", "theirs": b"2"}
                    return interrupted.reached
            assert not expecting or ours.parent == first.place
            theirs = {"theirs": b"2"} if interrupted.reached else {}
            assert await contents(made) == {"a": b"1", "ours": b"3"} | theirs
            return interrupted.reached

    async def run() -> int:
        at = 1
        while await play(at):
            at += 1
        return at

    assert await run() > 5


async def test_a_replica_that_dies_in_a_commit_leaves_the_branch_as_it_was_or_moved() -> None:
    class DiedError(Exception):
        pass

    async def play(at: int) -> bool:
        storage = MemoryStorage()

        async def die() -> None:
            raise DiedError

        async with opened(storage) as others:
            made = await Repositories(others).create("m")
            await change(made, {"a": b"1"})
            interrupted = Interruption(die)
            database = InterruptedDatabase(catalogue_of(storage), interrupted)
            async with opened(InterruptedStorage(storage, interrupted), database=database) as stores:
                repository = await Repositories(stores).get("m")
                interrupted.arm(at)
                try:
                    await change(repository, {"b": b"2"})
                except DiedError:
                    assert await contents(made) in ({"a": b"1"}, {"a": b"1", "b": b"2"})
            await change(made, {"b": b"2"})
            assert await contents(made) == {"a": b"1", "b": b"2"}
        await collect_everything(storage)
        await assert_tidy(storage)
        return interrupted.reached

    async def run() -> int:
        at = 1
        while await play(at):
            at += 1
        return at

    assert await run() > 5


async def test_a_branch_that_does_not_exist_is_not_made_by_a_commit(repositories: Repositories) -> None:
    made = await repositories.create("m")
    with pytest.raises(LookupError):
        await change(made, {"a": b"1"}, branch="next")
    with pytest.raises(Conflict):
        await made.remove("heads", MAIN)
