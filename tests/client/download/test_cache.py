"""The cache: within its size, the oldest going first, and never believed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from protoslice.client import Cache
from protoslice.errors import InvalidInput, StorageError


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def put(cache: Cache, number: int, used_at: float | None = None) -> str:
    data = b"%05d" % number * 200
    cache.put(sha(data), data)
    if used_at is not None:
        os.utime(cache.folder / sha(data)[:2] / sha(data), (used_at, used_at))
    return sha(data)


def test_what_is_put_is_got(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    name = put(cache, 1)
    assert cache.has(name, 1000)
    assert cache.get(name, 1000) == b"00001" * 200
    assert cache.get(name, 999) is None
    assert not cache.has(sha(b""), 0)
    assert cache.get(sha(b""), 0) is None


def test_damage_is_noticed_and_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    name = put(cache, 1)
    (tmp_path / name[:2] / name).write_bytes(b"x" * 1000)
    assert cache.get(name, 1000) is None
    assert not cache.has(name, 1000)


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, max_bytes=3000)
    names = [put(cache, number, used_at=1000.0 + number) for number in range(3)]
    assert cache.get(names[0], 1000) is not None
    put(cache, 3)
    cache.shrink()
    assert [cache.has(name, 1000) for name in names] == [True, False, True]
    assert size_of(tmp_path) <= 3000


def test_it_stays_within_its_size(tmp_path: Path) -> None:
    cache = Cache(tmp_path, max_bytes=20_000)
    for number in range(100):
        put(cache, number)
        assert size_of(tmp_path) <= 20_000 + 20_000 // 16 + 1000


def test_what_is_larger_than_all_of_it_is_not_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path, max_bytes=999)
    put(cache, 1)
    assert list(tmp_path.rglob("*")) == []


def test_what_a_dead_process_left_goes_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, max_bytes=2000)
    name = put(cache, 1)
    (tmp_path / name[:2] / ".new-dead").write_bytes(bytes(1500))
    cache.shrink()
    assert cache.has(name, 1000)
    assert size_of(tmp_path) == 1000
    cache.clear()
    assert size_of(tmp_path) == 0


def test_a_folder_that_cannot_be_written_costs_nothing_but_the_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = Cache(tmp_path / "file")
    name = put(cache, 1)
    assert cache.get(name, 1000) is None
    with pytest.raises(StorageError):
        cache.shrink()


@pytest.mark.parametrize("name", ["../../etc", "", "A" * 64, "0" * 63])
def test_names_that_are_no_digests(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        Cache(tmp_path).get(name, 1)
    with pytest.raises(InvalidInput):
        Cache(tmp_path, max_bytes=-1)


WORK = """
import hashlib, sys
from protoslice.client import Cache
cache = Cache(sys.argv[1], max_bytes=50_000)
wrong = 0
for number in range(400):
    data = b"%05d" % (number % 90) * 200
    name = hashlib.sha256(data).hexdigest()
    cache.put(name, data)
    for other in range(number % 90 - 5, number % 90):
        there = b"%05d" % other * 200
        wrong += cache.get(hashlib.sha256(there).hexdigest(), 1000) not in (None, there)
print(wrong)
"""


def test_processes_share_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORK, str(tmp_path)]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [worker.communicate(timeout=120)[0] for worker in workers] == ["0\n"] * 3
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    assert size_of(tmp_path) <= 50_000 + 3 * (50_000 // 16 + 1000)
