"""Pushes that are resumed after a closed connection, also in another process; changed content is sent again."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest
from tests.support.protos.writer import varint
from tests.support.serve import LiveServer
from tests.support.wire import Fault, FaultyProxy, Relay

from protoslice.client import AsyncClient, Client
from protoslice.client.upload import push, resumable
from protoslice.client.upload.journal import Journal
from protoslice.errors import InvalidInput, StorageError, StorageUnavailable

MIB = 1 << 20
GIVEN = 12 * MIB
SIZE = GIVEN + 11
RESUMED = 9 * MIB
"""The most bytes sent when the service has two of three parts: the third part, and bytes that were in flight before."""
Seen = list[tuple[int, int | None]]


def content(size: int, seed: int = 1) -> bytes:
    """Return a GraphDef of about that size without repetitions: a node with an undeclared field."""
    return _field(b"\x0a", _field(b"\xfa\x7f", random.Random(seed).randbytes(size)))


def _field(tag: bytes, data: bytes) -> bytes:
    return tag + varint(len(data)) + data


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "modèl.pb"
    path.write_bytes(content(GIVEN))
    return path


@pytest.fixture
def ours(proxy: FaultyProxy) -> Iterator[Client]:
    """Return a client whose large files begin at a mebibyte, and whose parts have four."""
    with (
        Client(proxy.url, timeout_seconds=5.0, attempts=2, backoff_seconds=0.001) as client,
        patch.object(push, "RESUME_MIN_BYTES", MIB),
        patch.object(resumable, "CHECKED_PART", 4 * MIB),
        patch.object(resumable, "MOST_PART", 4 * MIB),
    ):
        proxy.done.clear()
        yield client
        proxy.script.clear()


def broken_off(ours: Client, what: Path, at: float = 0.7, **options: Any) -> BaseException:
    """Return the exception of a push that is interrupted at the share `at` of its bytes."""

    def progress(done: int, total: int | None) -> None:
        if done > at * (total or 0):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        ours.push(what, base=[], progress=progress, **options)
    return caught.value


def is_there(service: LiveServer, store: str, path: Path) -> bool:
    got = httpx.get(f"{service.url}/v1/stores/{store}/files/{path.name}").content
    return got == path.read_bytes()


def noted(state: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in state.iterdir() for line in path.read_text().split("\n") if line]


def test_it_goes_on_where_it_was(
    ours: Client, proxy: FaultyProxy, service: LiveServer, model: Path, state: Path
) -> None:
    error = broken_off(ours, model)
    assert error.__notes__ == ["push again to continue"]
    seen: Seen = []
    pushed, moved = proxy.bytes_sent_by(
        lambda: ours.push(model, base=[], tags=["on:1"], progress=lambda *at: seen.append(at))
    )
    assert is_there(service, pushed.store.id, model)
    assert 8 * MIB <= seen[0][0] < SIZE, "what had been sent before is not our speed"
    assert seen == sorted(seen)
    assert seen[-1] == (SIZE, SIZE)
    assert moved < RESUMED
    assert list(state.iterdir()) == []


def test_a_service_that_is_away_for_long(
    ours: Client, proxy: FaultyProxy, service: LiveServer, model: Path, tmp_path: Path
) -> None:
    """The push sends one part before the service is gone; the test repeats this with the file under another name."""
    proxy.script[:] = [Fault(), Fault(), *[Fault("reset")] * 20]
    with pytest.raises(StorageUnavailable) as caught:
        ours.push(model, base=[])
    proxy.script.clear()
    assert caught.value.__notes__ == ["push again to continue"]
    (tmp_path / "link.pb").symlink_to(model)
    pushed, moved = proxy.bytes_sent_by(lambda: ours.push(tmp_path / "link.pb", base=[], filename=model.name))
    assert is_there(service, pushed.store.id, model)
    assert moved < SIZE - 4 * MIB + MIB


def test_a_folder_sends_no_file_twice(ours: Client, proxy: FaultyProxy, service: LiveServer, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    (folder / "ünder").mkdir(parents=True)
    files = {name: content(size * MIB) for name, size in (("a.pb", 2), ("b", 3), ("c", 0), ("ünder/d", 5))}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    broken_off(ours, folder, 0.8, root="a.pb")
    files["b"] = content(3 * MIB, 77)
    (folder / "b").write_bytes(files["b"])
    pushed, moved = proxy.bytes_sent_by(lambda: ours.push(folder, base=[], root="a.pb"))
    ours.download(pushed.store.id, tmp_path / "back")
    assert {name: (tmp_path / "back" / name).read_bytes() for name in files} == files
    assert 3 * MIB < moved < 10 * MIB, "what changed, and what was not whole"
    assert not ours.push(folder, base=[], root="a.pb").created


@pytest.mark.parametrize("way", ["grown", "touched", "replaced"])
def test_a_file_that_changed_goes_anew(
    way: str, ours: Client, proxy: FaultyProxy, service: LiveServer, model: Path, state: Path
) -> None:
    broken_off(ours, model)
    (before,) = noted(state)
    if way == "grown":
        with model.open("ab") as file:
            file.write(b"\x12\x01a")
    elif way == "touched":
        os.utime(model, ns=(1, 1))
    else:
        model.with_name("new").write_bytes(content(GIVEN, 9))
        os.utime(model.with_name("new"), ns=(before["mtime_ns"], before["mtime_ns"]))
        model.with_name("new").replace(model)
    pushed, moved = proxy.bytes_sent_by(lambda: ours.push(model, base=[]))
    assert is_there(service, pushed.store.id, model)
    assert moved > SIZE
    assert httpx.get(f"{service.url}/v1/uploads/{before['upload']}").status_code == 410, "its room is given back"


def test_a_file_that_changed_unseen_is_sent_again(
    ours: Client, proxy: FaultyProxy, service: LiveServer, model: Path, state: Path
) -> None:
    """A resumed push hashes the current file and does not trust the journal."""
    broken_off(ours, model)
    stat = model.stat()
    with model.open("r+b") as file:
        file.seek(1000)
        file.write(b"changed")
    os.utime(model, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    pushed, moved = proxy.bytes_sent_by(lambda: ours.push(model, base=[]))
    assert is_there(service, pushed.store.id, model)
    assert moved > SIZE
    assert list(state.iterdir()) == []


@pytest.mark.parametrize("way", ["removed", "nonsense", "garbled", "another", "none"])
def test_what_cannot_be_gone_on_with_goes_anew(
    way: str, ours: Client, proxy: FaultyProxy, service: LiveServer, model: Path, state: Path
) -> None:
    broken_off(ours, model)
    (journal,) = state.iterdir()
    (entry,) = noted(state)
    if way == "removed":
        httpx.delete(f"{service.url}/v1/uploads/{entry['upload']}")
    elif way == "nonsense":
        journal.write_bytes(os.urandom(1000) + b"\n[1]\n{}\n" + b"[" * 100_000)
    elif way == "garbled":
        journal.write_text(json.dumps(entry | {"upload": "../../stores"}) + "\n" + json.dumps(entry)[:-9])
    elif way == "another":  # the upload of another file
        other = ours._connection.call(
            "POST", "/v1/uploads", headers={"tus-resumable": "1.0.0", "upload-length": "7", "upload-concat": "partial"}
        )
        name = other.headers["location"].rpartition("/")[2]
        journal.write_text(json.dumps(entry | {"upload": name}) + "\n")
    else:
        journal.unlink()
    pushed, moved = proxy.bytes_sent_by(lambda: ours.push(model, base=[]))
    assert is_there(service, pushed.store.id, model)
    assert SIZE < moved < SIZE + 4 * MIB, "all of it, and bytes under way before"
    assert list(state.iterdir()) == []


def test_nobody_goes_on_who_does_not_want_to(ours: Client, proxy: FaultyProxy, model: Path, state: Path) -> None:
    error = broken_off(ours, model, resume=False)
    assert not hasattr(error, "__notes__")
    assert not state.exists()
    assert "DELETE" in [method for method, _, _ in proxy.done], "what nobody goes on with is not left at the service"
    broken_off(ours, model)
    _, moved = proxy.bytes_sent_by(lambda: ours.push(model, base=[], resume=False))
    assert moved > SIZE


def test_another_type_or_another_service_is_another_push(
    ours: Client, proxy: FaultyProxy, service: LiveServer, model: Path
) -> None:
    broken_off(ours, model)
    _, moved = proxy.bytes_sent_by(lambda: ours.push(model, base=[], type="tensorflow.GraphDef"))
    assert moved > SIZE
    with Client(service.url) as direct:
        assert not direct.push(model, base=[], type="tensorflow.GraphDef").created
    _, moved = proxy.bytes_sent_by(lambda: ours.push(model, base=[]))
    assert moved < RESUMED


def test_two_at_once(ours: Client, proxy: FaultyProxy, service: LiveServer, model: Path, state: Path) -> None:
    """The second push finds the journal in use, so it sends everything, and does not touch the first push's parts."""
    broken_off(ours, model)
    inner: list[tuple[Any, int]] = []

    def meanwhile(done: int, total: int | None) -> None:
        if not inner:
            inner.append((None, 0))
            inner[0] = proxy.bytes_sent_by(lambda: ours.push(model, base=[]))

    pushed = ours.push(model, base=[], progress=meanwhile)
    ((other, moved),) = inner
    assert moved > SIZE
    assert is_there(service, pushed.store.id, model)
    assert other.store.id == pushed.store.id
    assert list(state.iterdir()) == []


