"""git-lfs: files are pushed from one clone and pulled into another."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Final

import httpx
from tests.clients.running import Command, good, installed, refused, serving

DATA: Final = bytes(range(256)) * 8192


def run(folder: Path) -> str:
    """Push and pull with tokens, then fail for a file that nobody pushed."""
    installed("git", "git-lfs")
    work, other = folder / "work", folder / "other"
    with serving(folder, closed=True) as service:
        headers = {"authorization": f"Bearer {service.token}"}
        httpx.post(f"{service.url}/api/repos/create", json={"name": "team/lfs"}, headers=headers).raise_for_status()
        reader = httpx.post(f"{service.url}/v1/tokens", json={"name": "r", "scopes": ["read"]}, headers=headers)
        credentials = folder / ".git-credentials"
        credentials.write_text(f"http://robot:{service.token}@{service.host}\n")

        def git(at: Path, *arguments: Command) -> str:
            return good("git", "-C", at, *arguments, folder=folder, env={"GIT_TERMINAL_PROMPT": "0"})

        git(folder, "init", "--quiet", "--bare", "elsewhere")
        for at in (work, other):
            git(folder, "clone", "--quiet", "elsewhere", at)
            for name, value in (("credential.helper", "store"), ("user.name", "x"), ("user.email", "x@example.com"),
                                ("lfs.url", f"{service.url}/team/lfs.git/info/lfs")):  # fmt: skip
                git(at, "config", name, value)
            git(at, "lfs", "install", "--local")
        git(work, "checkout", "--quiet", "-b", "main")
        git(work, "lfs", "track", "*.bin")
        (work / "model.bin").write_bytes(DATA)
        git(work, "add", ".")
        git(work, "commit", "--quiet", "--message", "x")
        git(work, "push", "--quiet", "origin", "main")
        credentials.write_text(f"http://robot:{reader.json()['token']}@{service.host}\n")
        git(other, "pull", "--quiet", "origin", "main")
        assert (other / "model.bin").read_bytes() == DATA
        assert git(other, "lfs", "fsck").strip().endswith("OK")
        (other / "never.bin").write_bytes(b"never pushed")
        git(other, "add", ".")
        git(other, "commit", "--quiet", "--message", "y")
        shutil.rmtree(other / ".git/lfs/objects")
        oid = hashlib.sha256(b"never pushed").hexdigest()
        refused("push it first", "git", "-C", other, "lfs", "fetch", "origin", "HEAD", folder=folder)
        assert not list((other / ".git/lfs/objects").rglob(oid))
    return good("git", "lfs", "version", folder=folder).strip()
