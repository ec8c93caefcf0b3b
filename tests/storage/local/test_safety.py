"""Hazards of directories: links, pipes, other processes, crashes, large files, full disks."""

import asyncio
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TypeVar

import pytest

from protoslice.errors import (
    Conflict,
    IntegrityError,
    InvalidInput,
    NotFound,
    StorageDenied,
    StorageFull,
    StorageUnavailable,
)
from protoslice.storage import FileStorage, ObjectKey, Writer
from protoslice.storage.local_tree import Tree

KEY = ObjectKey("folder/object.pb")
T = TypeVar("T")


def on(root: Path, work: Callable[[FileStorage], Awaitable[T]]) -> T:
    """Return the result of `work` on storage at `root`."""

    async def run() -> T:
        async with FileStorage(str(root)) as storage:
            return await work(storage)

    return asyncio.run(run())


def staging_files(root: Path) -> list[Path]:
    return list((root / ".protoslice" / "tmp").iterdir())


@pytest.mark.parametrize("link", ["folder", "folder/object.pb"])
def test_a_link_leads_nowhere(tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "object.pb").write_bytes(b"secret")
    root = tmp_path / "root"
    (root / link).parent.mkdir(parents=True)
    (root / link).symlink_to(outside if link == "folder" else outside / "object.pb")

    async def work(storage: FileStorage) -> None:
        for call in (storage.stat(KEY), storage.get_range(KEY, 0, 1), storage.open_file(KEY)):
            with pytest.raises((NotFound, StorageDenied)):
                await call
        assert (await storage.list()).items == ()
        assert (await storage.list(ObjectKey("folder"))).items == ()
        await storage.delete(KEY)

    on(root, work)
    assert (outside / "object.pb").read_bytes() == b"secret"


def test_replacing_a_link_replaces_the_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"secret")
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / str(KEY)).symlink_to(target)
    on(root, lambda storage: storage.put(KEY, b"ours"))
    assert (target.read_bytes(), (root / str(KEY)).read_bytes()) == (b"secret", b"ours")


def test_a_root_that_is_moved_is_still_the_root(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "decoy").mkdir()

    async def work(storage: FileStorage) -> None:
        (tmp_path / "root").rename(tmp_path / "moved")
        (tmp_path / "root").symlink_to(tmp_path / "decoy")
        await storage.put(KEY, b"x")

    on(tmp_path / "root", work)
    assert (tmp_path / "moved" / str(KEY)).read_bytes() == b"x"
    assert list((tmp_path / "decoy").iterdir()) == []


def test_a_pipe_is_no_object_and_blocks_nobody(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / str(KEY))

    async def work(storage: FileStorage) -> None:
        with pytest.raises(NotFound):
            await storage.get_range(KEY, 0, 1)
        with pytest.raises(NotFound):
            await storage.stat(KEY)
        assert (await storage.list()).items == ()

    on(tmp_path, work)


def test_offsets_beyond_4_gib(tmp_path: Path) -> None:
    size = (5 << 30) + 3
    with (tmp_path / "huge").open("wb") as file:
        for at, mark in ((0, b"begin"), ((1 << 32) - 2, b"across"), (size - 3, b"end")):
            file.seek(at)
            file.write(mark)

    async def work(storage: FileStorage) -> None:
        key = ObjectKey("huge")
        assert (await storage.stat(key)).size == size
        spans = [(size - 3, size), ((1 << 32) - 2, (1 << 32) + 4), (0, 5)]
        assert list(await storage.get_ranges(key, spans)) == [b"end", b"across", b"begin"]
        async with aclosing(storage.stream(key, size - 4)) as pieces:
            assert [piece async for piece in pieces] == [b"\0end"]
        with pytest.raises(IntegrityError):
            await storage.get_range(key, size - 3, size + 1)

    on(tmp_path, work)


def test_a_file_cut_short_while_open_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(100))

    async def work(storage: FileStorage) -> None:
        file = await storage.open_file(ObjectKey("a"))
        os.truncate(tmp_path / "a", 50)
        with pytest.raises(IntegrityError):
            file.pread(0, 100)
        file.close()
        with pytest.raises(StorageUnavailable):
            file.pread(0, 1)

    on(tmp_path, work)


def test_a_change_in_place_changes_the_tag(tmp_path: Path) -> None:
    async def work(storage: FileStorage) -> None:
        etag = await storage.put(KEY, b"before")
        with (tmp_path / str(KEY)).open("r+b") as file:
            file.write(b"behind")
        with pytest.raises(Conflict):
            await storage.get_range(KEY, 0, 1, if_etag=etag)

    on(tmp_path, work)


