"""Folders that become stores by themselves, once nobody has written to them for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.support.catalogues import InlineDatabase
from tests.support.stores import opened

from protoslice.catalog.mlflow import ChangedFolders, artifact_folder
from protoslice.errors import NotFound, StorageUnavailable
from protoslice.mlflow import AutoCommit, MlflowArtifacts
from protoslice.storage import open_storage
from protoslice.stores import Stores

QUIET = 100.0
RUN = "0/run/artifacts"


async def piece() -> AsyncIterator[bytes]:
    yield b"a file"


class Clock:
    """Time of the database."""

    now = 1_000_000.0

    def time(self) -> float:
        """Return the seconds since the epoch."""
        return self.now


class Replicas:
    """Two replicas over one folder, and their clock."""

    def __init__(self, stores: Stores, clock: Clock) -> None:
        self.stores, self.clock, self.space = stores, clock, "default"
        self.one, self.other = (AutoCommit(stores.database, self.stores_of, QUIET) for _ in range(2))

    async def stores_of(self, space: str) -> Stores:
        """The stores of the only space."""
        if space != self.space:
            raise NotFound("there is no such space")
        return self.stores

    async def write(self, *paths: str) -> None:
        """Write files."""
        for path in paths:
            await MlflowArtifacts(self.stores).put(path, piece())

    async def made(self) -> int:
        """Number of stores."""
        return len((await self.stores.list(limit=100)).items)

    async def changed(self) -> list[str]:
        """Folders with changes of which no store was made."""
        return [each.name for each in await ChangedFolders(self.stores.database).quiet(-1e6, 100)]


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncIterator[Replicas]:
    clock = Clock()
    async with (
        open_storage(tmp_path.as_uri()) as storage,
        opened(storage, database=InlineDatabase(clock.time)) as stores,
    ):
        yield Replicas(stores, clock)


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("0/run/artifacts/model/weights.bin", "0/run/artifacts"),
        ("0/models/m-1/artifacts/artifacts/x", "0/models/m-1/artifacts"),
        ("elsewhere/x", "elsewhere"),
        ("x", ""),
    ],
)
def test_the_folder_of_a_run_becomes_a_store(path: str, folder: str) -> None:
    assert artifact_folder(path) == folder


async def test_a_folder_becomes_a_store_when_it_is_quiet_and_again_when_it_changes(replicas: Replicas) -> None:
    await replicas.write(f"{RUN}/MLmodel", f"{RUN}/data/model.bin", "0/x", "top")
    replicas.clock.now += QUIET - 1
    await replicas.other.look()
    assert await replicas.made() == 0
    await replicas.write(f"{RUN}/late")
    replicas.clock.now += QUIET - 1
    await replicas.other.look()
    assert await replicas.made() == 1, "0 was quiet, the run was not"
    replicas.clock.now += QUIET
    await asyncio.gather(replicas.one.look(), replicas.other.look())
    assert await replicas.made() == 2
    assert await replicas.changed() == []
    sealed = await MlflowArtifacts(replicas.stores).freeze(RUN)
    assert {*await replicas.stores.files(sealed)} == {"MLmodel", "data/model.bin", "late"}
    assert await replicas.made() == 2
    await MlflowArtifacts(replicas.stores).table.remove(f"{RUN}/late")
    replicas.clock.now += 3 * QUIET
    await replicas.one.look()
    assert await replicas.made() == 3


async def test_folders_within_folders_are_stores_of_their_own_but_not_below_artifacts(replicas: Replicas) -> None:
    artifacts = MlflowArtifacts(replicas.stores)
    await replicas.write("up/x", "up/deep/er/y", f"{RUN}/a/b/c", f"{RUN}/a/d")
    replicas.clock.now += 2 * QUIET
    await replicas.other.look()
    assert await replicas.made() == 3, "one of each folder outside, one of the whole run"
    held = {folder: {*await replicas.stores.files(await artifacts.freeze(folder))} for folder in ("up", "up/deep/er")}
    assert held == {"up": {"x", "deep/er/y"}, "up/deep/er": {"y"}}
    assert {*await replicas.stores.files(await artifacts.freeze(RUN))} == {"a/b/c", "a/d"}
    assert await replicas.made() == 3, "those that were asked for were there"
    await artifacts.table.remove(f"{RUN}/a/b")
    replicas.clock.now += 2 * QUIET
    await replicas.other.look()
    assert await replicas.made() == 4
    assert {*await replicas.stores.files(await artifacts.freeze(RUN))} == {"a/d"}
    assert await replicas.changed() == []


async def test_a_folder_that_cannot_become_a_store_now_is_tried_again(replicas: Replicas) -> None:
    await replicas.write(f"{RUN}/x")
    replicas.clock.now += 2 * QUIET
    with patch.object(MlflowArtifacts, "freeze", side_effect=StorageUnavailable("not now")):
        await replicas.one.look()
    assert await replicas.made() == 0
    await replicas.other.look()
    assert await replicas.made() == 1


async def test_folders_that_are_gone_are_forgotten(replicas: Replicas) -> None:
    await replicas.write(f"{RUN}/x", f"{RUN}/y/z", "up/x")
    await MlflowArtifacts(replicas.stores).table.remove(RUN)
    assert await replicas.changed() == ["up"]
    replicas.clock.now += 2 * QUIET
    replicas.space = "another"
    await replicas.one.look()
    assert await replicas.changed() == []
    assert await replicas.made() == 0
