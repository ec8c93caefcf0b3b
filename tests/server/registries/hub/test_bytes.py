"""Bytes that a history takes: commits share the files that they do not change."""

from __future__ import annotations

import hashlib
from pathlib import Path
from random import Random

import httpx
import pytest
from tests.support.hub import header, send
from tests.support.serve import serve

from protoslice.ingest import sharing
from protoslice.ingest.sharing import LEAST_SHARED

FILES, COMMITS, SIZE = 36, 4, LEAST_SHARED


def test_commits_that_change_a_file_each_take_the_bytes_of_those_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Files count as large ones here, of which every one is shared, however many uploads they came by.
    monkeypatch.setattr(sharing, "HEAVY", SIZE)
    random = Random(16)
    with (
        serve(storage=tmp_path.as_uri()) as live,
        httpx.Client(base_url=live.url, timeout=60) as client,
    ):
        client.post("/api/repos/create", json={"organization": "ann", "name": "m"}).raise_for_status()
        push(client, {f"{number:03}.bin": random.randbytes(SIZE) for number in range(FILES)})
        changed = {}
        for _ in range(COMMITS):
            path = f"{random.randrange(FILES):03}.bin"
            changed[path] = random.randbytes(SIZE)
            push(client, {path: changed[path]})
        for path, data in changed.items():
            assert client.get(f"/ann/m/resolve/main/{path}").content == data
        assert len(client.get("/api/models/ann/m/tree/main").json()) == FILES
    stored = sum(each.stat().st_size for each in (tmp_path / "objects").rglob("*") if each.is_file())
    assert stored <= 1.05 * (FILES + COMMITS) * SIZE


def push(client: httpx.Client, files: dict[str, bytes]) -> None:
    """Send files by git-lfs, as clients send all large ones, and commit them."""
    named = {hashlib.sha256(data).hexdigest(): (path, data) for path, data in files.items()}
    wanted = [{"oid": oid, "size": len(data)} for oid, (_, data) in named.items()]
    body = {"operation": "upload", "transfers": ["basic"], "objects": wanted}
    told = client.post("/ann/m.git/info/lfs/objects/batch", json=body).raise_for_status().json()
    for each in told["objects"]:
        client.put(each["actions"]["upload"]["href"], content=named[each["oid"]][1]).raise_for_status()
    lines = [("lfsFile", {"path": path, "algo": "sha256", "oid": oid}) for oid, (path, _) in named.items()]
    send(client, "models/ann/m", header(), *lines).raise_for_status()
