"""Benchmark of `serve --workers 2` against one worker: requests per second, and processor time per request.

Client and service share the machine. The target is therefore the service's share of all processors that are idle or
that the service uses. The benchmark needs Debian's `wrk`.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from bench.service import MIB, Effort, requests_a_second
from bench.timing import Row, seconds

from bench import models

RANGE = "bytes=1048576-1052671"
CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class Load:
    """The requests per second, the service's processor seconds per request, and the client's and idle processors."""

    rate: float
    cost: float
    client: float
    idle: float


def workers(folder: Path, scale: float) -> Iterator[Row]:
    """Measure all rows about several workers."""
    if shutil.which("wrk") is None:
        raise SystemExit("install wrk first: Debian has it")
    path = folder / "workers.pb"
    models.big_constants(path, max(4 * MIB, int(scale * (64 * MIB))))
    effort = Effort.at(scale)
    with ExitStack() as stack:
        services = [stack.enter_context(_service(folder / "stores", number)) for number in (1, 2)]
        body = path.read_bytes()
        made = httpx.put(f"{services[0][0]}/v1/stores?type={models.GRAPH}", content=body, timeout=60).json()
        runs: list[list[Load]] = [[], []]
        for _ in range(effort.runs):
            for (url, process), kept in zip(services, runs, strict=True):
                kept.append(_load(f"{url}/v1/stores/{made['id']}/files/{made['root']}", process, effort.seconds))
    one, two = (_median(kept) for kept in runs)
    what = f"4 KiB ranges, {CONNECTIONS} connections, 2 workers against 1"
    yield Row(what, f"{two.rate:.0f}/s", f"{one.rate:.0f}/s", two.rate / one.rate, 1.2)
    yield Row("  processor time of a request", seconds(two.cost), seconds(one.cost), two.cost / one.cost, 1.25, False)
    used = two.rate * two.cost
    # Other work takes processors that no number of workers can use: a run next to much other work shows little.
    other = (os.cpu_count() or 1) - used - two.client - two.idle
    what = "  processors that 2 workers use, of those and the idle ones"
    left = f"{used + two.idle:.2f} (client {two.client:.2f}, other work {other:.2f})"
    yield Row(what, f"{used:.2f}", left, used / (used + two.idle), 0.9)


def _load(url: str, process: int, duration: int) -> Load:
    before, client, idle, begin = spent(process), _client(), _idle(), time.perf_counter()
    rate = requests_a_second(duration, url, RANGE, CONNECTIONS)
    took = time.perf_counter() - begin
    cost = (spent(process) - before) / max(1.0, rate * duration)
    return Load(rate, cost, (_client() - client) / took, (_idle() - idle) / took)


def _median(runs: list[Load]) -> Load:
    return Load(
        *(statistics.median(column) for column in zip(*((r.rate, r.cost, r.client, r.idle) for r in runs), strict=True))
    )


def _client() -> float:
    """Return the processor seconds of all clients that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _idle() -> float:
    """Return the seconds that the machine's processors were idle since it started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")


def spent(process: int) -> float:
    """Return the processor seconds of a process and of all processes that it started."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    started = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return own + sum(map(spent, map(int, started)))


@contextmanager
def _service(storage: Path, number: int) -> Iterator[tuple[str, int]]:
    """Run a service with `number` workers; yield its address and process id."""
    environment = os.environ | {"PROTOSLICE_STORAGE": storage.as_uri()}
    command = [sys.executable, "-m", "protoslice.cli", "serve", "--port", "0", "--workers", str(number)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().decode().strip(), process.pid
    finally:
        process.terminate()
        process.wait(30)
