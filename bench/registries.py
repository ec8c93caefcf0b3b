"""Benchmark of MLflow's artifacts: small files logged and downloaded, beside MLflow's own server.

Both keep them in folders of one disk; the peer syncs nothing. Rounds of the two take turns.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.service import free_port, running, running_service, wait_for
from bench.timing import Row, seconds
from tests.mlflow import WHOLE
from tests.support.environments import is_made, python_of

FILES = 1000
BYTES = 200
ROUNDS = 5


def mlflow(folder: Path, scale: float) -> Iterator[Row]:
    """Rows about MLflow."""
    if not is_made(WHOLE):
        raise SystemExit("make MLflow's environment first: python -m tests.mlflow does")
    count = max(4, int(FILES * scale))
    small = folder / "mlflow-small"
    small.mkdir()
    for number in range(count):
        (small / f"{number:04}.json").write_bytes(b"%0*d" % (BYTES, number))
    with ExitStack() as stack:
        ours = stack.enter_context(running_service(folder / "mlflow-stores"))
        peer = stack.enter_context(_tracking_server(folder))
        command = [str(python_of(WHOLE)), str(Path(__file__).with_name("mlflow_client.py")), str(small), ours, peer]
        client = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        rounds = [_round(client) for _ in range(1 + (ROUNDS if scale >= 1 else 1))][1:]  # the first one warms up
        assert client.stdin is not None
        client.stdin.close()
    for place, what in enumerate(("logged", "downloaded")):
        mine, theirs = (statistics.median(each[side][place] for each in rounds) for side in (0, 1))
        yield Row(
            f"{count} small files {what}, against MLflow's server", seconds(mine), seconds(theirs), theirs / mine, 1
        )


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
    command += ["--artifacts-destination", str(folder / "mlflow-artifacts")]
    with running(command, dict(os.environ)):
        wait_for(port, 180)
        yield f"http://127.0.0.1:{port}"
