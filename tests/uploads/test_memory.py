"""Uploads in parts, resumed and joined, do not make the process grow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
    """Bytes the process grows by when it takes in so many tensors of 32 MiB, twice, and gives them out."""
    command = [sys.executable, "-c", PROGRAM, str(folder), str(tensors)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return int(found.stdout)


def test_memory_does_not_follow_size(tmp_path: Path) -> None:
    small, large = growth(tmp_path / "small", 1), growth(tmp_path / "large", 8)
    print(small, large)
    assert large < small + (16 << 20)
