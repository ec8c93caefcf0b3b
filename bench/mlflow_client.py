"""MLflow's own client, timed: `mlflow_client.py FOLDER URL…` logs and downloads a folder at each URL.

Each line of the input runs one round; the answer is a line of JSON with seconds for each URL. Run by `bench.mlflow`
in an environment of MLflow.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time

from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

import mlflow


def main(folder: str, urls: list[str]) -> None:
    """Answer each line of the input with a round, whose order of URLs turns with it."""
    for number, _ in enumerate(sys.stdin):
        turn = number % len(urls)
        told = {url: _round(folder, url, number) for url in (*urls[turn:], *urls[:turn])}
        print(json.dumps([told[url] for url in urls]), flush=True)


def _round(folder: str, url: str, number: int) -> list[float]:
    mlflow.set_tracking_uri(url)
    repository = get_artifact_repository(f"mlflow-artifacts:/0/run{number}/artifacts")
    begun = time.perf_counter()
    repository.log_artifacts(folder)
    logged = time.perf_counter()
    with tempfile.TemporaryDirectory() as there:
        repository.download_artifacts("", there)
        done = time.perf_counter()
        shutil.rmtree(there)
        shutil.os.mkdir(there)  # type: ignore[attr-defined]
    return [logged - begun, done - logged]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
