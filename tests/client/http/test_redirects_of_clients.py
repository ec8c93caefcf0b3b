"""Redirects to another origin, met by each client: none tells it a secret of the first."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from tests.client.http.test_redirects import ALL, SECRETS, Site, sites

from protoslice.client import AsyncClient, Client
from protoslice.client.filesystem import StoreFileSystem
from protoslice.errors import ProtosliceError
from protoslice.sources.opening import as_source

__all__ = ["sites"]

BEARER: Final = {"authorization": "Bearer secret"}


def plain(url: str, _: Path) -> None:
    with Client(url, headers=SECRETS, attempts=1) as client:
        list(client.tags())


def asynchronous(url: str, _: Path) -> None:
    async def work() -> None:
        async with AsyncClient(url, headers=SECRETS, attempts=1) as client:
            [tag async for tag in client.tags()]

    asyncio.run(work())


def file_system(url: str, _: Path) -> None:
    files = StoreFileSystem(options={"headers": SECRETS, "attempts": 1}, skip_instance_cache=True)
    files.cat_file(f"{url.removeprefix('http://')}/a/files/b")


def small_push(url: str, folder: Path) -> None:
    (folder / "small").write_bytes(b"x")
    with Client(url, headers=SECRETS, attempts=1) as client:
        client.push(folder / "small")


def pull(url: str, folder: Path) -> None:
    with Client(url, headers=SECRETS, attempts=1) as client:
        client.download("a", folder / "pulled")


def by_tus(url: str, folder: Path) -> None:
    with (folder / "large").open("wb") as file:
        file.truncate(64 << 20)
    with Client(url, headers=SECRETS, attempts=1) as client:
        client.push(folder / "large")


def verb(*given: str, **environment: str) -> Callable[[str, Path], None]:
    """A verb of the command line, with settings that hold a secret."""

    def run(url: str, folder: Path) -> None:
        if not environment:
            kept = folder / "protoslice/credentials.json"
            kept.parent.mkdir()
            kept.write_text(json.dumps({url: "secret"}))
            kept.chmod(0o600)
        command = [sys.executable, "-m", "protoslice.cli", *(each.replace("URL", url) for each in given)]
        told = {"PATH": os.environ["PATH"], "XDG_CONFIG_HOME": str(folder), "PROTOSLICE_URL": url, **environment}
        ended = subprocess.run(command, env=told, capture_output=True, text=True, timeout=60)
        assert "secret" not in ended.stdout + ended.stderr

    return run


CLIENTS: Final[dict[str, tuple[Callable[[str, Path], None], dict[str, str]]]] = {
    "Client": (plain, ALL),
    "AsyncClient": (asynchronous, ALL),
    "fsspec": (file_system, ALL),
    "a pull": (pull, ALL),
    "a push": (small_push, ALL),
    "tus": (by_tus, ALL),
    "a verb with a token": (verb("ls", PROTOSLICE_TOKEN="secret"), BEARER),
    "a verb with a header": (verb("ls", PROTOSLICE_AUTHORIZATION="Bearer secret"), BEARER),
    "a verb of someone who logged in": (verb("ls"), BEARER),
    "a verb that changes": (verb("token", "create", "x", "--scope", "read", PROTOSLICE_TOKEN="secret"), BEARER),
}
"""Clients, and the secrets that the service itself is told."""


@pytest.mark.parametrize("name", CLIENTS)
def test_no_client_tells_another_origin(sites: tuple[Site, Site], tmp_path: Path, name: str) -> None:
    one, other = sites
    one.place = lambda: f"{other.url}/v1/tags"
    call, told = CLIENTS[name]
    with suppress(ProtosliceError):
        call(one.url, tmp_path)
    assert one.secrets()
    assert all(each == told for each in one.secrets()), "the service is told"
    assert other.seen or name == "a push", "a body that is used up is sent nowhere else"
    assert not any(other.secrets())


def test_a_source_is_told_no_secret_at_all(
    sites: tuple[Site, Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PROTOSLICE_TOKEN", "PROTOSLICE_AUTHORIZATION"):
        monkeypatch.setenv(name, "Bearer secret")
    monkeypatch.setenv("PROTOSLICE_URL", sites[0].url)
    one, other = sites
    one.place = lambda: f"{other.url}/m.onnx"
    with suppress(ProtosliceError):
        as_source(f"{one.url}/m.onnx")
    assert one.seen
    assert not any(one.secrets() + other.secrets())
