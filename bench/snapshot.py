"""Benchmark of `snapshot_download`: 2 GiB by Hugging Face's own client, beside nginx.

The peer is nginx alone: it serves the files from a folder, and what this service answered to the two calls before them
as they are. The service compares each block that it serves with its checksum. Both keep the files in memory, and the
client writes into it; rounds of the two take turns.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import httpx
from bench.oras import MEMORY
from bench.service import free_port, program, running, running_service, wait_for
from bench.timing import Row, seconds
from tests.hub import BESIDE, QUIET, VERSIONS
from tests.support.environments import is_made, python_of
from tests.support.hub import header, send

CLIENT: Final = f"huggingface_hub=={VERSIONS[-1]}"
REPOSITORY: Final = "bench/model"
SIZE: Final = 2 << 30
SHARES: Final = (8, *[1] * 8)
"""Sixteenths of the size that the files have."""
ROUNDS: Final = 3
_NGINX: Final = """daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log /dev/null; events {{}}
http {{ access_log off; sendfile on; default_type application/octet-stream;
  server {{ listen 127.0.0.1:{port};
    location = /api/models/{name}/revision/main {{ default_type application/json; alias {folder}/revision; }}
    location = /api/models/{name}/tree/{commit} {{ default_type application/json; alias {folder}/tree; }}
    location /{name}/resolve/{commit}/ {{ alias {folder}/files/; add_header X-Repo-Commit {commit}; }}
  }} }}
"""


def snapshot(folder: Path, scale: float) -> Iterator[Row]:
    """The row about `snapshot_download`."""
    nginx = program("nginx")
    if nginx is None:
        raise SystemExit("install nginx first: Debian has it as nginx-light")
    if not is_made(CLIENT, *BESIDE):
        raise SystemExit("make the client's environment first: python -m tests.hub does")
    with TemporaryDirectory(prefix="protoslice-snapshot-", dir=MEMORY) as memory:
        rounds = _measured(nginx, Path(memory), size := max(1 << 20, int(SIZE * scale)), ROUNDS if scale >= 1 else 1)
    mine, theirs = map(statistics.median, zip(*rounds, strict=True))
    yield Row(
        f"{size >> 20} MiB by snapshot_download, against nginx", seconds(mine), seconds(theirs), theirs / mine, 0.9
    )


def _measured(nginx: str, folder: Path, size: int, rounds: int) -> list[list[float]]:
    """Seconds of each round, ours first, with everything in a folder."""
    files, cache = folder / "files", folder / "cache"
    files.mkdir()
    cache.mkdir()
    for number, share in enumerate(SHARES):
        _write(files / f"{number}.bin", size * share // sum(SHARES), number)
    with ExitStack() as stack:
        ours = stack.enter_context(running_service(folder / "stores"))
        _push(ours, files)
        peer = stack.enter_context(_peer(nginx, folder, ours))
        script = str(Path(__file__).with_name("snapshot_client.py"))
        command = [str(python_of(CLIENT, *BESIDE)), script, REPOSITORY, str(cache), ours, peer]
        environment = os.environ | QUIET | {"HF_HOME": f"{folder}/hf"}
        client = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        )
        measured = [_round(client, files) for _ in range(1 + rounds)][1:]  # the first one warms up
        assert client.stdin is not None
        client.stdin.close()
    return measured


def _round(client: subprocess.Popen[bytes], files: Path) -> list[float]:
    """Seconds of ours and of the peer; ends the program when a download lacks bytes."""
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(b"\n")
    client.stdin.flush()
    told = json.loads(client.stdout.readline())
    size = sum(each.stat().st_size for each in files.iterdir())
    if any(came != size for _, came in told):
        raise SystemExit(f"a download had other bytes than the {size} that were pushed")
    return [took for took, _ in told]


def _write(path: Path, size: int, mark: int) -> None:
    """Write bytes that no two files share."""
    with path.open("wb") as file:
        block = os.urandom(1 << 20)
        for number in range(-(-size // len(block))):
            file.write((mark.to_bytes(2, "little") + number.to_bytes(8, "little") + block[10:])[: size - file.tell()])
    # The entity tags of nginx are made of time and size, and the client fetches files of one tag once.
    os.utime(path, (mark, mark))


def _push(url: str, files: Path) -> None:
    """Make a repository of the files, each of which is sent by git-lfs."""
    with httpx.Client(base_url=url, timeout=120) as client:
        organization, name = REPOSITORY.split("/")
        client.post("/api/repos/create", json={"organization": organization, "name": name}).raise_for_status()
        paths = sorted(files.iterdir())
        digests = [_digest(path) for path in paths]
        wanted = [{"oid": oid, "size": path.stat().st_size} for oid, path in zip(digests, paths, strict=True)]
        body = {"operation": "upload", "transfers": ["basic"], "objects": wanted}
        told = client.post(f"/{REPOSITORY}.git/info/lfs/objects/batch", json=body).raise_for_status().json()
        for each, path in zip(told["objects"], paths, strict=True):
            with path.open("rb") as file:
                client.put(each["actions"]["upload"]["href"], content=file).raise_for_status()
        named = [
            ("lfsFile", {"path": path.name, "algo": "sha256", "oid": oid})
            for oid, path in zip(digests, paths, strict=True)
        ]
        send(client, f"models/{REPOSITORY}", header(), *named).raise_for_status()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _peer(nginx: str, folder: Path, ours: str) -> Iterator[str]:
    """The address of an nginx that has the files and the answers of this service to two calls."""
    api, port = f"{ours}/api/models/{REPOSITORY}", free_port()
    revision = httpx.get(f"{api}/revision/main").raise_for_status()
    commit = revision.json()["sha"]
    (folder / "revision").write_bytes(revision.content)
    (folder / "tree").write_bytes(httpx.get(f"{api}/tree/{commit}?recursive=true").raise_for_status().content)
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(folder=folder, port=port, name=REPOSITORY, commit=commit))
    os.chmod(folder, 0o755)
    with running([nginx, "-c", str(config), "-g", "user root;"], dict(os.environ)):
        wait_for(port)
        yield f"http://127.0.0.1:{port}"
