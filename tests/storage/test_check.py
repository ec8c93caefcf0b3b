"""The check of a user's storage without pytest, with the same test bodies.

Public names of the storage packages, and the cost of importing them. `memory://` fulfils the contract.
"""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import pytest
from tests.support.backends import odd_etag
from tests.support.s3 import RawBucket, emulator

import protoslice.storage
import protoslice.testing
from protoslice.storage import Call, FileStorage, MemoryStorage, MeteredStorage, ObjectKey, Storage, Writer
from protoslice.testing import Raw, RawThroughStorage, StorageConformance, check


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
    assert "other bytes than were written last" in report.unsafe
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


@pytest.mark.parametrize("package", [protoslice.storage, protoslice.testing])
def test_all_is_what_is_public(package: ModuleType) -> None:
    public = {
        name
        for name, member in vars(package).items()
        if not name.startswith("_") and not isinstance(member, ModuleType)
    }
    assert set(package.__all__) == public


def test_importing_takes_no_client_library() -> None:
    script = (
        "import sys, protoslice.storage, protoslice.testing;"
        "print(sorted({'obstore', 'httpcore', 'anyio', 'boto3', 'pytest', 'starlette'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("interface", [Storage, Writer])
def test_every_method_has_its_contract(interface: type) -> None:
    members = {name: member for name, member in vars(interface).items() if not name.startswith("_")}
    assert [name for name, member in members.items() if callable(member) and not member.__doc__] == []


class TestMemory(StorageConformance):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
        storage = MemoryStorage()
        yield storage, RawThroughStorage(storage)


class TestMemoryWithOddEntityTags(StorageConformance):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
        storage = MemoryStorage(odd_etag)
        yield storage, RawThroughStorage(storage)


async def test_iterating_goes_on_from_page_to_page() -> None:
    storage = MemoryStorage()
    names = ["a/1", "a/2", "a/3", "b/1"]
    for name in names:
        await storage.put(ObjectKey(name), b"x")
    for limit in (1, 2, 3, 1000):
        found = [item.key.text async for item in storage.iterate(limit=limit)]
        assert found == names, f"in pages of {limit}"
    below = [item.key.text async for item in storage.iterate(ObjectKey("a"), after=ObjectKey("a/1"), limit=1)]
    assert below == ["a/2", "a/3"]


async def test_a_wrapper_round_list_is_one_round_iterate() -> None:
    calls: list[Call] = []
    storage = MeteredStorage(MemoryStorage(), calls.append)
    for name in ("a", "b", "c"):
        await storage.put(ObjectKey(name), b"x")
    del calls[:]
    assert len([item async for item in storage.iterate(limit=2)]) == 3
    assert [call.name for call in calls] == ["list", "list"]
