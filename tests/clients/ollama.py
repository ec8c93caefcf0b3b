"""Ollama: a model is created, pushed, removed and pulled."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import httpx
from tests.clients.running import built_with_go, good, serving

VERSION: Final = "v0.6.5"
"""The last version whose module holds all that it is built of."""


def run(folder: Path) -> str:
    """Push and pull a model of random weights."""
    program = built_with_go("ollama", "github.com/ollama/ollama", VERSION)
    (folder / "m.gguf").write_bytes(_gguf())
    (folder / "Modelfile").write_text("FROM ./m.gguf\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    asked = {"PATH": os.environ["PATH"], "HOME": str(folder), "OLLAMA_HOST": address}
    asked["OLLAMA_MODELS"] = str(folder / "models")
    with (
        serving(folder) as service,
        (folder / "ollama.log").open("w") as log,
        subprocess.Popen([program, "serve"], cwd=folder, env=asked, stdout=log, stderr=log) as running,
    ):
        try:
            _await(f"http://{address}/")
            name = f"{service.url}/team/tiny:v1"
            good(program, "create", name, "-f", "Modelfile", folder=folder, env=asked)
            blobs = _blobs(folder)
            good(program, "push", "--insecure", name, folder=folder, env=asked)
            good(program, "rm", name, folder=folder, env=asked)
            assert not _blobs(folder)
            good(program, "pull", "--insecure", name, folder=folder, env=asked)
            assert _blobs(folder) == blobs
            assert httpx.get(f"{service.url}/v2/team/tiny/tags/list").json()["tags"] == ["v1"]
        finally:
            running.terminate()
    return f"ollama {VERSION}"


def _blobs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "models/blobs").iterdir()}


def _await(url: str) -> None:
    for _ in range(100):
        with suppress(httpx.TransportError):
            httpx.get(url)
            return
        time.sleep(0.2)
    raise TimeoutError("ollama serve did not start")


def _gguf() -> bytes:
    """A file of one tensor of 1 MiB."""
    facts = {"block_count": 1, "embedding_length": 32}
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 2 + len(facts))
    head += _text("general.architecture") + struct.pack("<I", 8) + _text("llama")
    head += _text("general.file_type") + struct.pack("<II", 4, 0)
    for name, value in facts.items():
        head += _text(f"llama.{name}") + struct.pack("<II", 4, value)
    head += _text("token_embd.weight") + struct.pack("<IQQIQ", 2, 32, 8192, 0, 0)
    return head + bytes(-len(head) % 32) + os.urandom(1 << 20)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()
