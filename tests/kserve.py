"""KServe's storage initializer against the service, run by `make registries`."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from tests.support.environments import python_of
from tests.support.hub import commit
from tests.support.serve import serve
from tests.support.stores import onnx

from protoslice.client import Client

PACKAGE = "kserve-storage==0.21.0"
CALLS = Path(__file__).parent / "interop/kserve_calls.py"
FILES = {"model.onnx": onnx(100_000), "config.json": b"{}", "1/variables/data": b"x" * 100_000}


def main(oras: str) -> int:
    """Push one model by three ways, and have it downloaded by the URI of each; 0 when all are the same."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for path, data in FILES.items():
            (folder / "models" / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / "models" / path).write_bytes(data)
        with tarfile.open(folder / "layer.tar", "w") as layer:
            layer.add(folder / "models", "models")
        with serve(storage=(folder / "storage").as_uri()) as live:
            host = live.url.removeprefix("http://")
            with Client(live.url) as client:
                client.push(folder / "models", tags=["kserve:1"], resume=False)
            with httpx.Client(base_url=live.url) as client:
                client.post("/api/repos/create", json={"organization": "ann", "name": "served"}).raise_for_status()
                commit(client, "models/ann/served", FILES).raise_for_status()
            said = [
                "push",
                "--plain-http",
                f"{host}/team/served:v1",
                "layer.tar:application/vnd.oci.image.layer.v1.tar",
            ]
            subprocess.run([Path(oras).absolute(), *said], cwd=folder, check=True, stdout=subprocess.DEVNULL)
            uris = ["hf://ann/served", "hf://ann/served:main", f"oci://{host}/team/served:v1"]
            uris.append(f"{live.url}/v1/stores/kserve:1/archive.tar")
            asked = {"HF_ENDPOINT": live.url, "HF_HOME": f"{folder}/hf", "KSERVE_OCI_INSECURE_REGISTRY": "true"}
            told = subprocess.run([python_of(PACKAGE), CALLS, folder / "models", *uris], env=os.environ | asked)
    return told.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
