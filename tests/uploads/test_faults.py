"""Storage or catalogue fails at call 1, 2, 3 … of an upload: acknowledged bytes stay, others can be resent.

Limits of open uploads: in total, by client, and the time that an idle upload keeps its place. Uploads in parts, resumed
and joined, do not make the process grow.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.interrupted import FaultyDatabase, FaultyStorage
from tests.support.stores import (
    assert_tidy,
    assert_whole,
    collect_everything,
    in_memory,
    onnx,
    opened,
    uploads_in,
    visible,
)

from protoslice.database.transactions import now
from protoslice.errors import ClientLimit, Gone, ProtosliceError, TooMany
from protoslice.server.api.encoding import encode_fact
from protoslice.server.api.uploads import state_of
from protoslice.server.app import create_app
from protoslice.server.bodies.tus import upload_headers
from protoslice.server.settings import Settings
from protoslice.serving import StoreOptions
from protoslice.storage import MemoryStorage, Storage
from protoslice.stores import IngestRequest, Stores
from protoslice.uploads import Body, NewUpload, Upload, UploadOptions, Uploads, append

DATA = onnx(300_000, 20_000, seed=5)
OPTIONS = StoreOptions(uploads=UploadOptions(part_bytes=100_000))
CUTS = (0, 70_001, 70_002, 200_000, len(DATA))
HOW = pytest.mark.parametrize(
    "how", [{}, {"after": True}, {"stays_down": True}, {"after": True, "stays_down": True}], ids=str
)


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 30_000):
        yield data[at : at + 30_000]


async def work(uploads: Uploads, said: list[tuple[str, int]]) -> Upload:
    """Upload in several requests, and record the acknowledged length."""
    upload = await uploads.create(NewUpload(length=len(DATA), path="model.onnx"))
    said.append((upload.id, 0))
    for start, end in pairwise(CUTS):
        upload = await uploads.append(upload.id, Body(pieces=pieces(DATA[start:end]), offset=start))
        said.append((upload.id, upload.offset))
    return upload


async def go_on(stores: Stores, upload_id: str, acknowledged: int) -> Upload:
    """Bring the upload to its end, like a client that first requests the offset."""
    upload = await stores.uploads.get(upload_id)
    assert upload.offset >= acknowledged
    if upload.state == "open":
        rest = DATA[upload.offset :]
        upload = await stores.uploads.append(upload_id, Body(pieces=pieces(rest), offset=upload.offset))
    assert upload.state == "stored"
    return upload


async def with_a_fault(fail_at: int, how: dict[str, bool]) -> bool:
    """Return True once the fault has happened in a storage call or a transaction; check that all is well then."""
    inner = MemoryStorage()
    faulty = FaultyStorage(inner, 1 << 40)
    said: list[tuple[str, int]] = []
    async with opened(faulty, OPTIONS, FaultyDatabase(catalogue_of(inner), faulty)) as stores:
        faulty.calls.clear()
        faulty._fail_at = fail_at
        faulty._after, faulty._stays_down = how.get("after", False), how.get("stays_down", False)
        try:
            await work(stores.uploads, said)
        except ProtosliceError:
            assert faulty.failed
        assert stores.shared.reservations.unpublished_bytes == 0
    async with opened(inner, OPTIONS) as fresh:
        if said:
            upload = await go_on(fresh, *said[-1])
            found = await visible(fresh)
            assert set(found) == {upload.store}
            whole = await assert_whole(fresh, found[upload.store or ""])
            assert whole["file model.onnx"] == DATA
            await fresh.uploads.remove(upload.id)
        before = await visible(fresh)
    await collect_everything(inner)
    await assert_tidy(inner)
    async with opened(inner, OPTIONS) as fresh:
        assert await visible(fresh) == before
        for info in before.values():
            await assert_whole(fresh, info)
    rows = await catalogue_of(inner).read(lambda tx: tx.all("SELECT id FROM uploads WHERE state <> 'gone'"))
    assert rows == []
    return faulty.failed


@HOW
def test_every_call_may_fail(how: dict[str, bool]) -> None:
    for fail_at in range(1, 300):
        if not asyncio.run(with_a_fault(fail_at, how)):
            assert fail_at > 30
            return
    raise AssertionError("there is no end to the calls")


DAY = timedelta(days=1)
FEW = StoreOptions(uploads=UploadOptions(max_open=8, max_open_per_client=3))


def wanted(client: str, **more: object) -> NewUpload:
    return NewUpload(length=1000, client=client, **more)  # type: ignore[arg-type]


async def as_pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


async def expire(storage: Storage, upload_id: str) -> None:
    """Set an upload's time to the past."""
    records = uploads_in(storage)
    held = await records.read(upload_id)
    await records.change(held, replace(held, expires=now() - DAY))


