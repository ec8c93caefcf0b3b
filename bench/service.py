"""Benchmark of the service against its peers over loopback. `wrk` sends the requests, and the two of a pair take turns.

The benchmark needs Debian's `wrk` and `nginx-light`, and ends with a message if one is missing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
from bench.timing import Row, seconds

from bench import models

MIB = 1 << 20
CURL = ["curl", "-sS", "-f", "-H", "Expect:", "-T"]


@dataclass(frozen=True)
class Effort:
    """The number of runs that a median is taken of, and their length. A scaled-down benchmark takes one short run."""

    runs: int = 5
    seconds: int = 3

    @classmethod
    def at(cls, scale: float) -> Effort:
        """Return the effort for data of `scale`; 1 is full size."""
        return cls() if scale >= 1 else cls(1, 1)


def service(folder: Path, scale: float) -> Iterator[Row]:
    """Measure all rows about the service."""
    missing = [tool for tool in ("wrk", "nginx") if program(tool) is None]
    if missing:
        raise SystemExit(f"install {' and '.join(missing)} first: Debian has them as wrk and nginx-light")
    path = folder / "big.pb"
    if not path.exists():
        models.big_constants(path, int(scale * (1 << 30)))
    with ExitStack() as stack:
        ours = stack.enter_context(running_service(folder / "stores"))
        peer = stack.enter_context(running_peer(path))
        nginx = stack.enter_context(nginx_over(folder, path))
        chunks = f"{ours}/v1/stores/{_upload(ours, path)}/chunks"
        chunk = f"{chunks}/{httpx.get(chunks).json()['items'][-1]['index']}"  # a small model has only one chunk
        yield from _ranges(chunk, peer, nginx, scale)
        yield from _uploads(folder, ours, peer, scale)
        yield from _first_bytes(folder, ours, scale)
        yield _crowd(chunk, 60 if scale == 1 else 1)


def _ranges(chunk: str, peer: str, nginx: str, scale: float) -> Iterator[Row]:
    effort, large = Effort.at(scale), int(64 * MIB * min(1.0, scale))
    wrk = partial(requests_a_second, effort.seconds)
    inside = min(MIB, large)
    wide, narrow = f"bytes=65536-{65535 + large}", f"bytes={inside}-{inside + 4095}"
    for what, other, target in (("nginx", f"{nginx}/big.pb", 1.2), ("FileResponse", f"{peer}/file", 8)):
        mine, theirs = _pair(effort.runs, partial(wrk, chunk, wide, 4), partial(wrk, other, wide, 4))
        name = f"64 MiB ranges, 4 connections, against {what}"
        yield Row(name, _speed(mine * large), _speed(theirs * large), mine / theirs, target)
    # The bare app reads and checks nothing: it shows the most that this client can get from one worker.
    mine, theirs = _pair(effort.runs, partial(wrk, chunk, wide, 4), partial(wrk, f"{peer}/large", wide, 4))
    mine, theirs = mine * large, theirs * 64 * MIB
    yield Row("64 MiB ranges, 4 connections, against a bare app", _speed(mine), _speed(theirs), mine / theirs, 0.5)
    for what, other, target in (("a bare app", f"{peer}/small", 0.8), ("FileResponse", f"{peer}/file", 15)):
        mine, theirs = _pair(effort.runs, partial(wrk, chunk, narrow, 16), partial(wrk, other, narrow, 16))
        name = f"4 KiB ranges, 16 connections, against {what}"
        yield Row(name, f"{mine:.0f}/s", f"{theirs:.0f}/s", mine / theirs, target)


def _uploads(folder: Path, ours: str, peer: str, scale: float) -> Iterator[Row]:
    size = int(scale * (2 << 30))
    body = folder / "body"
    times: tuple[list[float], list[float]] = ([], [])
    for run in range(3):
        # Every body differs, because the service does not write content again that it has.
        head = b"\x0a\x04" + b"\x0a\x02%02d" % run
        with body.open("wb") as file:
            for piece in _stream(head, size):
                file.write(piece)
        os.sync()
        for kept, url in ((times[0], f"{ours}/v1/stores?type=tensorflow.GraphDef"), (times[1], f"{peer}/upload")):
            start = time.perf_counter()
            done = subprocess.run(
                ["curl", "-sS", "-f", "-H", "Expect:", "-T", str(body), url], capture_output=True, check=True
            )
            kept.append(time.perf_counter() - start)
            if url.startswith(ours):
                httpx.delete(f"{ours}/v1/stores/{json.loads(done.stdout)['id']}").raise_for_status()
    body.unlink()
    mine, theirs = (statistics.median(kept) for kept in times)
    yield Row("upload of 2 GiB, time against a bare app's", seconds(mine), seconds(theirs), mine / theirs, 1.15, False)


def _stream(head: bytes, size: int) -> Iterator[bytes]:
    """Yield a GraphDef of about `size` bytes that begins with `head`."""
    yield head
    yield from models.stream_of_constants(max(1, size >> 29), min(size, 1 << 29))


def _first_bytes(folder: Path, ours: str, scale: float) -> Iterator[Row]:
    """Measure the time to the first byte of a merged subtree of 10 MB, in a large store and in a small one."""
    stores = []
    for count in (16, 1):
        body = folder / "store"
        with body.open("wb") as file:
            for piece in models.stream_of_constants(1, 10_000_000):
                file.write(piece)
            for piece in models.stream_of_constants(count, int(scale * (512 << 20))):
                file.write(piece)
        stores.append(_upload(ours, body))
        body.unlink()
    with httpx.Client() as client:

        def first_byte(store: str) -> float:
            start = time.perf_counter()
            with client.stream("GET", f"{ours}/v1/stores/{store}/merge", params={"path": "node[0]"}) as answer:
                # Raw pieces: if asked for pieces of one byte, httpx would spend most of the time on cutting.
                next(answer.iter_raw())
                return time.perf_counter() - start

        samples = [[first_byte(store) for store in stores] for _ in range(60)][10:]
    large, small = (statistics.median(column) for column in zip(*samples, strict=True))
    yield Row(
        "first byte of a 10 MB subtree, of 8 GiB against of 512 MiB",
        seconds(large),
        seconds(small),
        large / small,
        1.2,
        False,
    )
    yield Row("  and in itself", seconds(large), "10 ms", large / 0.01, 1, False)


def _crowd(chunk: str, duration: int) -> Row:
    """Measure the share of failed requests with 256 readers at once."""
    done = _run_wrk(chunk, "bytes=1048576-1114111", 256, duration, "--latency")
    latency = re.search(r"99%\s+(\S+)", done)
    total = re.search(r"(\d+) requests in", done)
    errors = re.findall(r"(?:connect|read|write|timeout|responses:) (\d+)", done)
    share = sum(map(int, errors)) / max(1, int(total[1]) if total else 1)
    what = f"256 readers of 64 KiB for {duration} s, p99 {latency[1] if latency else '?'}: failures"
    return Row(what, f"{share:.2g}", "none", share, 0, False)


def _pair(runs: int, ours: Callable[[], float], peer: Callable[[], float]) -> tuple[float, float]:
    """Return the medians of both; their runs take turns."""
    values = [(ours(), peer()) for _ in range(runs)]
    return statistics.median(a for a, _ in values), statistics.median(b for _, b in values)


def requests_a_second(seconds: int, url: str, byte_range: str, connections: int, *more: str) -> float:
    """Return the requests that `wrk` gets answered per second; `more` are further options of `wrk`."""
    told = _run_wrk(url, byte_range, connections, seconds, *more)
    if failed := re.search(r"Non-2xx or 3xx responses: \d+", told):
        raise SystemExit(f"{url} did not answer all: {failed[0]}")
    found = re.search(r"Requests/sec:\s+([\d.]+)", told)
    return float(found[1]) if found else 0.0


def _run_wrk(url: str, byte_range: str, connections: int, duration: int, *more: str) -> str:
    command = [
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{duration}s",
        "--timeout",
        "20s",
        "-H",
        f"Range: {byte_range}",
        *more,
        url,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _speed(bytes_a_second: float) -> str:
    return f"{bytes_a_second / 1e9:.2f} GB/s"


def _upload(ours: str, path: Path) -> str:
    command = [
        "curl",
        "-sS",
        "-f",
        "-H",
        "Expect:",
        "-T",
        str(path),
        f"{ours}/v1/stores?filename=graph.pb&type={models.GRAPH}",
    ]
    return str(json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["id"])


@contextmanager
def running_service(storage: Path, settings: dict[str, str] | None = None) -> Iterator[str]:
    """Run a service over a folder in another process, and yield its address; `settings` override the environment."""
    environment = os.environ | {"PROTOSLICE_STORAGE": storage.as_uri()} | (settings or {})
    command = [sys.executable, "-m", "protoslice.cli", "serve", "--port", "0"]
    with running(command, environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.stdout.readline().decode().strip()


@contextmanager
def running_peer(path: Path, settings: dict[str, str] | None = None) -> Iterator[str]:
    """Run the bare apps over a file, and yield their address."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "peers:app", "--port", str(port), "--no-access-log", "--loop", "uvloop"]
    environment = os.environ | {"PEER_FILE": str(path)} | (settings or {})
    with running([*command, "--lifespan", "off", "--log-level", "error"], environment):
        wait_for(port)
        yield f"http://127.0.0.1:{port}"


@contextmanager
def nginx_over(folder: Path, path: Path) -> Iterator[str]:
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log /dev/null; events {{}}\n"
        f"http {{ access_log off; sendfile on; server {{ listen 127.0.0.1:{port}; root {path.parent}; }} }}\n"
    )
    os.chmod(folder, 0o755)
    with running([str(program("nginx")), "-c", str(config), "-g", "user root;"], dict(os.environ)):
        wait_for(port)
        yield f"http://127.0.0.1:{port}"


@contextmanager
def running(
    command: list[str], environment: dict[str, str], stdout: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process until the block ends."""
    here = Path(__file__).parent
    process = subprocess.Popen(command, env=environment, cwd=here, stdout=stdout, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def program(name: str) -> str | None:
    """Return the path of an installed program; None when it is not installed."""
    return shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")


def free_port() -> int:
    """Return a loopback port that no program listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, seconds: int = 10) -> None:
    """Wait until a program listens on a port; exit after `seconds` without one."""
    for _ in range(20 * seconds):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port}")
