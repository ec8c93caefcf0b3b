"""Folders that become stores by themselves, once nobody has written to them for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.support.stores import keys_in, opened

from protoslice.drafts import Drafts, QuietFolders
from protoslice.drafts.records import artifact_folder
from protoslice.errors import NotFound, StorageUnavailable
from protoslice.storage import Call, MeteredStorage, open_storage
from protoslice.stores import Stores

QUIET = 100.0
RUN = "0/run/artifacts"


async def piece() -> AsyncIterator[bytes]:
    yield b"a file"


class Replicas:
    """Two replicas over one folder, and their clock."""

    def __init__(self, stores: Stores, calls: list[Call]) -> None:
        self.stores, self.calls = stores, calls
        self.now = 1_000_000.0
        self.one, self.other = (QuietFolders(stores.storage, self.stores_of, QUIET) for _ in range(2))

    async def stores_of(self, space: str) -> Stores:
        """The stores of the only space."""
        if space != "default":
            raise NotFound("there is no such space")
        return self.stores

    async def write(self, *paths: str, space: str = "default") -> None:
        """Write files by way of the first replica."""
        for path in paths:
            await Drafts(self.stores, changed=partial(self.one.changed, space)).put(path, piece())

    async def made(self) -> int:
        """Number of stores."""
        return len((await self.stores.list(limit=100)).items)

    async def notes(self) -> list[str]:
        """Keys of all notes."""
        return [key for key in await keys_in(self.stores.storage) if key.startswith("changing/")]


def with_replicas(folder: Path, work: Callable[[Replicas], Awaitable[None]]) -> None:
    async def run() -> None:
        calls: list[Call] = []
        async with open_storage(folder.as_uri()) as storage, opened(MeteredStorage(storage, calls.append)) as stores:
            replicas = Replicas(stores, calls)
            with patch("protoslice.drafts.quiet.time.time", lambda: replicas.now):
                await work(replicas)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("0/run/artifacts/model/weights.bin", "0/run/artifacts"),
        ("0/models/m-1/artifacts/artifacts/x", "0/models/m-1/artifacts"),
        ("elsewhere/x", "elsewhere"),
        ("x", ""),
        ("0/run/artifacts/", "0/run/artifacts"),
        ("elsewhere/x/", "elsewhere"),
    ],
)
def test_the_folder_of_a_run_becomes_a_store(path: str, folder: str) -> None:
    assert artifact_folder(path) == folder


def test_a_folder_becomes_a_store_when_it_is_quiet_and_again_when_it_changes(tmp_path: Path) -> None:
    async def work(replicas: Replicas) -> None:
        await replicas.write(f"{RUN}/MLmodel", f"{RUN}/data/model.bin", "0/x", "top")
        replicas.now += QUIET
        await replicas.other.look()
        assert await replicas.made() == 0
        await replicas.write(f"{RUN}/late")
        replicas.now += QUIET
        await replicas.other.look()
        assert await replicas.made() == 1, "0 was quiet, the run was not"
        replicas.now += QUIET
        await asyncio.gather(replicas.one.look(), replicas.other.look())
        assert await replicas.made() == 2
        assert await replicas.notes() == []
        sealed = await Drafts(replicas.stores).sealed(RUN)
        assert {*await replicas.stores.files(sealed)} == {"MLmodel", "data/model.bin", "late"}
        assert await replicas.made() == 2
        await Drafts(replicas.stores, changed=partial(replicas.one.changed, "default")).delete(f"{RUN}/late")
        replicas.now += 3 * QUIET
        await replicas.one.look()
        assert await replicas.made() == 3

    with_replicas(tmp_path, work)


def test_folders_within_folders_are_stores_of_their_own_but_not_below_artifacts(tmp_path: Path) -> None:
    async def work(replicas: Replicas) -> None:
        drafts = Drafts(replicas.stores, changed=partial(replicas.one.changed, "default"))
        await replicas.write("up/x", "up/deep/er/y", f"{RUN}/a/b/c", f"{RUN}/a/d")
        replicas.now += 2 * QUIET
        await replicas.other.look()
        assert await replicas.made() == 3, "one of each folder outside, one of the whole run"
        held = {folder: {*await replicas.stores.files(await drafts.sealed(folder))} for folder in ("up", "up/deep/er")}
        assert held == {"up": {"x", "deep/er/y"}, "up/deep/er": {"y"}}
        assert {*await replicas.stores.files(await drafts.sealed(RUN))} == {"a/b/c", "a/d"}
        assert await replicas.made() == 3, "those that were asked for were there"
        await drafts.delete(f"{RUN}/a/b")
        replicas.now += 2 * QUIET
        await replicas.other.look()
        assert await replicas.made() == 4
        assert {*await replicas.stores.files(await drafts.sealed(RUN))} == {"a/d"}
        assert await replicas.notes() == []

    with_replicas(tmp_path, work)


def test_a_thousand_files_cost_one_note_and_a_look_one_listing(tmp_path: Path) -> None:
    async def work(replicas: Replicas) -> None:
        await replicas.write(*(f"{RUN}/{number}" for number in range(100)))
        assert len(await replicas.notes()) == 1
        replicas.calls.clear()
        await replicas.other.look()
        assert [call.name for call in replicas.calls] == ["list"]

    with_replicas(tmp_path, work)


def test_a_folder_that_cannot_become_a_store_now_is_tried_again(tmp_path: Path) -> None:
    async def work(replicas: Replicas) -> None:
        await replicas.write(f"{RUN}/x")
        replicas.now += 2 * QUIET
        with patch.object(Drafts, "sealed", side_effect=StorageUnavailable("not now")):
            await replicas.one.look()
        assert await replicas.made() == 0
        await replicas.other.look()
        assert await replicas.made() == 1

    with_replicas(tmp_path, work)


def test_notes_of_what_is_gone_go(tmp_path: Path) -> None:
    async def work(replicas: Replicas) -> None:
        await replicas.write(f"{RUN}/x")
        await replicas.write(f"{RUN}/x", space="gone")
        await Drafts(replicas.stores).delete(f"{RUN}/x")
        replicas.now += 2 * QUIET
        await replicas.one.look()
        assert await replicas.notes() == []
        assert await replicas.made() == 0

    with_replicas(tmp_path, work)


def test_notes_keep_their_meaning_when_another_time_is_set(tmp_path: Path) -> None:
    async def work(replicas: Replicas) -> None:
        await replicas.write(f"{RUN}/model")
        later = QuietFolders(replicas.stores.storage, replicas.stores_of, 9 * QUIET)
        replicas.now += 2 * QUIET
        await later.look()
        assert await replicas.made() == 0
        replicas.now += 30 * QUIET
        await later.look()
        assert (await replicas.made(), await replicas.notes()) == (1, [])

    with_replicas(tmp_path, work)
