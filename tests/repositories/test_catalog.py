"""Repositories by name: created, found, removed."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.repositories import change, contents

from protoslice.errors import InvalidInput
from protoslice.repositories import NoRepository, Repositories, RepositoryExists
from protoslice.storage import Storage


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
