"""Benchmark of MLflow's artifacts: small files logged and downloaded, beside MLflow's own server.

Both keep them in folders of one disk, and again in memory, where a sync costs nothing: this service syncs each file and
its folder before it answers, MLflow's server syncs nothing. Rounds of the two take turns.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.oras import MEMORY
from bench.service import free_port, running, running_service, wait_for
from bench.timing import Row, seconds
from tests.mlflow import WHOLE
from tests.support.environments import is_made, python_of

FILES: Final = 1000
FEW: Final = 100
"""Files that are downloaded too, for which the client asks twice each."""
BYTES: Final = 200
ROUNDS: Final = 3


def mlflow(folder: Path, scale: float) -> Iterator[Row]:
    """Rows about MLflow."""
    if not is_made(WHOLE):
        raise SystemExit("make MLflow's environment first: python -m tests.mlflow does")
    rounds = ROUNDS if scale >= 1 else 1
    counts = max(4, int(FILES * scale)), max(2, int(FEW * scale))
    yield from _rows(folder, "on the disk", counts, rounds)
    with TemporaryDirectory(prefix="protoslice-mlflow-", dir=MEMORY) as memory:
        yield from _rows(Path(memory), "in memory", counts, rounds)


def _rows(folder: Path, where: str, counts: tuple[int, int], rounds: int) -> Iterator[Row]:
    small, few = folder / "mlflow-small", folder / "mlflow-small/few"
    few.mkdir(parents=True)
    for number in range(counts[0]):
        place = few if number < counts[1] else small
        (place / f"{number:04}.json").write_bytes(b"%0*d" % (BYTES, number))
    with ExitStack() as stack:
        ours = stack.enter_context(running_service(folder / "mlflow-stores"))
        peer = stack.enter_context(_tracking_server(folder))
        command = [str(python_of(WHOLE)), str(Path(__file__).with_name("mlflow_client.py")), str(small), ours, peer]
        client = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        measured = [_round(client) for _ in range(rounds)]
        assert client.stdin is not None
        client.stdin.close()
    for number, (count, what) in enumerate(zip(counts, ("logged", "downloaded"), strict=True)):
        mine, theirs = (statistics.median(each[side][number] for each in measured) for side in (0, 1))
        name = f"{count} small files {what}, {where}, against MLflow's server"
        yield Row(name, seconds(mine), seconds(theirs), theirs / mine, 1)


def _round(client: subprocess.Popen[bytes]) -> list[list[float]]:
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(b"\n")
    client.stdin.flush()
    told: list[list[float]] = json.loads(client.stdout.readline())
    return told


@contextmanager
def _tracking_server(folder: Path) -> Iterator[str]:
    """The address of MLflow's tracking server, which keeps artifacts in a folder."""
    port = free_port()
    command = [str(python_of(WHOLE).with_name("mlflow")), "server", "--serve-artifacts", "--port", str(port)]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    # One worker, as ours is one process; four of them take three quarters of a minute to begin.
    command += ["--artifacts-destination", str(folder / "mlflow-artifacts"), "--workers", "1"]
    with running(command, os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}):
        wait_for(port, 180)
        yield f"http://127.0.0.1:{port}"