def test_where_nothing_can_be_noted_nothing_is(
    ours: Client, model: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.parent.mkdir(parents=True)
    state.write_bytes(b"no folder")
    assert ours.push(model, base=[], type="tensorflow.GraphDef", min_chunk=98765).created
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/dev/null")
    assert ours.push(model, base=[], type="tensorflow.GraphDef", min_chunk=98766).created


def test_a_disk_that_is_full_costs_the_journal_and_no_push(ours: Client, model: Path, state: Path) -> None:
    with patch("protoslice.client.upload.journal.os.write", side_effect=OSError(errno.ENOSPC, "full")):
        error = broken_off(ours, model)
        assert ours.push(model, base=[], type="tensorflow.GraphDef", min_chunk=98767).created
    assert not hasattr(error, "__notes__")
    assert list(state.iterdir()) == []


def test_a_journal_that_its_owner_removes_meanwhile_is_not_taken_over(model: Path, state: Path) -> None:
    """The owner's push ends between opening and locking the journal; notes in the removed journal would be lost."""

    def ended(fd: int, how: int) -> None:
        for path in state.iterdir():
            path.unlink()

    with patch("protoslice.local_files.fcntl.flock", ended), Journal.of("http://a", model, None) as journal:
        assert not journal.lasting
    with Journal.of("http://a", model, None) as journal:
        assert journal.lasting


def test_journals_of_old_are_removed(ours: Client, model: Path, state: Path) -> None:
    state.mkdir(parents=True)
    for name, age in (("old", 31 * 86400), ("new", 29 * 86400)):
        (state / name).write_bytes(b"")
        then = (state / name).stat().st_mtime - age
        os.utime(state / name, (then, then))
    ours.push(model, base=[])
    assert [path.name for path in state.iterdir()] == ["new"]


def test_an_error_that_will_not_pass_leaves_nothing(
    ours: Client, proxy: FaultyProxy, tmp_path: Path, state: Path
) -> None:
    path = tmp_path / "bad.pb"
    path.write_bytes(b"\xff" * (2 * MIB))
    with pytest.raises(InvalidInput) as caught:
        ours.push(path, base=[], type="tensorflow.GraphDef", root="another.pb")
    assert not hasattr(caught.value, "__notes__")
    assert proxy.done[-1][0] == "DELETE"
    assert list(state.iterdir()) == []


def test_a_file_that_changes_while_it_is_sent(ours: Client, model: Path, state: Path, client: Client) -> None:
    def touch(done: int, total: int | None) -> None:
        os.utime(model, ns=(done, done))

    with pytest.raises(StorageError, match="changed"):
        ours.push(model, base=[], filename="touched.pb", progress=touch)
    assert list(state.iterdir()) == []
    assert "touched.pb" not in {store.root for store in client.stores()}


def test_a_cancelled_task(ours: Client, proxy: FaultyProxy, service: LiveServer, model: Path) -> None:
    async def once() -> None:
        async with AsyncClient(proxy.url) as client:
            begun = asyncio.Event()
            loop = asyncio.get_running_loop()

            def progress(done: int, total: int | None) -> None:
                if done > 9 * MIB:
                    loop.call_soon_threadsafe(begun.set)

            task = asyncio.ensure_future(client.push(model, base=[], progress=progress))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    async def again() -> Any:
        async with AsyncClient(proxy.url) as client:
            return await client.push(model, base=[])

    asyncio.run(once())
    pushed, moved = proxy.bytes_sent_by(lambda: asyncio.run(again()))
    assert is_there(service, pushed.store.id, model)
    assert moved < RESUMED


# A program that is killed

LARGE = 96 * MIB
HELD = [20 * MIB, 30 * MIB, 40 * MIB]
"""The bytes of each run after which nothing moves any more; the first parts have been acknowledged by then."""


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large.pb"
    path.write_bytes(content(LARGE))
    return path


def program(relay: Relay, path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "protoslice.cli", "push", str(path), "--url", relay.url]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def entry_of(service: LiveServer, state: Path) -> tuple[str, int]:
    """Return the upload that has been begun, and its stored size."""
    (entry,) = noted(state)
    return entry["upload"], httpx.get(f"{service.url}/v1/uploads/{entry['upload']}").json()["offset"]


@pytest.mark.long
def test_a_program_that_is_killed_again_and_again(service: LiveServer, large: Path, state: Path) -> None:
    """Each run continues at the service's offset; the last run sends only the missing bytes."""
    reached: list[tuple[str, int]] = []
    with Relay(service.url) as relay:
        for held in HELD:
            relay.begin(up=held, holds=True)
            with program(relay, large) as running:
                assert relay.reached.wait(60)
                running.kill()
            relay.begin()
            reached.append(entry_of(service, state))
        relay.begin()
        with program(relay, large) as running:
            said, complaints = running.communicate(timeout=60)
        assert running.returncode == 0, complaints
    assert len({upload for upload, _ in reached}) == 1
    offsets = [0, *(offset for _, offset in reached)]
    assert all(before < after for before, after in pairwise(offsets))
    assert relay.passed["up"] < LARGE - offsets[-1] + (64 << 10)
    assert is_there(service, said.strip().rpartition("/")[2], large)
    assert list(state.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_program_that_is_interrupted_says_how_to_go_on(
    number: signal.Signals, code: int, service: LiveServer, large: Path, state: Path
) -> None:
    large.write_bytes(content(LARGE, seed=code))  # a file that the service has would not be sent
    with Relay(service.url, up=20 * MIB, holds=True) as relay, program(relay, large) as running:
        assert relay.reached.wait(60)
        running.send_signal(number)
        _, complaints = running.communicate(timeout=60)
    assert running.returncode == code
    assert complaints.startswith("protoslice: ")
    assert complaints.endswith("push again to continue\n")
    assert complaints.count("\n") == 1
    assert 16 * MIB <= entry_of(service, state)[1] <= 20 * MIB, "what arrived"
