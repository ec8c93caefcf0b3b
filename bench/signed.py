"""Benchmark of ranges by signed S3 requests against the same ranges with a bearer token, from one service.

Each request reads another range, so the service must verify each signature. The benchmark needs Debian's `wrk`.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import httpx
from bench.service import MIB, Effort, program, requests_a_second, running_service
from bench.timing import Row
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from bench import models

_EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
_ROLLS = 2048
_SCRIPT = """
local requests = {}
function init()
  for line in io.lines("%s") do requests[#requests + 1] = wrk.format("GET", nil, load("return " .. line)()) end
end
local at = 0
function request() at = at %% #requests + 1; return requests[at] end
"""


def signed(folder: Path, scale: float) -> Iterator[Row]:
    """Measure all rows about signed requests."""
    if program("wrk") is None:
        raise SystemExit("install wrk first: Debian has it")
    path, storage = folder / "big.pb", folder / "stores"
    models.big_constants(path, int(scale * (256 * MIB)) + 2 * MIB)
    with running_service(storage, {"PROTOSLICE_AUTH": "tokens"}) as url:
        token = _token(storage)
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=url, headers=headers, timeout=600) as client, path.open("rb") as body:
            store = client.put("/v1/stores?filename=graph.pb&type=tensorflow.GraphDef", content=body).json()["id"]
            keys = client.post("/v1/s3-keys").json()
        sign = partial(_signed, Credentials(keys["access_key_id"], keys["secret_access_key"]))
        rest, s3 = f"{url}/v1/stores/{store}/files/graph.pb", f"{url}/s3/default/stores/{store}/graph.pb"
        for name, size, connections, target in (("4 KiB", 4096, 16, 0.6), ("64 MiB", int(64 * MIB * scale), 4, 0.95)):
            drawn = random.Random(7)
            starts = [drawn.randrange(path.stat().st_size - size) for _ in range(_ROLLS if size == 4096 else 8)]
            ranges = [f"bytes={start}-{start + size - 1}" for start in starts]
            ours: list[float] = []
            theirs: list[float] = []
            effort = Effort.at(scale)
            for _ in range(effort.runs):  # signed again each time, because a signature is valid for fifteen minutes
                for kept, place, wanted in (
                    (ours, s3, [sign(s3, each) for each in ranges]),
                    (theirs, rest, [{**headers, "Range": each} for each in ranges]),
                ):
                    script = _script(folder, wanted)
                    kept.append(requests_a_second(effort.seconds, place, ranges[0], connections, "-s", str(script)))
            mine, peer = statistics.median(ours), statistics.median(theirs)
            what = f"{name} ranges, {connections} connections, signed against a bearer token"
            yield Row(what, _speed(mine * size), _speed(peer * size), mine / peer, target)


def _speed(bytes_a_second: float) -> str:
    return f"{bytes_a_second / 1e6:.1f} MB/s"


def _token(storage: Path) -> str:
    """Return a new token with all rights."""
    command = [sys.executable, "-m", "protoslice.cli", "token", "create", "bench", "--every-space"]
    scopes = [word for scope in ("admin", "read", "write") for word in ("--scope", scope)]
    done = subprocess.run(
        [*command, *scopes, "--storage", storage.as_uri()], capture_output=True, text=True, check=True
    )
    return done.stdout.split()[-1]


def _signed(keys: Credentials, url: str, byte_range: str) -> Mapping[str, str]:
    request = AWSRequest("GET", url, headers={"Range": byte_range, "X-Amz-Content-SHA256": _EMPTY})
    S3SigV4Auth(keys, "s3", "us-east-1").add_auth(request)
    return dict(request.headers)


def _script(folder: Path, wanted: Sequence[Mapping[str, str]]) -> Path:
    """Return a `wrk` script that sends one request with each of these headers, in turn."""
    lines, script = folder / "headers", folder / "signed.lua"
    lines.write_text("".join(_table(each) + "\n" for each in wanted))
    script.write_text(_SCRIPT % lines)
    return script


def _table(headers: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"[{json.dumps(name)}] = {json.dumps(text)}" for name, text in headers.items()) + "}"