def test_one_client_leaves_room_for_others() -> None:
    """The records name an upload's client, so another replica counts alike."""

    async def work(one: Stores, storage: MemoryStorage) -> None:
        for _ in range(3):
            await one.uploads.create(wanted("greedy"))
        async with opened(storage, FEW) as other:
            for stores in (one, other):
                with pytest.raises(ClientLimit, match="This client has 3 open uploads"):
                    await stores.uploads.create(wanted("greedy"))
                with pytest.raises(ClientLimit):
                    await stores.uploads.join([], wanted("greedy"))
                await stores.uploads.create(wanted("honest"))

    in_memory(work, FEW)


def test_all_together_have_a_limit_too() -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        for number in range(8):
            await stores.uploads.create(wanted(f"client {number}"))
        with pytest.raises(TooMany, match="The service has 8 open uploads") as caught:
            await stores.uploads.create(wanted("another"))
        assert not isinstance(caught.value, ClientLimit)

    in_memory(work, FEW)


def test_who_has_no_name_has_no_limit_of_its_own() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        for _ in range(8):
            await stores.uploads.create(wanted(""))

    in_memory(work, FEW)


@pytest.mark.parametrize("ended", ["removed", "expired"])
def test_an_upload_that_has_ended_frees_its_place(ended: str) -> None:

    async def work(stores: Stores, storage: MemoryStorage) -> None:
        first, *_ = [await stores.uploads.create(wanted("greedy")) for _ in range(3)]
        with pytest.raises(ClientLimit):
            await stores.uploads.create(wanted("greedy"))
        await (stores.uploads.remove(first.id) if ended == "removed" else expire(storage, first.id))
        await stores.uploads.create(wanted("greedy"))
        with pytest.raises(Gone):
            await stores.uploads.get(first.id)

    in_memory(work, FEW)


def test_an_upload_of_which_nothing_came_is_kept_for_minutes() -> None:
    options = UploadOptions()

    async def work(stores: Stores, _: MemoryStorage) -> None:
        begun = await stores.uploads.create(wanted("a"))
        assert begun.expires <= now() + timedelta(minutes=10)
        nothing = await stores.uploads.append(begun.id, Body(pieces=as_pieces(), offset=0))
        assert nothing.expires <= now() + timedelta(minutes=10)
        got_on = await stores.uploads.append(begun.id, Body(pieces=as_pieces(b"\x0a"), offset=0))
        assert got_on.expires > now() + DAY / 2

    in_memory(work, StoreOptions(uploads=options))


def test_a_slow_body_keeps_its_upload_before_any_of_it_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(append, "monotonic", lambda: clock[0])
    seen = []

    async def work(stores: Stores, storage: MemoryStorage) -> None:
        begun = await stores.uploads.create(wanted("a"))
        await expire_soon(storage, begun.id)

        async def slowly() -> AsyncIterator[bytes]:
            for _ in range(4):
                held = await uploads_in(storage).read(begun.id)
                seen.append(held.expires)
                yield b"\x0a"
                clock[0] += 20

        got_on = await stores.uploads.append(begun.id, Body(pieces=slowly(), offset=0))
        assert got_on.offset == 4

    async def expire_soon(storage: MemoryStorage, upload_id: str) -> None:
        records = uploads_in(storage)
        held = await records.read(upload_id)
        await records.change(held, replace(held, expires=now() + timedelta(seconds=30)))

    in_memory(work)
    assert seen[0] == seen[1] < seen[2] == seen[3], "told once, when half of the time was over"


