"""Bodies of any size are read in constant memory."""

import io
import tarfile
import tracemalloc
from collections.abc import AsyncIterator

import pytest

from protoslice.server.bodies.ingest import files_of

SIZE = 64 << 20


def tar_frame() -> tuple[bytes, bytes]:
    member = tarfile.TarInfo("big")
    member.size = SIZE
    return member.tobuf(), bytes(1024)


def form_frame() -> tuple[bytes, bytes]:
    return b'--b\r\nContent-Disposition: form-data; filename="big"\r\n\r\n', b"\r\n--b--"


@pytest.mark.parametrize(
    ("content_type", "frame"),
    [
        ("application/protobuf", (b"", b"")),
        ("application/x-tar", tar_frame()),
        ("multipart/form-data; boundary=b", form_frame()),
    ],
)
async def test_a_large_file(content_type: str, frame: tuple[bytes, bytes]) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield frame[0]
        for n in range(SIZE >> 16):
            yield bytes([n % 256]) * (1 << 16)
        yield frame[1]

    async def run() -> tuple[int, io.BytesIO]:
        taken, sample = 0, io.BytesIO()
        async for file in files_of(content_type, None, "big", body()):
            assert file.path == "big"
            async for piece in file.pieces:
                taken += len(piece)
                sample.write(piece[:1])
        return taken, sample

    tracemalloc.start()
    try:
        taken, sample = await run()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken == SIZE
    assert set(sample.getvalue()) == {*range(256)}
    assert peak < 4 << 20
