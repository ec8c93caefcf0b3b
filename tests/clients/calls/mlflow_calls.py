"""Calls of MLflow's client; the downloaded content is compared."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import urllib.request
from pathlib import Path

import mlflow
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

SERVICE = os.environ["SERVICE"]
"""The URL of the service, which acts as the tracking server for artifacts."""
TRACKING = os.environ.get("TRACKING")
"""The URL of a tracking server that stores its artifacts in the service; None for the light client."""


def artifacts_come_back() -> None:
    """Log a folder with a large file, list, download, overwrite and delete it."""
    mlflow.set_tracking_uri(SERVICE)
    repository = get_artifact_repository(f"mlflow-artifacts:/{mlflow.__version__}/run/artifacts")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "sub").mkdir()
        files = {"a.txt": b"hello", "empty": b"", "sub/ümläut + x.bin": os.urandom(300_000)}
        files["sub/large.bin"] = os.urandom(int(os.environ["LARGE"]))
        for path, data in files.items():
            (root / path).write_bytes(data)
        repository.log_artifacts(folder, "model")
        _compare(repository, files)
        files["a.txt"] = b"another"
        (root / "a.txt").write_bytes(b"another")
        repository.log_artifact(str(root / "a.txt"), "model")
        _compare(repository, files)
    sizes = {file.path: file.file_size for file in repository.list_artifacts("model/sub")}
    assert sizes == {f"model/{path}": len(data) for path, data in files.items() if "/" in path}, sizes
    repository.delete_artifacts("model/sub")
    assert sorted(file.path for file in repository.list_artifacts("model")) == ["model/a.txt", "model/empty"]


def _compare(repository: object, files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = Path(repository.download_artifacts("model", folder))  # type: ignore[attr-defined]
        for path, data in files.items():
            assert (found / path).read_bytes() == data, path


def a_model_is_logged_registered_and_loaded() -> None:
    """Log a model with a tracking server that knows this service only as its artifact root."""
    assert TRACKING is not None
    mlflow.set_tracking_uri(TRACKING)
    from mlflow import pyfunc

    class Lengths(pyfunc.PythonModel):  # type: ignore[misc]
        def predict(self, context: object, model_input: list[str], params: object = None) -> list[int]:
            return [len(each) for each in model_input]

    with mlflow.start_run() as run:
        mlflow.log_text("hello", "notes/hello.txt")
        pyfunc.log_model(name="m", python_model=Lengths(), registered_model_name="lengths", pip_requirements=[])
    assert mlflow.artifacts.load_text(f"{run.info.artifact_uri}/notes/hello.txt") == "hello"
    assert pyfunc.load_model("models:/lengths/1").predict(["abc", ""]) == [3, 0]
    source = mlflow.MlflowClient().get_model_version_download_uri("lengths", "1")
    folder = source.split("/", 3)[3]
    asked = urllib.request.Request(f"{SERVICE}/v1/drafts/{folder}?tag=lengths:1", method="POST")
    with urllib.request.urlopen(asked) as answer:
        assert "MLmodel" in {file["path"] for file in json.load(answer)["files"]}


def main() -> None:
    """Make all calls that the installed version supports."""
    artifacts_come_back()
    if TRACKING is not None:
        a_model_is_logged_registered_and_loaded()
    sys.stdout.write(f"mlflow {mlflow.__version__}: fine\n")


if __name__ == "__main__":
    main()
