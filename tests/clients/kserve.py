"""KServe's storage initializer against the service."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import httpx
from tests.clients.running import CALLS, good, program
from tests.support.environments import python_of
from tests.support.hub import commit
from tests.support.serve import serve
from tests.support.stores import onnx

from protoslice.client import Client

PACKAGE = "kserve-storage==0.21.0"
FILES = {"model.onnx": onnx(100_000), "config.json": b"{}", "1/variables/data": b"x" * 100_000}


def run(folder: Path) -> str:
    """Push one model in three ways, and let KServe download it by the URI of each."""
    for path, data in FILES.items():
        (folder / "models" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "models" / path).write_bytes(data)
    with tarfile.open(folder / "layer.tar", "w") as layer:
        layer.add(folder / "models", "models")
    with serve(storage=(folder / "storage").as_uri()) as live:
        host = live.url.removeprefix("http://")
        with Client(live.url) as client:
            client.push(folder / "models", tags=["kserve:1"], resume=False)
        with httpx.Client(base_url=live.url) as http:
            http.post("/api/repos/create", json={"organization": "ann", "name": "served"}).raise_for_status()
            commit(http, "models/ann/served", FILES).raise_for_status()
        layer_file = "layer.tar:application/vnd.oci.image.layer.v1.tar"
        good(program("oras"), "push", "--plain-http", f"{host}/team/served:v1", layer_file, folder=folder)
        uris = ["hf://ann/served", "hf://ann/served:main", f"oci://{host}/team/served:v1"]
        uris.append(f"{live.url}/v1/stores/kserve:1/archive.tar")
        asked = {"HF_ENDPOINT": live.url, "HF_HOME": f"{folder}/hf", "KSERVE_OCI_INSECURE_REGISTRY": "true"}
        command: list[str | Path] = [python_of(PACKAGE), CALLS / "kserve_calls.py", folder / "models", *uris]
        subprocess.run(command, env=os.environ | asked, check=True)
    return PACKAGE.replace("==", " ")
