"""A user's storage is checked without pytest, by the same bodies."""

import asyncio
import gc
import os
import threading
from pathlib import Path

import pytest
from tests.support.s3 import RawBucket, emulator

from protoslice.storage import FileStorage, ObjectKey
from protoslice.testing import StorageConformance, check


def test_a_directory_passes_and_keeps_what_it_had(tmp_path: Path) -> None:
    (tmp_path / "users").write_bytes(b"own")
    report = asyncio.run(check(f"file://{tmp_path}"))
    assert [(outcome.promise, outcome.error) for outcome in report.outcomes if outcome.error] == []
    assert report.kept
    assert {outcome.name for outcome in report.outcomes} == set(StorageConformance.bodies())
    assert len(report.outcomes) > 50
    assert sorted(path.name for path in tmp_path.iterdir()) == [".protoslice", "users"]


def test_nothing_is_left_open(tmp_path: Path) -> None:
    def open_now() -> list[str]:
        gc.collect()
        links = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
        return sorted(os.readlink(link) for link in links if link.is_symlink())

    before = open_now()
    assert asyncio.run(check(f"file://{tmp_path}")).kept
    assert [name for name in open_now() if name not in before] == []
    assert [thread.name for thread in threading.enumerate() if "protoslice-storage" in thread.name] == []


def test_memory_passes() -> None:
    assert asyncio.run(check("memory://")).kept


def test_a_storage_that_forgets_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(self: FileStorage, key: ObjectKey, data: bytes) -> str:
        return '"1"'

    monkeypatch.setattr(FileStorage, "put", forget)
    report = asyncio.run(check(f"file://{tmp_path}"))
    assert report.unsafe is not None
    assert "not return what was written" in report.unsafe
    assert not report.kept
    broken = {outcome.name for outcome in report.outcomes if outcome.error}
    assert "test_an_object_is_what_was_put" in broken


def test_a_bucket_that_is_not_there_is_reported() -> None:
    with emulator() as options:
        raw = RawBucket("no-such-bucket-here", "x", options)
        report = asyncio.run(check(raw.uri, options))
    assert report.unsafe is not None
    assert "does not exist" in report.unsafe
    assert "://" not in report.unsafe
