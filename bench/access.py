"""Benchmark of credentials: 4 KiB ranges with a token, a JWT and a signed URL, beside an open service.

Each run is beside one of the open service, so that a ratio is of one moment. Needs Debian's `wrk`.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import httpx
from bench.service import MIB, Effort, requests_a_second
from bench.timing import Row
from bench.workers import CONNECTIONS, RANGE, spent
from joserfc import jwt
from joserfc.jwk import RSAKey

from bench import models

ISSUER = "https://issuer.example"
AUDIENCE = "protoslice"
_Speeds: TypeAlias = tuple[float, float]
TRUST = """
[[issuer]]
url = "{issuer}"
audience = "{audience}"
keys_file = "{keys}"

[[issuer.allow]]
claims = {{ repository = "acme/*" }}
space = "default"
scopes = ["read"]
"""


@dataclass(frozen=True, slots=True)
class Way:
    """A way of asking: the service's process, the URL, and the headers that `wrk` sends."""

    process: int
    url: str
    headers: tuple[str, ...] = ()


def access(folder: Path, scale: float) -> Iterator[Row]:
    """Rows about credentials."""
    if shutil.which("wrk") is None:
        raise SystemExit("install wrk first: Debian has it")
    path = folder / "access.pb"
    models.big_constants(path, max(4 * MIB, int(scale * (16 * MIB))))
    effort = Effort.at(scale)
    with ExitStack() as stack:
        open_one = stack.enter_context(_service(folder / "open", {"PROTOSLICE_AUTH": "open"}))
        trust, key = _trust(folder)
        asking = {"PROTOSLICE_AUTH": "tokens", "PROTOSLICE_ISSUERS": str(trust)}
        closed = stack.enter_context(_service(folder / "stores", asking))
        token = {"authorization": f"Bearer {_token(folder / 'stores')}"}
        for url, headers in ((open_one[0], {}), (closed[0], token)):
            put = f"{url}/v1/stores?type={models.GRAPH}"
            made = httpx.put(put, content=path.read_bytes(), headers=headers, timeout=60).json()
        target = f"/v1/stores/{made['id']}/files/{made['root']}"
        ways = _ways(open_one, closed, target, folder, key)
        beside = ways.pop("open")
        runs: dict[str, list[tuple[_Speeds, _Speeds]]] = {name: [] for name in ways}
        for _ in range(effort.runs):
            for name, way in ways.items():
                runs[name].append((_load(way, effort.seconds), _load(beside, effort.seconds)))
        yield from _rows(runs)


def _rows(runs: Mapping[str, list[tuple[_Speeds, _Speeds]]]) -> Iterator[Row]:
    """Rows of rate and of processor time; the bars are those of the rate."""
    for name, bar in (("a token", 0.9), ("a JWT seen before", 0.9), ("a signed URL", 0.8)):
        for what, at, form in (("rate", 0, "{:.0f}/s"), ("requests a processor second", 1, "{:.0f}")):
            ratio = statistics.median(mine[at] / theirs[at] for mine, theirs in runs[name])
            mine, theirs = (statistics.median(run[which][at] for run in runs[name]) for which in (0, 1))
            yield Row(f"4 KiB ranges with {name}, {what}", form.format(mine), form.format(theirs), ratio, bar)


def _load(way: Way, duration: int) -> _Speeds:
    """Requests a second, and requests for each processor second of the service."""
    before = spent(way.process)
    rate = requests_a_second(duration, way.url, RANGE, CONNECTIONS, *way.headers)
    return rate, rate * duration / max(0.01, spent(way.process) - before)


def _ways(open_one: tuple[str, int], closed: tuple[str, int], target: str, folder: Path, key: RSAKey) -> dict[str, Way]:
    """The ways of asking, each tried once."""
    token = _token(folder / "stores")
    said = {"path": target, "expires_seconds": 3600}
    url = httpx.post(f"{closed[0]}/v1/sign", json=said, headers={"authorization": f"Bearer {token}"}).json()["url"]
    parts = urlsplit(url)
    ways = {
        "open": Way(open_one[1], open_one[0] + target),
        "a token": Way(closed[1], closed[0] + target, ("-H", f"Authorization: Bearer {token}")),
        "a JWT seen before": Way(closed[1], closed[0] + target, ("-H", f"Authorization: Bearer {_jwt(key)}")),
        "a signed URL": Way(closed[1], f"{closed[0]}{parts.path}?{parts.query}"),
    }
    for way in ways.values():
        header = dict([way.headers[1].split(": ", 1)]) if way.headers else {}
        answer = httpx.get(way.url, headers={"range": RANGE, **header})
        assert answer.status_code == 206, answer.text
    return ways


def _trust(folder: Path) -> tuple[Path, RSAKey]:
    """A file of one trusted issuer, and the key that it signs with."""
    key = RSAKey.generate_key(2048, {"kid": "first", "use": "sig"})
    keys, trust = folder / "keys.json", folder / "issuers.toml"
    keys.write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    trust.write_text(TRUST.format(issuer=ISSUER, audience=AUDIENCE, keys=keys))
    return trust, key


def _jwt(key: RSAKey) -> str:
    """A JWT as a job of a CI system has it: some 1 000 characters."""
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "repo:acme/models:ref:refs/heads/main", "iat": now, "nbf": now}
    claims |= {"exp": now + 3600, "repository": "acme/models"} | {f"claim_{n}": f"some words {n}" for n in range(14)}
    return jwt.encode({"alg": "RS256", "kid": "first"}, claims, key)


def _token(storage: Path) -> str:
    """A token that may do everything, made in the storage."""
    command = [sys.executable, "-m", "protoslice.cli", "token", "create", "bench", "--scope", "admin", "--every-space"]
    done = subprocess.run([*command, "--storage", storage.as_uri()], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@contextmanager
def _service(storage: Path, settings: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Address and process of a service with settings."""
    environment = os.environ | {"PROTOSLICE_STORAGE": storage.as_uri(), **settings}
    command = [sys.executable, "-m", "protoslice.cli", "serve", "--port", "0"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        line = ""
        while not line.startswith("http"):
            line = process.stdout.readline().decode().strip()
            assert process.poll() is None
        yield line, process.pid
    finally:
        process.terminate()
        process.wait(30)