def test_names_that_are_no_keys_are_not_listed(tmp_path: Path) -> None:
    for name in (b"good", b"bad\xff", b"bad\n", b"bad\\"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(b"x")
    page = on(tmp_path, lambda storage: storage.list())
    assert [str(item.key) for item in page.items] == ["good"]


def test_empty_folders_go_and_come(tmp_path: Path) -> None:
    async def work(storage: FileStorage) -> None:
        await storage.put(ObjectKey("a/b/c/d"), b"x")
        await storage.put(ObjectKey("a/e"), b"x")
        await storage.delete(ObjectKey("a/b/c/d"))
        assert not (tmp_path / "a/b").exists()
        await storage.put(ObjectKey("a/b"), b"now an object")

    on(tmp_path, work)


WRITER = """
import asyncio, sys
from protoslice.storage import FileStorage, ObjectKey
async def work():
    storage = FileStorage(sys.argv[1])
    writer = await storage.writer(ObjectKey("folder/object.pb"))
    await writer.write(bytes(1 << 20))
    print("written", flush=True)
    await asyncio.sleep(600)
asyncio.run(work())
"""


def test_a_killed_writer_leaves_garbage_that_is_collected(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"written\n"
            assert on(tmp_path, lambda storage: storage.collect_garbage(-60)) == 0
            assert len(staging_files(tmp_path)) == 1
        finally:
            process.send_signal(signal.SIGKILL)
    assert on(tmp_path, lambda storage: storage.list()).items == ()
    assert on(tmp_path, lambda storage: storage.collect_garbage()) == 0, "not old enough"
    assert on(tmp_path, lambda storage: storage.collect_garbage(-60)) == 1
    assert staging_files(tmp_path) == []


RACER = """
import asyncio, sys
from protoslice.storage import FileStorage, ObjectKey

async def work(root, me):
    async with FileStorage(root) as storage:
        for number in range(25):
            await storage.put(ObjectKey(f"shared/{number % 3}/{me}-{number}"), b"x" * number)
            await storage.put(ObjectKey("counter"), me.encode() * 10)
            await storage.put(ObjectKey(f"shared/{number % 3}/gone"), b"x")
            await storage.delete(ObjectKey(f"shared/{number % 3}/gone"))

asyncio.run(work(sys.argv[1], sys.argv[2]))
"""


def test_processes_do_not_lose_each_others_work(tmp_path: Path) -> None:
    racers = [subprocess.Popen([sys.executable, "-c", RACER, str(tmp_path), str(number)]) for number in range(3)]
    assert [racer.wait(timeout=120) for racer in racers] == [0, 0, 0]
    found = {path.name: path.stat().st_size for path in (tmp_path / "shared").rglob("*-*")}
    assert found == {f"{racer}-{number}": number for racer in range(3) for number in range(25)}
    assert (tmp_path / "counter").read_bytes() in [b"%d" % racer * 10 for racer in range(3)], "one content, whole"
    assert staging_files(tmp_path) == []


async def _finish(writer: Writer) -> None:
    await writer.write(b"x")
    await writer.commit()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EIO, StorageUnavailable),
        (errno.EACCES, StorageDenied),
        (errno.EROFS, StorageDenied),
    ],
)
@pytest.mark.parametrize("call", ["write", "fsync", "rename", "utime"])
def test_what_the_system_reports_is_told_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception], call: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, "of the system", "/some/path")

    async def work(storage: FileStorage) -> None:
        monkeypatch.setattr(os, call, fail)
        with pytest.raises(kind) as caught:
            await storage.put(KEY, b"x")
        async with await storage.writer(KEY) as writer:
            with pytest.raises(kind):
                await _finish(writer)
            with pytest.raises(InvalidInput):
                await writer.commit()
        monkeypatch.undo()
        assert "folder/object.pb" in str(caught.value)
        assert "/some/path" not in str(caught.value)
        assert (await storage.list()).items == ()

    on(tmp_path, work)
    assert staging_files(tmp_path) == []


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the paths of all synced files and folders, in this order."""
    paths: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return paths


def test_every_folder_is_synced_before_the_word_is_given(tmp_path: Path, synced: list[str]) -> None:
    on(tmp_path, lambda storage: storage.put(ObjectKey("a/b/c"), b"x"))
    assert synced[0].startswith(str(tmp_path / ".protoslice" / "tmp"))
    assert synced[1:] == [str(tmp_path / "a/b"), str(tmp_path / "a"), str(tmp_path)]


def test_a_folder_that_was_synced_is_so_until_another_process_makes_a_new_one(
    tmp_path: Path, synced: list[str]
) -> None:
    b, a = tmp_path / "a/b", tmp_path / "a"

    async def folders_of_a_put(storage: FileStorage, name: str) -> list[str]:
        synced.clear()
        await storage.put(ObjectKey(f"a/b/{name}"), b"x")
        return synced[1:]

    async def work(storage: FileStorage) -> None:
        assert await folders_of_a_put(storage, "1") == [str(b), str(a), str(tmp_path)]
        assert await folders_of_a_put(storage, "2") == [str(b)]
        shutil.rmtree(b)  # another process
        b.mkdir()
        assert await folders_of_a_put(storage, "3") == [str(b), str(a)]
        shutil.rmtree(a)
        assert await folders_of_a_put(storage, "4") == [str(b), str(a), str(tmp_path)]
        for number in range(300):
            await storage.put(ObjectKey(f"c/{number}/x"), b"x")
        assert len(os.listdir("/proc/self/fd")) < 200

    on(tmp_path, work)
    assert not any(str(tmp_path) in os.readlink(f"/proc/self/fd/{each}") for each in _descriptors())


def _descriptors() -> list[str]:
    return [each for each in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{each}")]


def test_a_published_file_is_not_looked_for_among_the_spare_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that aborts removes the staging file; a success has nothing to remove."""
    dropped: list[str] = []
    drop = Tree.drop_staging

    def note(self: Tree, name: str) -> None:
        dropped.append(name)
        drop(self, name)

    monkeypatch.setattr(Tree, "drop_staging", note)

    async def work(storage: FileStorage) -> None:
        await storage.put(KEY, b"x")
        await storage.put(KEY, b"y")
        writer = await storage.writer(ObjectKey("folder/another"))
        await writer.write(b"z")
        await writer.commit()
        assert dropped == []
        await (await storage.writer(ObjectKey("folder/third"))).abort()
        assert len(dropped) == 1

    on(tmp_path, work)
    assert staging_files(tmp_path) == []


