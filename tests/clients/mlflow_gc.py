"""mlflow gc, which removes the artifacts of deleted runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import httpx
from tests.clients.running import good, serving
from tests.mlflow import WHOLE, tracking_server
from tests.support.environments import python_of

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


def run(folder: Path) -> str:
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
