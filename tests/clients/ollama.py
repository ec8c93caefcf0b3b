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
from tests.clients.running import Service, built_with_go, good, refused, serving
from tests.support.hub import commit

VERSION: Final = "v0.6.5"
"""The last version whose module contains all its build inputs."""


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
            _pull(program, folder, asked, service)
        finally:
            running.terminate()
    return f"ollama {VERSION}"


def _pull(program: Path, folder: Path, asked: dict[str, str], service: Service) -> None:
    """Pull GGUF files of a repository that a Hugging Face client filled."""
    files = {f"tiny.{each}.gguf": _gguf("{{ '<|im_start|>' }}") for each in ("Q8_0", "Q4_K_M")}
    with httpx.Client(base_url=service.url, timeout=60) as client:
        client.post("/api/repos/create", json={"organization": "Ann", "name": "Tiny-GGUF"}).raise_for_status()
        commit(client, "models/Ann/Tiny-GGUF", {**files, "LICENSE": b"MIT", "system": b"Be brief."}).raise_for_status()
    for tag, path in (("", "tiny.Q4_K_M.gguf"), (":Q8_0", "tiny.Q8_0.gguf"), (":main", "tiny.Q4_K_M.gguf")):
        name = f"{service.url}/Ann/Tiny-GGUF{tag}"
        good(program, "pull", "--insecure", name, folder=folder, env=asked)
        assert files[path] in _blobs(folder).values()
        shown = good(program, "show", "--modelfile", name, folder=folder, env=asked)
        for words in ("<|im_start|>assistant", "PARAMETER stop <|im_end|>", "SYSTEM Be brief.", "MIT"):
            assert words in shown, shown
        good(program, "rm", name, folder=folder, env=asked)
    refused(
        "No GGUF file", program, "pull", "--insecure", f"{service.url}/Ann/Tiny-GGUF:Q2_K", folder=folder, env=asked
    )


def _blobs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "models/blobs").iterdir()}


def _await(url: str) -> None:
    for _ in range(100):
        with suppress(httpx.TransportError):
            httpx.get(url)
            return
        time.sleep(0.2)
    raise TimeoutError("ollama serve did not start")


def _gguf(template: str = "") -> bytes:
    """A file of one tensor of 1 MiB."""
    facts = {"block_count": 1, "embedding_length": 32}
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 3 + len(facts))
    head += _text("tokenizer.chat_template") + struct.pack("<I", 8) + _text(template)
    head += _text("general.architecture") + struct.pack("<I", 8) + _text("llama")
    head += _text("general.file_type") + struct.pack("<II", 4, 0)
    for name, value in facts.items():
        head += _text(f"llama.{name}") + struct.pack("<II", 4, value)
    head += _text("token_embd.weight") + struct.pack("<IQQIQ", 2, 32, 8192, 0, 0)
    return head + bytes(-len(head) % 32) + os.urandom(1 << 20)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()
