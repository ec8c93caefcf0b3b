"""Clients of MLflow, each version in an environment of its own, run by `make registries`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.environments import python_of
from tests.support.serve import serve

CALLS = Path(__file__).parent / "interop/mlflow_calls.py"
WHOLE = "mlflow==3.17.2"
LIGHT = ("mlflow-skinny==3.17.2", "mlflow-skinny==2.22.5")
PARTS = {"MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE": "20000000", "LARGE": "31000000"}
"""A large file goes in parts by the version that asks whether it may; the default is 500 MiB."""


@contextmanager
def tracking_server(python: Path, folder: Path, service: str) -> Iterator[str]:
    """MLflow's own tracking server, whose artifacts go from its clients to the service."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    root = service.replace("http:", "mlflow-artifacts:") + "/team"
    said = ["--backend-store-uri", f"sqlite:///{folder}/tracking.db", "--default-artifact-root", root]
    said += ["--no-serve-artifacts", "--host", "127.0.0.1", "--port", url.rpartition(":")[2], "--workers", "1"]
    with (
        (folder / "tracking.log").open("w") as log,
        subprocess.Popen([python.with_name("mlflow"), "server", *said], cwd=folder, stdout=log, stderr=log) as server,
    ):
        try:
            for _ in range(120):
                with suppress(OSError), urllib.request.urlopen(f"{url}/health"):
                    break
                time.sleep(0.5)
            yield url
        finally:
            server.terminate()


def main() -> int:
    """Run the calls of every version against one service over a folder; the number of versions that fail."""
    failed = 0
    with TemporaryDirectory() as name:
        folder = Path(name)
        with serve(storage=(folder / "storage").as_uri()) as live:
            asked = os.environ | PARTS | {"SERVICE": live.url, "MLFLOW_TRACKING_URI": live.url}
            for package in LIGHT:
                failed += subprocess.run([python_of(package), CALLS], env=asked).returncode != 0
            whole = python_of(WHOLE)
            with tracking_server(whole, folder, live.url) as tracking:
                failed += subprocess.run([whole, CALLS], env=asked | {"TRACKING": tracking}).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
