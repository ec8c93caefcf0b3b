"""oras: files keep their names, and external data is found; and the OCI distribution API's conformance program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

from tests.clients.hub import QUIET, VERSIONS, WITH
from tests.clients.running import Service, good, program, protoslice, serving
from tests.support.environments import ROOT, python_of
from tests.support.serve import serve

_CONFORMANCE = (
    "OCI_API_MANIFESTS_TAG_PARAM", "OCI_API_MANIFESTS_DIGEST_HEADER", "OCI_API_BLOBS_UPLOAD_CANCEL",
    "OCI_API_BLOBS_DIGEST_HEADER", "OCI_DATA_SPARSE",
)  # fmt: skip
"""The settings for tests that the program leaves out by default."""


def run(folder: Path) -> str:
    """Push as the README does, and pull with three clients."""
    oras = program("oras")
    model = folder / "model"
    shutil.copytree(ROOT / "tests/golden/models/onnx_external_many", model)
    files = sorted(path.relative_to(model) for path in model.rglob("*") if path.is_file())
    with serving(folder) as service:
        name = f"{service.host}/team/resnet:v1"
        good(oras, "push", "--plain-http", name, *files, folder=model)
        tensors = protoslice("tensor", "@team/resnet:v1", service=service, folder=folder)
        for tensor in json.loads((model / "expected.json").read_text())["tensors"]:
            assert tensor["name"] in tensors, tensors
        good(oras, "pull", "--plain-http", name, "--output", folder / "by-oras", folder=folder)
        (folder / "by-us").mkdir()
        protoslice("pull", "@team/resnet:v1", folder / "by-us", service=service, folder=folder)
        _push_at_once(oras, folder, service)
        hf = python_of(f"huggingface_hub=={VERSIONS[-1]}", *WITH).with_name("hf")
        asked = QUIET | {"HF_ENDPOINT": service.url}
        by_hf: list[str | Path] = ["--revision", "v1", "--local-dir", folder / "by-hf"]
        good(hf, "download", "team/resnet", *by_hf, folder=folder, env=asked)
    for copy in ("by-oras", "by-us", "by-hf"):
        for path in files:
            assert (folder / copy / path).read_bytes() == (model / path).read_bytes(), (copy, path)
    return "oras " + good(oras, "version", folder=folder).split()[1]


def _push_at_once(oras: Path, folder: Path, service: Service) -> None:
    """Push from two processes with the usual options and from one with many connections, all concurrently."""
    layers = folder / "layers"
    pushes: list[tuple[str, list[str]]] = [("one", []), ("two", []), ("many", ["--concurrency", "30"])]
    for name, _ in pushes:
        (layers / name).mkdir(parents=True)
        for number in range(30):
            (layers / name / f"{number}.bin").write_bytes(os.urandom(1 << 20))

    def push(name: str, options: list[str]) -> None:
        files = [f"{name}/{number}.bin" for number in range(30)]
        ref = f"{service.host}/at-once/{name}:v1"
        good(oras, "push", "--plain-http", *options, ref, *files, folder=layers)

    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda each: push(*each), pushes))


def run_conformance(folder: Path) -> str:
    """Run the official conformance program."""
    conformance = program("oci-conformance")
    with serve(storage=(folder / "storage").as_uri()) as live:
        asked = {"OCI_REGISTRY": f"{live.host}:{live.port}", "OCI_TLS": "disabled", "OCI_RESULTS_DIR": str(folder)}
        asked |= dict.fromkeys(_CONFORMANCE, "true")
        subprocess.run([conformance], env=os.environ | asked, cwd=folder, check=True)
    counts = ElementTree.parse(folder / "junit.xml").getroot().attrib
    return "OCI conformance: " + ", ".join(f"{count} {name}" for name, count in counts.items())
