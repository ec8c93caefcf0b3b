"""Memory of a serving process that is sent a xorb of a gigabyte in a few megabytes."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import httpx
from tests.support.serve import service_process

CHUNK = 128 << 10
CHUNKS = 8192
"""The most chunks of a xorb, each of the most bytes: a gigabyte, where a xorb may have 64 MiB."""
BOUND = 160 << 20


def packed() -> bytes:
    """A chunk of zeros as clients send it, in a frame of LZ4: one zero, which is repeated."""
    left = CHUNK - 1 - 5 - 4 - 15
    match = b"\x1f\0\1\0" + b"\xff" * (left // 255) + bytes([left % 255])
    block = match + b"\x50" + bytes(5)
    frame = b"\x04\x22\x4d\x18\x60\x70\x73" + len(block).to_bytes(4, "little") + block + bytes(4)
    return b"\0" + len(frame).to_bytes(3, "little") + b"\1" + CHUNK.to_bytes(3, "little") + frame


def test_a_xorb_that_unpacks_to_a_gigabyte_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    with (
        service_process("--storage", tmp_path.as_uri(), settings={"PROTOSLICE_LOG_LEVEL": "error"}) as service,
        httpx.Client(base_url=service.url, timeout=60) as client,
    ):
        client.post("/api/repos/create", json={"organization": "ann", "name": "m"}).raise_for_status()
        cas = urlsplit(client.get("/api/models/ann/m/xet-write-token/main").json()["casUrl"]).path
        # A xorb of as much as one may have has another hash than it says, and nothing else is wrong with it.
        sent = client.post(f"{cas}/v1/xorbs/default/{'0' * 64}", content=packed() * 512)
        assert (sent.status_code, "chunks do not match" in sent.headers["x-error-message"]) == (460, True)
        service.forget_peak()
        before = service.peak()
        sent = client.post(f"{cas}/v1/xorbs/default/{'0' * 64}", content=packed() * CHUNKS)
        assert service.peak() - before < BOUND
        assert sent.status_code == 413
    assert sum(each.stat().st_size for each in tmp_path.rglob("*") if each.is_file()) < 1 << 20
