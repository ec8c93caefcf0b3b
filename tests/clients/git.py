"""git clones and pulls a repository, and all data equal git's own results; git-lfs pushes and pulls files."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Final

import httpx
from tests.clients.running import Command, Service, good, programs, refused, serving
from tests.support.hub import commit, header, send

LARGE: Final = 20 << 20
_DATA: Final = bytes(range(256)) * 8192


def run(folder: Path) -> str:
    """Clone from an open and from a closed service."""
    programs("git", "git-lfs")
    for closed in (False, True):
        home = folder / f"home-{closed}"
        home.mkdir()
        with serving(folder, closed=closed) as service:
            _clone(home, service)
    return f"{good('git', '--version', folder=folder).strip()}, {good('git', 'lfs', 'version', folder=folder).strip()}"


def _clone(home: Path, service: Service) -> None:
    def git(*arguments: Command) -> str:
        return good("git", *arguments, folder=home, env={"GIT_TERMINAL_PROMPT": "0"})

    git("config", "--global", "user.name", "x")
    git("lfs", "install")
    headers = {"authorization": f"Bearer {service.token}"} if service.token else {}
    client = httpx.Client(base_url=service.url, headers=headers, timeout=60)
    client.post("/api/repos/create", json={"organization": "ann", "name": "m"}).raise_for_status()
    large = os.urandom(LARGE)
    files = {
        "README.md": b"# A model\n", "sub/config.json": b"{}", "sub/empty.bin": b"", "sub/deep/small.bin": bytes(300),
        'odd "[*] name.json': b"j" * 100_000, ".gitattributes": b"*.md text\n",
    }  # fmt: skip
    commit(client, "models/ann/m", files).raise_for_status()
    _send(client, "large.bin", large)
    if service.token:
        refused("could not read Username", "git", "clone", f"{service.url}/ann/m", "no", folder=home,
                env={"GIT_TERMINAL_PROMPT": "0"})  # fmt: skip
        reader = client.post("/v1/tokens", json={"name": "r", "scopes": ["read"]}).json()["token"]
        (home / ".git-credentials").write_text(f"http://robot:{reader}@{service.host}\n")
        git("config", "--global", "credential.helper", "store")
    git("clone", "--quiet", f"{service.url}/ann/m")
    _same(home / "m", files | {"large.bin": large})
    assert git("-C", "m", "status", "--porcelain") == ""
    assert "large.bin" in git("-C", "m", "lfs", "ls-files", "--name-only").splitlines()
    changed = {"README.md": b"# Another\n", "sub/deep/small.bin": os.urandom(300)}
    commit(client, "models/ann/m", changed).raise_for_status()
    client.post("/api/models/ann/m/tag/main", json={"tag": "v1"}).raise_for_status()
    client.post("/api/models/ann/m/branch/feat%2Fx", json={}).raise_for_status()
    git("-C", "m", "pull", "--quiet", "--tags")
    _same(home / "m", files | changed | {"large.bin": large})
    assert git("-C", "m", "status", "--porcelain") == ""
    assert git("-C", "m", "rev-list", "--count", "v1").strip() == "3"
    assert git("-C", "m", "rev-parse", "v1") == git("-C", "m", "rev-parse", "origin/feat/x")
    git("-C", "m", "checkout", "--quiet", "HEAD~1")
    _same(home / "m", files | {"large.bin": large})
    git("-C", "m", "fsck", "--strict", "--full")
    git("-C", "m", "lfs", "fsck")
    id = git("-C", "m", "rev-parse", "v1").strip()
    assert client.get(f"/ann/m/resolve/{id}/README.md").content == changed["README.md"]
    refused("git push is not supported", "git", "-C", "m", "push", "origin", "HEAD:main", folder=home)
    refused("not found", "git", "clone", f"{service.url}/ann/none", folder=home)
    if service.token:
        _clone_from_space(home, service, client, files)


def _clone_from_space(home: Path, service: Service, client: httpx.Client, files: dict[str, bytes]) -> None:
    client.put("/v1/spaces/red").raise_for_status()
    client.post("/spaces/red/api/repos/create", json={"organization": "ann", "name": "m"}).raise_for_status()
    with httpx.Client(base_url=f"{service.url}/spaces/red", headers=client.headers) as red:
        commit(red, "models/ann/m", files).raise_for_status()
    url = f"{service.host}/spaces/red/ann/m"
    refused("not found", "git", "clone", f"http://{url}", "hidden", folder=home)  # the token is for another space
    good("git", "clone", "--quiet", f"http://robot:{service.token}@{url}", "red", folder=home)
    _same(home / "red", files)


def _send(client: httpx.Client, path: str, data: bytes) -> None:
    """Commit a file by LFS."""
    wanted = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data)}
    body = {"operation": "upload", "transfers": ["basic", "multipart"], "objects": [wanted]}
    (told,) = client.post("/ann/m.git/info/lfs/objects/batch", json=body).json()["objects"]
    httpx.put(told["actions"]["upload"]["href"], content=data, timeout=60).raise_for_status()
    file = ("lfsFile", {"path": path, "algo": "sha256", **wanted})
    send(client, "models/ann/m", header(), file).raise_for_status()


def _same(folder: Path, files: dict[str, bytes]) -> None:
    for path, data in files.items():
        if path != ".gitattributes":
            assert (folder / path).read_bytes() == data, path


def run_lfs(folder: Path) -> str:
    """Push and pull with tokens, then fail for a file that was never pushed."""
    programs("git", "git-lfs")
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
        (work / "model.bin").write_bytes(_DATA)
        git(work, "add", ".")
        git(work, "commit", "--quiet", "--message", "x")
        git(work, "push", "--quiet", "origin", "main")
        credentials.write_text(f"http://robot:{reader.json()['token']}@{service.host}\n")
        git(other, "pull", "--quiet", "origin", "main")
        assert (other / "model.bin").read_bytes() == _DATA
        assert git(other, "lfs", "fsck").strip().endswith("OK")
        (other / "never.bin").write_bytes(b"never pushed")
        git(other, "add", ".")
        git(other, "commit", "--quiet", "--message", "y")
        shutil.rmtree(other / ".git/lfs/objects")
        oid = hashlib.sha256(b"never pushed").hexdigest()
        refused("push it first", "git", "-C", other, "lfs", "fetch", "origin", "HEAD", folder=folder)
        assert not list((other / ".git/lfs/objects").rglob(oid))
    return good("git", "lfs", "version", folder=folder).strip()
