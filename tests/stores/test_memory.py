"""Taking in and reading do not make the process grow."""

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
    """A gibibyte; what was resident at the most is compared with what was before it came."""
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "storage"), "16"], capture_output=True, text=True, timeout=250
    )
    assert result.returncode == 0, result.stderr
    size, ingest, both = map(int, result.stdout.split())
    print(f"{size >> 20} MiB: grown by {ingest >> 20} MiB to take it in, {both >> 20} MiB with reading it")
    assert size > 1 << 30
    assert both < 128 << 20
