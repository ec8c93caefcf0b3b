"""Commits as the hub's clients send them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import httpx

Operation = tuple[str, dict[str, Any]]


def header(**more: str) -> Operation:
    """The first line of a commit."""
    return "header", {"summary": "a commit", "description": "", **more}


def inline(path: str, data: bytes) -> Operation:
    """A file within a commit; the content stands before the path, as clients have it."""
    return "file", {"content": b64encode(data).decode(), "path": path, "encoding": "base64"}


def lines_of(*operations: Operation) -> bytes:
    """The body of a commit."""
    return "\n".join(json.dumps({"key": key, "value": value}) for key, value in operations).encode()


def send(client: httpx.Client, name: str, *operations: Operation, revision: str = "main") -> httpx.Response:
    """The answer to a commit; `name` begins with the kind."""
    kind = {"content-type": "application/x-ndjson"}
    return client.post(f"/api/{name}/commit/{revision}", content=lines_of(*operations), headers=kind)


def commit(
    client: httpx.Client, name: str, files: Mapping[str, bytes], *, revision: str = "main", **more: str
) -> httpx.Response:
    """The answer to a commit of new files."""
    return send(client, name, header(**more), *(inline(*file) for file in files.items()), revision=revision)
