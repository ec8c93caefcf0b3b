"""Uploads and reads do not make the process grow.

Uploads in parts, resumed and joined, do not make the process grow either.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = '''
import asyncio, hashlib, resource, sys
from protoslice.storage import FileStorage
from protoslice.stores import IngestRequest, Stores
from protoslice.views import chunks, documents
from tests.support.protos.writer import varint
from tests.support.stores import field, onnx, open_stores, upload

TENSORS, SIZE = int(sys.argv[2]), 64 << 20
PIECE = bytes(range(256)) * 4096

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) << 10

def tensor():
    """One initializer of SIZE bytes, without its bytes: what stands before them."""
    head = field(8, b"weights") + b"\\x10\\x03" + b"\\x4a" + varint(SIZE)
    return b"\\x2a" + varint(len(head) + SIZE) + head

async def feed(sink, sha):
    head = b"\\x08\\x08\\x3a" + varint(TENSORS * (len(tensor()) + SIZE))
    async def send(data):
        sha.update(data)
        await sink.write(data)
    await send(head)
    for _ in range(TENSORS):
        await send(tensor())
        for _ in range(SIZE // len(PIECE)):
            await send(PIECE)
    await sink.close()

async def main():
    storage = FileStorage(sys.argv[1])
    stores = await open_stores(storage)
    await upload(stores, onnx(5_000_000))
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")  # the peak is counted from here on
    before = resident()
    sha = hashlib.sha256()
    async with await stores.ingest(IngestRequest()) as ingest:
        await feed(await ingest.file("model.onnx"), sha)
        info = (await ingest.commit(expected_sha256=sha.digest())).store
    ingested = resident()
    store = await stores.view(info.id)
    view = await documents.merge(store, "", None, None)
    size = 0
    async for piece in view.pieces(0, view.size):
        size += len(piece)
    for n in range(info.chunks):
        await chunks.chunk(store, n)
    assert size == info.size and info.chunks >= TENSORS, (size, info)
    await stores.close()
    print(info.size, ingested - before, resident() - before)

asyncio.run(main())
'''


def test_a_big_store_in_and_out(tmp_path: Path) -> None:
    """A store of one gibibyte: the peak of resident memory is compared with the memory before the upload."""
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "storage"), "16"], capture_output=True, text=True, timeout=250
    )
    assert result.returncode == 0, result.stderr
    size, ingest, both = map(int, result.stdout.split())
    print(f"{size >> 20} MiB: grown by {ingest >> 20} MiB to take it in, {both >> 20} MiB with reading it")
    assert size > 1 << 30
    assert both < 128 << 20


UPLOADS = """
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


def growth_of_uploads(folder: Path, tensors: int) -> int:
    """Return the process's growth in bytes when it stores this many tensors of 32 MiB, twice, and serves them."""
    command = [sys.executable, "-c", UPLOADS, str(folder), str(tensors)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return int(found.stdout)


def test_memory_does_not_follow_size(tmp_path: Path) -> None:
    small, large = growth_of_uploads(tmp_path / "small", 1), growth_of_uploads(tmp_path / "large", 8)
    print(small, large)
    assert large < small + (16 << 20)
