"""Replicas and their S3 server killed under load: nothing acknowledged is lost, nothing wrong is read.

Not part of `make test`: it needs Go and nginx. `make replicas` runs it, with PROTOSLICE_KILLS kills of each part.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest
from cluster import Replica, Site, site
from front import wait_for
from load import Caller, faults, passed_on_twice
from tests.bucket import Gateway

KILLS = int(os.environ.get("PROTOSLICE_KILLS", "3"))
CALLERS = 4
LOAD_SECONDS = 2.0
DOWN_SECONDS = 1.5


def ready(url: str) -> bool:
    """True when the replica or the site at `url` takes requests."""
    try:
        return httpx.get(f"{url}/readyz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def kill_each(running: Site) -> None:
    """Kill each part in turn under load, and start it again; all must be ready before the next."""
    parts: tuple[Gateway | Replica, ...] = (*running.replicas, running.gateway)
    for part in parts:
        time.sleep(LOAD_SECONDS)
        part.end(signal.SIGKILL)
        time.sleep(DOWN_SECONDS)
        part.start()
        for replica in running.replicas:
            wait_for(lambda port=replica.port: ready(f"http://127.0.0.1:{port}"), 30)  # type: ignore[misc]


def test_nothing_is_lost_and_nothing_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with site(tmp_path) as running:
        callers = [Caller(running.url, number) for number in range(CALLERS)]
        for caller in callers:
            caller.start()
        try:
            for _ in range(KILLS):
                kill_each(running)
        finally:
            for caller in callers:
                caller.stop()
        answered = sum((caller.answered for caller in callers), Counter[str]())
        with capsys.disabled():
            print(f"\n{3 * KILLS} kills: {dict(sorted(answered.items()))}")
        assert [fault for caller in callers for fault in caller.wrong] == []
        twice = passed_on_twice((tmp_path / "access.log").read_text())
        assert [request for caller in callers for request in caller.gone if request not in twice] == []
        for url in (running.url, *(f"http://127.0.0.1:{replica.port}" for replica in running.replicas)):
            with httpx.Client(base_url=url, timeout=60) as http:
                for number, caller in enumerate(callers):
                    assert faults(caller.ledger, number, http.get) == []
        assert answered["put"] > CALLERS
