"""MLflow's own client, timed at each URL: `mlflow_client.py FOLDER URL…`.

The folder is logged, and its folder `few` downloaded. Each line of the input runs one round; the answer is a line of
JSON with seconds for each URL. Run by `bench.registries` in an environment of MLflow.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time

from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

import mlflow


def main(folder: str, urls: list[str]) -> None:
    """Answer each line of the input with a round, whose order of URLs turns with it."""
    for url in urls:
        _round(f"{folder}/few", "", url, "warm")
    for number, _ in enumerate(sys.stdin):
        turn = number % len(urls)
        told = {url: _round(folder, "few", url, f"run{number}") for url in (*urls[turn:], *urls[:turn])}
        print(json.dumps([told[url] for url in urls]), flush=True)


def _round(folder: str, few: str, url: str, run: str) -> list[float]:
    mlflow.set_tracking_uri(url)
    repository = get_artifact_repository(f"mlflow-artifacts:/0/{run}/artifacts")
    begun = time.perf_counter()
    repository.log_artifacts(folder)
    logged = time.perf_counter()
    with tempfile.TemporaryDirectory() as there:
        repository.download_artifacts(few, there)
        done = time.perf_counter()
    return [logged - begun, done - logged]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