def test_the_disk_begins_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte of a long object is written to the disk once, and soon; the commit waits for the rest only."""
    handed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda fd, offset, length, advice: handed.append((offset, length)))
    pieces = [bytes([number]) * (3 << 20) for number in range(10)]

    async def work(storage: FileStorage) -> bytes:
        writer = await storage.writer(KEY)
        for piece in pieces:
            await writer.write(piece)
        await writer.commit()
        return await storage.get_range(KEY, 0, 30 << 20)

    assert on(tmp_path, work) == b"".join(pieces)
    assert [offset for offset, _ in handed] == [sum(length for _, length in handed[:n]) for n in range(len(handed))]
    assert (30 << 20) - sum(length for _, length in handed) < 11 << 20
    assert max(length for _, length in handed) <= 11 << 20


def test_a_closed_storage_answers_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        storage = FileStorage(str(tmp_path))
        writer = await storage.writer(KEY)
        await writer.write(b"x")
        await storage.close()
        await storage.close()
        for call in (storage.stat(KEY), storage.put(KEY, b"x"), writer.commit()):
            with pytest.raises(StorageUnavailable):
                await call

    asyncio.run(work())
    assert not (tmp_path / str(KEY)).exists()


def test_a_root_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        FileStorage(str(tmp_path / "missing"), create=False)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidInput, match="not a folder"):
        FileStorage(str(tmp_path / "file"))


TOILER = """
import asyncio, sys
from protoslice.storage import FileStorage, ObjectKey
async def work():
    storage = FileStorage(sys.argv[1])
    number = 0
    while True:
        key = ObjectKey(f"n/{number % 5}/{number}")
        data = bytes([number % 256]) * 70_000
        if number % 2:
            async with await storage.writer(key) as writer:
                await writer.write(data[:30_000])
                await writer.write(data[30_000:])
                await writer.commit()
        else:
            await storage.put(key, data)
        await storage.put(ObjectKey("tag"), b"%08d" % number)
        print(number, flush=True)
        number += 1
asyncio.run(work())
"""


def test_killed_at_any_moment_nothing_acknowledged_is_lost_and_nothing_is_half_there(tmp_path: Path) -> None:
    chance = random.Random(5)
    for turn in range(12):
        root = tmp_path / str(turn)
        with subprocess.Popen([sys.executable, "-c", TOILER, str(root)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(chance.random() / 20)
            process.kill()
            acknowledged = [0, *(int(line) for line in process.stdout if line.endswith(b"\n"))]
        _check_wreck(root, acknowledged[-1])


def _check_wreck(root: Path, last: int) -> None:
    found = {path.name: path.read_bytes() for path in (root / "n").rglob("*") if path.is_file()}
    assert set(found) >= {str(number) for number in range(last + 1)}
    assert len(found) <= last + 2
    assert all(data == bytes([int(name) % 256]) * 70_000 for name, data in found.items())
    assert int((root / "tag").read_bytes()) in {last, last + 1}
    on(root, lambda storage: storage.collect_garbage(-60))
    assert staging_files(root) == []


def test_a_system_that_gives_little_at_once_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(range(200))
    read = os.pread

    def reluctant(descriptor: int, length: int, offset: int) -> bytes:
        """Read at most seven bytes; a real system reads at most two gibibytes."""
        return read(descriptor, min(length, 7), offset)

    async def work(storage: FileStorage) -> None:
        await storage.put(KEY, data)
        monkeypatch.setattr(os, "pread", reluctant)
        assert await storage.get_ranges(KEY, [(3, 150), (0, 7), (190, 200)]) == [data[3:150], data[:7], data[190:]]

    on(tmp_path, work)
