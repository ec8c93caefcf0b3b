"""Benchmark of large reads from a bucket whose gateway delays each request by 20 ms.

The gateway is Versity's, which `make bench` builds with Go. The benchmark ends with a message if it is missing.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from os import SEEK_END
from pathlib import Path
from typing import Any

import httpx
import obstore
from bench.service import running_peer, running_service
from bench.timing import Row, pair
from obstore.store import S3Store
from tests.support.buckets import BUCKET, KEY_ID, SECRET, gateway
from tests.support.wire import Distance, far_away

from bench import models

MIB = 1 << 20
GATEWAY = Path(__file__).parent.parent / ".make" / "versitygw-v1.8.0"
FAR_SECONDS = 0.02
"""The delay, in seconds, that the distant bucket adds to each request."""
_FILLING_READS = 20
"""The most reads until the cache holds a whole file. The cache skips blocks that its disk is too slow for."""


def gateway_program() -> Path:
    """Return the path of the gateway's program; end with a message if it is missing."""
    if not GATEWAY.exists():
        raise SystemExit("build the gateway first: `sh tools/programs.sh versitygw` does, with Go")
    return GATEWAY


def bucket(folder: Path, scale: float) -> Iterator[Row]:
    """Compare reads of 64 MiB to 1 GiB with reads through a bare app and with reads by obstore."""
    with ExitStack() as stack:
        far = stack.enter_context(far_away(stack.enter_context(gateway(str(gateway_program()))), FAR_SECONDS))
        keys = {"access_key_id": KEY_ID, "secret_access_key": SECRET}
        options: Any = {"endpoint": far.endpoint, "region": "us-east-1", **keys}
        storage = {
            "PROTOSLICE_STORAGE": f"s3://{BUCKET}/stores",
            "PROTOSLICE_DATABASE": f"sqlite:///{folder}/stores.sqlite",
            # A service signs no bodies over TLS, which guards them. The gateway speaks plain HTTP, so this is set here.
            "PROTOSLICE_STORAGE_OPTIONS": json.dumps(options | {"allow_http": "true", "unsigned_payload": "true"}),
        }
        ours = stack.enter_context(running_service(folder / "unused", storage))
        bare = stack.enter_context(running_peer(folder / "unused", {"PEER_BUCKET": json.dumps([BUCKET, options])}))
        store = S3Store(BUCKET, config=options, client_options={"allow_http": True})
        for mebibytes in (64, 512, 1024):
            path = folder / f"{mebibytes}.pb"
            models.big_constants(path, int(scale * (mebibytes * MIB)))
            obstore.put(store, path.name, path)
            view = _uploaded(ours, path)
            yield from _reads(
                view, f"{bare}/bucket/{path.name}", partial(_straight, store, path.name), mebibytes, scale
            )
        far.reset()
        _read(view, 1)
        # The read may also look for the store's manifest, which another replica may have removed; only objects count.
        asked = _object_reads(far)
        yield Row(f"{mebibytes} MiB from a bucket: objects read", str(asked), "1", float(asked), 1, False)
        yield _upload(ours, bare, path)
        cached = storage | {
            "PROTOSLICE_STORAGE": f"s3://{BUCKET}/cached",
            "PROTOSLICE_DATABASE": f"sqlite:///{folder}/cached.sqlite",
            "PROTOSLICE_CACHE_DIRECTORY": str(folder / "cache"),
        }
        kept = stack.enter_context(running_service(folder / "unused", cached))
        local = stack.enter_context(running_service(folder / "local"))
        for mebibytes in (64, 1024):
            yield _cached(far, kept, local, folder / f"{mebibytes}.pb")


def _reads(view: str, bare: str, straight: Callable[[int], object], mebibytes: int, scale: float) -> Iterator[Row]:
    for readers in (1, 4):
        peers: tuple[tuple[str, Callable[[], object], float], ...] = (
            ("a bare app", partial(_read, bare, readers), 0.9),
            ("obstore", partial(straight, readers), 0.5),
        )
        for what, peer, target in peers:
            mine, theirs = pair(partial(_read, view, readers), peer)
            ours, other = (f"{readers * scale * mebibytes / seconds:.0f} MiB/s" for seconds in (mine, theirs))
            what = f"{readers} × {mebibytes} MiB from 20 ms away, speed against {what}"
            yield Row(what, ours, other, theirs / mine, target)


def _upload(ours: str, bare: str, path: Path) -> Row:
    """Compare an upload of new content with an upload through a bare app that writes a multipart upload."""
    numbers = count()

    def send(url: str) -> None:
        number = next(numbers)
        with path.open("r+b") as file:  # changes the last constant, so that each upload is a new store
            file.seek(-1000, SEEK_END)
            file.write(number.to_bytes(8, "little"))
        # A replaced object may never reach the disk, so the bare app gets a new key each time too.
        command = ["curl", "-sS", "-f", "-o", "/dev/null", "-T", str(path), url.format(number)]
        if subprocess.run(command).returncode:
            raise SystemExit(f"curl could not send to {url}")

    mine, theirs = pair(
        partial(send, f"{ours}/v1/stores?type=tensorflow.GraphDef"),
        partial(send, f"{bare}/bucket/sent-{{}}.pb"),
        runs=3,
    )
    at, other = (f"{path.stat().st_size / MIB / seconds:.0f} MiB/s" for seconds in (mine, theirs))
    return Row("upload to a bucket 20 ms away, speed against a bare app", at, other, theirs / mine, 0.9)


def _cached(far: Distance, kept: str, local: str, path: Path) -> Row:
    """Compare reads from a cache directory with reads of a service whose storage is a directory."""
    views = [_uploaded(service, path) for service in (kept, local)]
    for _ in range(_FILLING_READS):
        far.reset()
        _read(views[0], 1)
        if not _object_reads(far):
            break
    else:
        raise SystemExit(f"the cache does not fill: {far.seen}")
    mine, theirs = pair(partial(_read, views[0], 1), partial(_read, views[1], 1))
    size = path.stat().st_size / MIB
    at, other = (f"{size / seconds:.0f} MiB/s" for seconds in (mine, theirs))
    return Row(f"{size:.0f} MiB from the cache of a bucket, speed against a directory", at, other, theirs / mine, 0.9)


def _object_reads(far: Distance) -> int:
    return sum(number for request, number in far.seen.items() if request.startswith("GET") and "/objects" in request)


def _uploaded(service: str, path: Path) -> str:
    """Upload a file as a new store, and return the file's URL."""
    with path.open("rb") as body:
        made = httpx.put(f"{service}/v1/stores?type=tensorflow.GraphDef", content=body, timeout=600).json()
    return f"{service}/v1/stores/{made['id']}/files/{made['root']}"


def _read(url: str, readers: int) -> None:
    """Read all of a URL, `readers` times in parallel."""
    command = ["curl", "-sS", "-f", "-o", "/dev/null", url]
    running = [subprocess.Popen(command) for _ in range(readers)]
    if any([process.wait() for process in running]):
        raise SystemExit(f"curl could not read {url}")


def _straight(store: S3Store, key: str, readers: int) -> None:
    async def one() -> None:
        async for _ in (await obstore.get_async(store, key)).stream(min_chunk_size=MIB):
            pass

    async def all_of_them() -> None:
        await asyncio.gather(*(one() for _ in range(readers)))

    asyncio.run(all_of_them())
