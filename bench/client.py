"""Benchmark of the client against curl over loopback, and of pushing a second version of a model."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from bench.service import running_service
from bench.timing import Row, seconds
from tests.support.wire import Relay, faulty_proxy

from bench import models
from protoslice.client import Client

MIB = 1 << 20
RUNS = 3
TENSORS = 8
QUIET: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def client(folder: Path, scale: float) -> Iterator[Row]:
    """Measure all rows about the client."""
    with running_service(folder / "client-stores") as url, Client(url) as ours:
        yield from _whole(folder, url, ours, int(scale * (2 << 30)))
        yield from _delta(folder, url, int(scale * (512 << 20)))


def _whole(folder: Path, url: str, ours: Client, size: int) -> Iterator[Row]:
    body, out = folder / "client-body", folder / "client-out"
    pushes: tuple[list[float], list[float]] = ([], [])
    pulls: tuple[list[float], list[float]] = ([], [])
    for run in range(2 * RUNS):
        # Every body differs, because the service does not write content again that it has.
        with body.open("wb") as file:
            file.write(b"\x0a\x04" + b"\x0a\x02%02d" % run)
            for piece in models.stream_of_constants(TENSORS, max(1, size // TENSORS)):
                file.write(piece)
        os.sync()
        mine = run % 2 == 0
        start = time.perf_counter()
        store = _push(ours, body) if mine else _curl_up(url, body)
        pushes[run % 2].append(time.perf_counter() - start)
        pair = [(pulls[0], _pull(ours, store, out)), (pulls[1], _curl_down(url, store, out))]
        for kept, pull in pair if mine else reversed(pair):  # the first also waits for the push's disk writes
            os.sync()
            start = time.perf_counter()
            pull()
            kept.append(time.perf_counter() - start)
            out.unlink()
        ours.remove(store)
    for what, (mine_s, theirs) in (("push", pushes), ("pull", pulls)):
        a, b = statistics.median(mine_s), statistics.median(theirs)
        yield Row(f"{what} of 2 GiB, verified, speed against curl's", seconds(a), seconds(b), b / a, 0.9)
    yield _resume(url, _push(ours, body), out, size)
    yield from _push_again(folder, url, ours, body)
    body.unlink()


def _resume(url: str, store: str, out: Path, size: int) -> Row:
    """Measure the seconds that one broken connection costs: one download breaks at half, the other one never."""
    times = []
    for cut_at in (math.inf, size // 2):
        taken = []
        for _ in range(RUNS):
            with Relay(url, down=cut_at) as relay, Client(relay.url) as ours:
                start = time.perf_counter()
                ours.download(store, out)
                taken.append(time.perf_counter() - start)
            out.unlink()
        times.append(statistics.median(taken))
    lost = max(0.0, times[1] - times[0])
    return Row("pull of 2 GiB that breaks off once: seconds lost", seconds(lost), "1 s", lost, 1, False)


def _push_again(folder: Path, url: str, ours: Client, body: Path) -> Iterator[Row]:
    """Measure the seconds that a broken push loses, beyond those for sending unacknowledged bytes again."""
    size = body.stat().st_size
    lost: dict[str, list[float]] = {"breaks off once": [], "is killed and run again": []}
    again = []
    for _ in range(RUNS if size >> 30 else 1):
        with Relay(url) as relay:
            plain, _, _ = _program(relay, folder, body)
            _clear(folder, ours)
            for way, kept in lost.items():
                relay.begin(up=size // 2, holds="killed" in way)
                taken, sent, there = _program(relay, folder, body, killed="killed" in way)
                if there is not None:
                    relay.begin()
                    more, rest, _ = _program(relay, folder, body)
                    again.append((there + rest - size) / MIB)
                    taken, sent = taken + more, sent + rest
                kept.append(taken - plain * sent / size)
                _clear(folder, ours)
    for way, kept in lost.items():
        seconds_lost = max(0.0, statistics.median(kept))
        yield Row(f"push of 2 GiB that {way}: seconds lost", seconds(seconds_lost), "1 s", seconds_lost, 1, False)
    sent_again = statistics.median(again)
    what = "push of 2 GiB that is killed: MiB sent again that were there"
    yield Row(what, f"{sent_again:.3g} MiB", "1 MiB", sent_again, 1, False)


def _program(relay: Relay, folder: Path, body: Path, *, killed: bool = False) -> tuple[float, int, int | None]:
    """Run `protoslice push`; return its seconds, the bytes it sent, and the upload's offset if it was killed."""
    command = [sys.executable, "-m", "protoslice.cli", "push", str(body), "--url", relay.url, "--type", models.GRAPH]
    state = folder / "state"
    start = time.perf_counter()
    with subprocess.Popen(command, env=os.environ | {"XDG_STATE_HOME": str(state)}, **QUIET) as running:
        if not killed:
            if running.wait():
                raise RuntimeError("the push failed")
            return time.perf_counter() - start, relay.passed["up"], None
        relay.reached.wait()
        running.kill()
    taken, sent = time.perf_counter() - start, relay.passed["up"]
    relay.begin()
    for journal in (state / "protoslice/uploads").glob("*"):
        upload = json.loads(journal.read_text())["upload"]
        return taken, sent, int(httpx.get(f"{relay.url}/v1/uploads/{upload}").json()["offset"])
    return taken, sent, 0  # a scaled-down run pushes files that are too small to be resumed


