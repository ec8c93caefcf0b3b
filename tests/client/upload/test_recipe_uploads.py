"""Pushes of known parts, or of very many files: the recipe goes on after a broken connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.support.serve import LiveServer
from tests.support.wire import FaultyProxy

from protoslice.client import Client
from protoslice.client.upload import push, resumable
from protoslice.client.upload.bodies import items_of
from protoslice.client.upload.plans import FilePlan, LocalBytes, recipe_item
from protoslice.recipes import Copy, RecipeEnd, RecipeFile, RecipeReader

MIB = 1 << 20
GRAPH = "tensorflow.GraphDef"


@pytest.fixture
def ours(proxy: FaultyProxy) -> Iterator[Client]:
    """A client for which a mebibyte is large, and a part."""
    with (
        Client(proxy.url, timeout_seconds=5.0, attempts=2, backoff_seconds=0.001) as client,
        patch.object(push, "RESUME_MIN_BYTES", MIB),
        patch.object(resumable, "CHECKED_PART", MIB),
        patch.object(resumable, "MOST_PART", MIB),
    ):
        yield client


@pytest.fixture
def first(service: LiveServer, versions: Any) -> Iterator[str]:
    """A store of the older version."""
    with Client(service.url) as client:
        yield client.push(versions.old_path, type=GRAPH, tags=["first:1"]).store.id


def interrupted(call: Callable[..., Any], what: Path, at: float, **options: Any) -> None:
    def progress(done: int, total: int | None) -> None:
        if done > at * (total or 0):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(what, progress=progress, **options)


def test_what_is_new_goes_on_where_it_was(
    ours: Client, proxy: FaultyProxy, versions: Any, first: str, state: Path
) -> None:
    interrupted(ours.push, versions.new_path, 0.8, type=GRAPH, base=[first])
    assert len(list(state.iterdir())) == 1
    pushed, up = proxy.bytes_sent_by(lambda: ours.push(versions.new_path, type=GRAPH, base=[first]))
    assert ours.merge(pushed.store.id) == versions.new
    assert pushed.copied > 11_000_000
    assert up < 3_000_000 - MIB, "two of three mebibytes were there already"
    assert list(state.iterdir()) == []


def test_what_was_to_be_copied_goes_meanwhile(ours: Client, versions: Any, first: str) -> None:
    """All is sent then."""

    def progress(done: int, total: int | None) -> None:
        if done == total and list(ours.stores(tag="first:")):
            ours.remove(first, force=["first:1"])

    pushed = ours.push(versions.new_path, type=GRAPH, base=[first], progress=progress)
    assert pushed.copied == 0
    assert ours.merge(pushed.store.id) == versions.new


def test_another_plan_is_begun_anew(ours: Client, versions: Any, first: str, state: Path) -> None:
    interrupted(ours.push, versions.new_path, 0.8, type=GRAPH, base=[first])
    ours.remove(first, force=["first:1"])
    pushed = ours.push(versions.new_path, type=GRAPH, base=[])
    assert ours.merge(pushed.store.id) == versions.new
    assert list(state.iterdir()) == []


def test_very_many_files(ours: Client, proxy: FaultyProxy, service: LiveServer, tmp_path: Path, versions: Any) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(5):
        (folder / f"{number}.pb").write_bytes(versions.old[: number * MIB + 5 - number])
    (folder / "graph.pb").write_bytes(versions.old)
    with patch.object(push, "MOST_FILES", 3):
        interrupted(ours.push, folder, 0.9, root="graph.pb", base=[])
        pushed, up = proxy.bytes_sent_by(lambda: ours.push(folder, root="graph.pb", base=[]))
    assert up < 5 * MIB
    target = tmp_path / "again"
    target.mkdir()
    ours.download(pushed.store.id, target)
    for file in folder.iterdir():
        assert (target / file.name).read_bytes() == file.read_bytes()


def test_a_recipe_can_be_read_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(range(200)))
    (tmp_path / "b").write_bytes(b"")
    a, b = items_of(tmp_path, None)
    copy = Copy("5" * 64, "old", 7, 50)
    recipe = recipe_item([FilePlan(a, [LocalBytes(0, 100), copy, LocalBytes(150, 50)], "6" * 64), FilePlan.whole(b)])
    whole = b"".join(recipe.read(0, None))
    assert recipe.size == len(whole)
    for start in range(0, len(whole), 7):
        for length in (0, 1, 80, len(whole) - start):
            assert b"".join(recipe.read(start, min(length, len(whole) - start))) == whole[start : start + length]
    reader = RecipeReader()
    events = list(reader.feed(whole))
    reader.finish()
    assert [event for event in events if isinstance(event, RecipeFile | RecipeEnd)] == [
        RecipeFile("a"),
        RecipeEnd(200, "6" * 64),
        RecipeFile("b"),
        RecipeEnd(0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    ]
    assert copy in events
