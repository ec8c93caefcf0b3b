"""Three versions of MLflow's clients, each in a separate environment, and `mlflow gc`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import httpx
from tests.clients.running import CALLS, good, serving
from tests.support.environments import python_of
from tests.support.serve import serve

WHOLE = "mlflow==3.17.2"
LIGHT = ("mlflow-skinny==3.17.2", "mlflow-skinny==2.22.5")
PARTS = {"MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE": "20000000", "LARGE": "31000000"}
"""The settings that make a large file go in parts, for the version that checks the limit; its default is 500 MiB."""
_RUNS: Final = """
import json, mlflow
made = []
for count in (0, 2, 1):
    with mlflow.start_run() as run:
        for number in range(count):
            mlflow.log_text("text", f"sub/{number}.txt")
    made.append([run.info.run_id, run.info.artifact_uri])
for id, _ in made[:2]:
    mlflow.delete_run(id)
print(json.dumps(made))
"""
_BASE: Final = "/api/2.0/mlflow-artifacts/artifacts"


@contextmanager
def tracking_server(python: Path, folder: Path, service: str) -> Iterator[str]:
    """Run MLflow's tracking server; its clients send artifacts to the service."""
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


def run(folder: Path) -> str:
    """Run the calls of every version against one service."""
    with serve(storage=(folder / "storage").as_uri()) as live:
        asked = os.environ | PARTS | {"SERVICE": live.url, "MLFLOW_TRACKING_URI": live.url}
        for package in LIGHT:
            subprocess.run([python_of(package), CALLS / "mlflow_calls.py"], env=asked, check=True)
        whole = python_of(WHOLE)
        with tracking_server(whole, folder, live.url) as tracking:
            subprocess.run([whole, CALLS / "mlflow_calls.py"], env=asked | {"TRACKING": tracking}, check=True)
    return ", ".join((WHOLE, *LIGHT)).replace("==", " ")


def run_gc(folder: Path) -> str:
    """Log runs with and without artifacts, delete some, and collect them."""
    python = python_of(WHOLE)
    with serving(folder) as service, tracking_server(python, folder, service.url) as tracking:
        asked = {"MLFLOW_TRACKING_URI": tracking}
        empty, gone, kept = json.loads(good(python, "-c", _RUNS, folder=folder, env=asked).splitlines()[-1])
        folders = [uri.split("/", 3)[3] for _, uri in (empty, gone, kept)]

        def listed(path: str) -> int:
            return len(httpx.get(f"{service.url}{_BASE}", params={"path": path}).json()["files"])

        assert [listed(path) for path in folders] == [0, 1, 1]
        gc: list[str | Path] = [
            python.with_name("mlflow"),
            "gc",
            "--backend-store-uri",
            f"sqlite:///{folder}/tracking.db",
        ]
        good(*gc, folder=folder, env=asked)
        assert [listed(path) for path in folders] == [0, 0, 1]
        assert httpx.get(f"{tracking}/api/2.0/mlflow/runs/get", params={"run_id": gone[0]}).status_code == 404
    return good(python.with_name("mlflow"), "--version", folder=folder).strip()
