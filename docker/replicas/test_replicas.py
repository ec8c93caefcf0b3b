"""Replicas, nginx, PostgreSQL and an S3 server killed under load: nothing acknowledged is lost, nothing wrong is read.

Not part of `make test`: it needs Go and nginx. `make replicas` runs it for ten minutes.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import httpx
import pytest
from cluster import Site, site
from load import Caller, faults, passed_on_twice
from tests.deployment.nginx.front import wait_for

SECONDS = float(os.environ.get("PROTOSLICE_REPLICAS_SECONDS", "60"))
SEED = int(os.environ.get("PROTOSLICE_REPLICAS_SEED", "1"))
RESULTS = os.environ.get("PROTOSLICE_REPLICAS_RESULTS")
"""File for the counts of the run."""
CALLERS = 4
LOAD_SECONDS = 2.0
DOWN_SECONDS = 1.5
CHANGES = ("put", "tag", "remove")


def ready(url: str) -> bool:
    """True when the replica or the site at `url` takes requests."""
    try:
        return httpx.get(f"{url}/readyz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def kill_in_turn(running: Site, chosen: Random) -> Iterator[str]:
    """Kill the parts in turn under load until the time is over; all must be ready before the next."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for name, part in chosen.sample([*running.parts.items()], len(running.parts)):
            time.sleep(LOAD_SECONDS)
            part.end(signal.SIGKILL)
            yield name
            time.sleep(DOWN_SECONDS)
            part.start()
            for replica in running.replicas:
                wait_for(lambda port=replica.port: ready(f"http://127.0.0.1:{port}"), 30)  # type: ignore[misc]


def test_nothing_is_lost_and_nothing_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with site(tmp_path) as running:
        callers = [Caller(running.url, number, SEED) for number in range(CALLERS)]
        for caller in callers:
            caller.start()
        begun = time.monotonic()
        try:
            killed = Counter(kill_in_turn(running, Random(SEED)))
        finally:
            for caller in callers:
                caller.stop()
        seconds = time.monotonic() - begun
        answered = sum((caller.answered for caller in callers), Counter[str]())
        twice = passed_on_twice((tmp_path / "access.log").read_text())
        wrong = [fault for caller in callers for fault in caller.wrong]
        wrong += [request for caller in callers for request in caller.gone if request not in twice]
        lost = [
            fault
            for url in (running.url, *(f"http://127.0.0.1:{replica.port}" for replica in running.replicas))
            for fault in lost_at(url, callers)
        ]
        found = {
            "seconds": round(seconds), "seed": SEED, "killed": dict(sorted(killed.items())),
            "answered": dict(sorted(answered.items())),
            "acknowledged changes": sum(answered[change] for change in CHANGES), "lost": lost, "wrong": wrong,
        }  # fmt: skip
        with capsys.disabled():
            print(f"\n{json.dumps(found, indent=1)}")
        if RESULTS:
            Path(RESULTS).write_text(json.dumps({"command": "make replicas"} | found, indent=1) + "\n")
        assert wrong == []
        assert lost == []
        assert answered["put"] > CALLERS


def lost_at(url: str, callers: list[Caller]) -> list[str]:
    """Changes that were acknowledged to callers, and that the service at `url` does not have."""
    with httpx.Client(base_url=url, timeout=60) as http:
        return [fault for number, caller in enumerate(callers) for fault in faults(caller.ledger, number, http.get)]
