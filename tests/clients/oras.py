"""oras: files keep their names, and external data is found."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.clients.running import MADE, Service, good, protoslice, serving
from tests.hub import BESIDE, QUIET, VERSIONS
from tests.support.environments import ROOT, python_of


def run(folder: Path) -> str:
    """Push as the README does, and pull with three clients."""
    program = MADE / "oras"
    model = folder / "model"
    shutil.copytree(ROOT / "tests/golden/models/onnx_external_many", model)
    files = sorted(path.relative_to(model) for path in model.rglob("*") if path.is_file())
    with serving(folder) as service:
        name = f"{service.host}/team/resnet:v1"
        good(program, "push", "--plain-http", name, *files, folder=model)
        tensors = protoslice("tensor", "@team/resnet:v1", service=service, folder=folder)
        for tensor in json.loads((model / "expected.json").read_text())["tensors"]:
            assert tensor["name"] in tensors, tensors
        good(program, "pull", "--plain-http", name, "--output", folder / "by-oras", folder=folder)
        (folder / "by-us").mkdir()
        protoslice("pull", "@team/resnet:v1", folder / "by-us", service=service, folder=folder)
        _push_at_once(program, folder, service)
        hf = python_of(f"huggingface_hub=={VERSIONS[-1]}", *BESIDE).with_name("hf")
        asked = QUIET | {"HF_ENDPOINT": service.url}
        by_hf: list[str | Path] = ["--revision", "v1", "--local-dir", folder / "by-hf"]
        good(hf, "download", "team/resnet", *by_hf, folder=folder, env=asked)
    for copy in ("by-oras", "by-us", "by-hf"):
        for path in files:
            assert (folder / copy / path).read_bytes() == (model / path).read_bytes(), (copy, path)
    return "oras " + good(program, "version", folder=folder).split()[1]


def _push_at_once(program: Path, folder: Path, service: Service) -> None:
    """Push from two processes with the usual options and from one with many connections, all at once."""
    layers = folder / "layers"
    pushes: list[tuple[str, list[str]]] = [("one", []), ("two", []), ("many", ["--concurrency", "30"])]
    for name, _ in pushes:
        (layers / name).mkdir(parents=True)
        for number in range(30):
            (layers / name / f"{number}.bin").write_bytes(os.urandom(1 << 20))

    def push(name: str, options: list[str]) -> None:
        files = [f"{name}/{number}.bin" for number in range(30)]
        ref = f"{service.host}/at-once/{name}:v1"
        good(program, "push", "--plain-http", *options, ref, *files, folder=layers)

    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda each: push(*each), pushes))
