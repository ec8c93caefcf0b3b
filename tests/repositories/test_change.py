"""Changes of branches: edits, compare-and-set, and two replicas at once."""

from __future__ import annotations

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.interrupted import InterruptedDatabase, InterruptedStorage, Interruption
from tests.support.repositories import change, contents
from tests.support.stores import assert_tidy, collect_everything, opened, written

from protoslice.errors import Conflict, InvalidInput
from protoslice.repositories import MAIN, Author, BranchMoved, NoFile, Repositories
from protoslice.storage import MemoryStorage, Storage


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
