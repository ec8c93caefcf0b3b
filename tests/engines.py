"""Engines that compute over records of a store, and load files of it, each in its environment: `make engines`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.interop.engine_records import COUNT, record
from tests.support.environments import ROOT, python_of
from tests.support.live import live_server
from tests.support.streams import FRAMED

from protoslice.client import Client
from protoslice.server.app import create_app
from protoslice.server.settings import Settings
from protoslice.server.transport.uvicorn_config import uvicorn_config

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
ENGINES = {"array_record": "array_record==0.8.6", "ray": "ray[data]==2.60.0", "torch": "torch==2.15.0"}


def main() -> int:
    """Run the calls of every engine against one service over a folder; the number of engines that fail."""
    failed = 0
    with TemporaryDirectory() as name:
        settings = Settings(storage=(Path(name) / "storage").as_uri(), log_level="warning")
        with live_server(uvicorn_config(create_app(settings), settings)) as live:
            with Client(live.url) as client:
                client.push(FRAMED["tfrecord"]([*map(record, range(COUNT))]), filename="a.tfrecord", tags=["engines"])
            paths = os.pathsep.join([str(ROOT / "service"), str(ROOT)])
            for engine, package in ENGINES.items():
                asked = os.environ | {"SERVICE": live.url, "ENGINE": engine, "PYTHONPATH": paths}
                failed += subprocess.run([python_of(package, *OURS), CALLS], env=asked).returncode != 0
            for engine, packages in LOADERS.items():
                asked = os.environ | {"SERVICE": live.url, "PYTHONPATH": paths}
                failed += subprocess.run([python_of(*packages, *OURS), FILES, engine], env=asked).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
