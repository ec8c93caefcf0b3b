"""Kill processes at random while clients write, and check all acknowledged writes: `python -m tests.kills PROFILE…`.

`sqlite` is one or two replicas over a folder and a SQLite file. `postgresql` is two replicas over a folder and
PostgreSQL. `site` is two replicas over PostgreSQL and a bucket, behind nginx. A removed store can be restored for
seconds, and bytes are deleted seconds after their rows: this program's collectors do that.

In the end, all acknowledged content is read back from every replica, and again from a new replica after a last
collection. Rows are compared with files and counts. The counts of each run are printed as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from tests.kills.checks import check
from tests.kills.load import Run
from tests.kills.processes import PROFILES, collect_for_ever, started
from tests.support.postgres import TestServer, running_postgres


def play(profile: str, server: TestServer, seed: int, kills: int) -> dict[str, Any]:
    """Run a profile until it had enough kills, check it, and return the counts and the losses."""
    random, begun = Random(seed), time.monotonic()
    replicas = 1 + seed % 2 if profile == "sqlite" else 2
    with TemporaryDirectory() as folder, started(profile, Path(folder), server, replicas) as processes:
        run = Run(processes, seed)
        with ThreadPoolExecutor(len(run.writers)) as threads:
            running = [threads.submit(writer.work) for writer in run.writers]
            try:
                killed = _kill(run, random, kills)
            finally:
                run.ended.set()
            for thread in running:
                thread.result(timeout=180)
        run.judge_suspects()
        found = check(run)
        collected = [sum(column) for column in zip(*(each.counts() for each in processes.collectors), strict=True)]
    return {
        "profile": profile,
        "seed": seed,
        "replicas": replicas,
        "killed": killed,
        "acknowledged": run.acknowledged,
        "repeated": run.repeated,
        "collected": dict(zip(("stores", "objects", "deleted"), collected, strict=True)),
        **found,
        "lost": run.lost,
        "seconds": round(time.monotonic() - begun),
    }


def _kill(run: Run, random: Random, kills: int) -> Counter[str]:
    """Cause faults at random; return how often each fault hit a process."""
    faults, hits = run.processes.faults, Counter[str]()
    weights = [fault.weight for fault in faults]
    for _ in range(kills):
        time.sleep(random.uniform(0.2, 1.5))
        (fault,) = random.choices(faults, weights)
        hits[fault.name] += fault.cause(random)
        run.processes.wait_until_ready()
        run.check_counts()
    for name, count in hits.items():
        if not count:
            run.lose(f"harness: {name} found nothing to kill")
    return hits


def main() -> int:
    """Play the profiles and return 1 if anything was lost."""
    parser = argparse.ArgumentParser(description="Kill processes under load, and check all that was acknowledged.")
    parser.add_argument("profiles", nargs="*", metavar="PROFILE", help=f"of {', '.join(PROFILES)}; all by default")
    parser.add_argument("--seeds", type=int, default=3, help="number of runs of each profile")
    parser.add_argument("--kills", type=int, default=20, help="number of kills in each run")
    parser.add_argument("--collect", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.collect:
        asyncio.run(collect_for_ever(*options.collect))
    if unknown := set(options.profiles) - {*PROFILES}:
        parser.error(f"unknown profile {', '.join(sorted(unknown))}: use {', '.join(PROFILES)}")
    lost = False
    with running_postgres() as server:
        for profile in options.profiles or PROFILES:
            for seed in range(1, options.seeds + 1):
                found = play(profile, server, seed, options.kills)
                print(json.dumps(found), flush=True)
                lost |= bool(found["lost"])
    return int(lost)


if __name__ == "__main__":
    sys.exit(main())