async def test_whose_it_is_is_told_to_nobody(stores: Stores) -> None:
    found = await stores.uploads.create(wanted("203.0.113.77"))
    settings = Settings(storage="memory://")
    said = encode_fact(state_of(found)).decode() + str(upload_headers(found, {"app": create_app(settings)}))
    assert "203.0.113.77" not in said


@pytest.mark.parametrize("ends", ["join", "assemble"])
def test_uploads_that_a_store_was_made_of_count_no_longer(ends: str) -> None:
    """Otherwise a parallel client would be shut out for a day; repeating the request still works."""

    async def work(stores: Stores, storage: MemoryStorage) -> None:
        made: set[str | None] = set()
        for turn in range(4):
            parts = [(await stores.uploads.create(wanted("client", partial=True))).id for _ in range(2)]
            for part in parts:
                body = Body(pieces=as_pieces(bytes([turn]) * 1000), offset=0, length=1000)
                await stores.uploads.append(part, body)
            for _ in range(2):
                if ends == "join":
                    made.add((await stores.uploads.join(parts, NewUpload(path="a.bin", client="client"))).store)
                else:
                    made.add((await stores.uploads.assemble({"a.bin": parts}, IngestRequest())).store.id)
            for part in parts:
                assert (await stores.uploads.get(part)).state == "complete"
        assert len(made) == 4

    in_memory(work, FEW)


PROGRAM = """
import asyncio, sys
from protoslice.storage import FileStorage
from protoslice.stores import IngestRequest, Stores
from protoslice.serving import StoreOptions
from protoslice.uploads import Body, NewUpload, UploadOptions
from tests.support.protos.writer import varint
from tests.support.stores import onnx, open_stores, upload

TENSORS, SIZE = int(sys.argv[2]), 32 << 20
PIECE = bytes(range(256)) * 1024

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) << 10

HEAD = b"\\x2a" + varint(len(varint(SIZE)) + 1 + SIZE) + b"\\x4a" + varint(SIZE)
GRAPH = TENSORS * (len(HEAD) + SIZE)
FRONT = b"\\x08\\x08\\x3a" + varint(GRAPH)

async def front():
    yield FRONT

async def tensor():
    yield HEAD
    for _ in range(SIZE // len(PIECE)):
        yield PIECE

async def push(uploads, wanted, first):
    found = await uploads.create(wanted)
    if first:
        found = await uploads.append(found.id, Body(pieces=front(), offset=0))
    for _ in range(TENSORS):
        found = await uploads.append(found.id, Body(pieces=tensor(), offset=found.offset))
    return found

async def main():
    options = StoreOptions(uploads=UploadOptions(part_bytes=8 << 20))
    storage = FileStorage(sys.argv[1])
    stores = await open_stores(storage, options)
    await upload(stores, onnx(5_000_000))
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")  # the peak is counted from here on
    before = resident()
    whole = await push(stores.uploads, NewUpload(length=len(FRONT) + GRAPH, path="model.onnx"), True)
    head = await stores.uploads.create(NewUpload(length=len(FRONT), partial=True))
    await stores.uploads.append(head.id, Body(pieces=front(), offset=0))
    rest = await push(stores.uploads, NewUpload(length=GRAPH, partial=True), False)
    joined = await stores.uploads.join([head.id, rest.id], NewUpload(path="model.onnx"))
    assert joined.store == whole.store, (joined, whole)
    store = await stores.view(whole.store)
    assert store.info.chunks >= TENSORS
    size = 0
    view = store.file("model.onnx")
    async for piece in view.pieces(0, view.size):
        size += len(piece)
    assert size == len(FRONT) + GRAPH
    await stores.close()
    print(resident() - before)

asyncio.run(main())
"""


def growth(folder: Path, tensors: int) -> int:
    """Return the process's growth in bytes when it stores this many tensors of 32 MiB, twice, and serves them."""
    command = [sys.executable, "-c", PROGRAM, str(folder), str(tensors)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return int(found.stdout)


def test_memory_does_not_follow_size(tmp_path: Path) -> None:
    small, large = growth(tmp_path / "small", 1), growth(tmp_path / "large", 8)
    print(small, large)
    assert large < small + (16 << 20)