def _clear(folder: Path, ours: Client) -> None:
    """Remove all stores, and delete their bytes from the disk."""
    for store in list(ours.stores()):
        ours.remove(store.id, force=store.tags)
    storage = (folder / "client-stores").as_uri()
    command = [sys.executable, "-m", "protoslice.cli", "gc", "--storage", storage, "--grace-seconds", "0"]
    subprocess.run(command, check=True, **QUIET)
    os.sync()


def _delta(folder: Path, url: str, size: int) -> Iterator[Row]:
    """Change one tensor of eight, and compare all bytes on the wire with the size of that tensor."""
    old, new, each = folder / "old.pb", folder / "new.pb", max(1, size // TENSORS)
    with old.open("wb") as first, new.open("wb") as second:
        for number in range(TENSORS):
            head, *_ = models.stream_of_constants(1, each)
            content = os.urandom(each)
            first.write(head + content)
            second.write(head + (os.urandom(each) if number == TENSORS // 2 else content))
    with faulty_proxy(url) as proxy, Client(proxy.url, cache=folder / "client-cache") as ours:
        options = {"filename": "model.pb", "type": models.GRAPH}
        ours.push(old, tags=["bench:1"], **options)  # type: ignore[arg-type]
        ours.download("bench:1", folder / "client-old")
        before = proxy.sent_up + proxy.sent_down
        ours.push(new, tags=["bench:2"], **options)  # type: ignore[arg-type]
        pushed = proxy.sent_up + proxy.sent_down - before
        ours.download("bench:2", folder / "client-new")
        pulled = proxy.sent_up + proxy.sent_down - before - pushed
    for what, moved in (("push", pushed), ("pull", pulled)):
        peer = f"{each / MIB:.3g} MiB"
        yield Row(
            f"{what} of 512 MiB, one tensor of eight changed: bytes",
            f"{moved / MIB:.3g} MiB",
            peer,
            moved / each,
            1.1,
            False,
        )
    for path in (old, new, folder / "client-old", folder / "client-new"):
        path.unlink()


def _push(ours: Client, body: Path) -> str:
    return ours.push(body, filename="graph.pb", type=models.GRAPH).store.id


def _curl_up(url: str, body: Path) -> str:
    place = f"{url}/v1/stores?filename=graph.pb&type={models.GRAPH}"
    command = ["curl", "-sS", "-f", "-H", "Expect:", "-T", str(body), place]
    return str(json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["id"])


def _pull(ours: Client, store: str, out: Path) -> Callable[[], object]:
    return lambda: ours.download(store, out)


def _curl_down(url: str, store: str, out: Path) -> Callable[[], object]:
    command = ["curl", "-sS", "-f", "-o", str(out), f"{url}/v1/stores/{store}/files/graph.pb"]
    return lambda: subprocess.run(command, check=True)
