"""Stores of several files: what goes side by side, what is told of it, and what is asked for once."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from tests.support.serve import LiveServer
from tests.support.wire import FaultyProxy

from protoslice.client import Cache, Client
from protoslice.client.download.stores import SMALL_FILE, each_file
from protoslice.errors import StorageUnavailable
from protoslice.facts import File

SIZES = [10, SMALL_FILE, SMALL_FILE + 1, 20, SMALL_FILE + 2, 0]


def files(sizes: list[int]) -> list[File]:
    return [File(path=f"f{number}", size=size, sha256=None) for number, size in enumerate(sizes)]


def test_small_files_come_side_by_side_and_large_ones_alone() -> None:
    together = threading.Barrier(4)

    def fetch(file: File, progress: object) -> str:
        if file.size <= SMALL_FILE:
            together.wait(60)
        else:
            assert threading.current_thread() is threading.main_thread()
        return file.path

    assert each_file(files(SIZES), fetch, 4, None) == [f"f{number}" for number in range(6)]


def test_progress_is_told_of_all_together() -> None:
    seen: list[tuple[int, int | None]] = []

    def fetch(file: File, progress: object) -> None:
        assert callable(progress)
        for done in (file.size // 2, file.size // 4, file.size):  # one that is begun anew
            progress(done, file.size)

    each_file(files(SIZES), fetch, 4, lambda *now: seen.append(now))
    assert {total for _, total in seen} == {sum(SIZES)}
    assert seen[-1][0] == sum(SIZES)
    assert len(seen) == 3 * len(SIZES)


def test_the_first_that_fails_ends_the_others() -> None:
    begun: list[str] = []
    told = threading.Event()

    def fetch(file: File, progress: object) -> None:
        begun.append(file.path)
        if file.path == "f0":
            raise StorageUnavailable(file.path)
        told.wait(60)

    with pytest.raises(StorageUnavailable, match="f0"):
        each_file(files([1] * 1000), fetch, 2, None)
    told.set()
    for thread in threading.enumerate():
        if thread.name == "protoslice-file":
            thread.join(60)
    assert len(begun) <= 3


def test_a_folder_comes_back_and_its_pieces_are_asked_for_once(
    client: Client, proxy: FaultyProxy, service: LiveServer, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "ünder").mkdir(parents=True)
    contents = {"a.pb": b"\x0a\x01a", "large": os.urandom(5 << 20), **{f"ünder/{n}": os.urandom(n) for n in range(40)}}
    for name, content in contents.items():
        (source / name).write_bytes(content)
    store = client.push(source, root="a.pb").store
    seen: list[int] = []
    for again, name in enumerate(("one", "two")):
        proxy.done.clear()
        with Client(proxy.url, cache=Cache(tmp_path / "cache")) as ours:
            got = ours.download(store.id, tmp_path / name, progress=lambda done, total: seen.append(done))
        assert {str(each.path.relative_to(tmp_path / name)): each.path.read_bytes() for each in got} == contents
        assert sum("/pieces" in path for _, path, _ in proxy.done) == 1
        assert [each.path.name for each in got] == [file.path.rpartition("/")[2] for file in store.files]
        assert sum(each.fetched for each in got) == (0 if again else store.size)
    assert seen[-1] == store.size
