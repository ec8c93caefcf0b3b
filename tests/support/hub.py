"""Commits, xorbs and shards as Hugging Face's clients send them."""

from __future__ import annotations

import hashlib
import json
import struct
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from protoslice._core import Xorb

Operation = tuple[str, dict[str, Any]]


def header(**more: str) -> Operation:
    """Return the first line of a commit."""
    return "header", {"summary": "a commit", "description": "", **more}


def inline(path: str, data: bytes) -> Operation:
    """Return a file within a commit; its content comes before its path, as clients send it."""
    return "file", {"content": b64encode(data).decode(), "path": path, "encoding": "base64"}


def lines_of(*operations: Operation) -> bytes:
    """Return the body of a commit."""
    return "\n".join(json.dumps({"key": key, "value": value}) for key, value in operations).encode()


def send(client: httpx.Client, name: str, *operations: Operation, revision: str = "main") -> httpx.Response:
    """Send a commit, and return the answer; `name` begins with the repository's kind."""
    kind = {"content-type": "application/x-ndjson"}
    return client.post(f"/api/{name}/commit/{revision}", content=lines_of(*operations), headers=kind)


def commit(
    client: httpx.Client, name: str, files: Mapping[str, bytes], *, revision: str = "main", **more: str
) -> httpx.Response:
    """Send a commit of new files, and return the answer."""
    return send(client, name, header(**more), *(inline(*file) for file in files.items()), revision=revision)


Extent = tuple[str, int, int, int]
"""An extent of a file: the xorb's hash, the size, the first chunk, and the end."""


def xorb_of(*chunks: bytes) -> tuple[str, bytes]:
    """Return the hash and the bytes of a xorb of raw chunks."""
    sent = b"".join(b"\0" + _length(chunk) + b"\0" + _length(chunk) + chunk for chunk in chunks)
    xorb = Xorb()
    xorb.feed(sent)
    return xorb.hash(), sent


def shard_of(*files: tuple[bytes | str, Sequence[Extent]], checked: bool = True) -> bytes:
    """Return a shard of files. Each file is described by its bytes or its SHA-256 in hex, and by its extents."""
    rows = [struct.pack("<32sQQ", b"tag", 2, 0)]
    for data, extents in files:
        digest = data if isinstance(data, str) else hashlib.sha256(data).hexdigest()
        rows.append(struct.pack("<32sII8x", b"file", 1 << 30 | (checked << 31), len(extents)))
        rows.extend(struct.pack("<32sIIII", _raw(xorb), 0, *rest) for xorb, *rest in extents)
        rows.extend(b"checked".ljust(48) for _ in extents if checked)
        rows.append(_raw(digest).ljust(48, b"\0"))
    return b"".join([*rows, b"\xff" * 32 + bytes(16), b"what clients say of the chunks"])


def _length(chunk: bytes) -> bytes:
    return len(chunk).to_bytes(3, "little")


def _raw(hash: str) -> bytes:
    data = bytes.fromhex(hash)
    return b"".join(data[at : at + 8][::-1] for at in range(0, 32, 8))
