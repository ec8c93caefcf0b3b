"""Clients of Hugging Face, each version in an environment of its own, run by `make registries`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.environments import python_of
from tests.support.live import live_server

from protoslice.server.app import create_app
from protoslice.server.settings import Settings
from protoslice.server.transport.uvicorn_config import uvicorn_config

CALLS = Path(__file__).parent / "interop/hub_calls.py"
VERSIONS = ("0.36.2", "1.33.0", "2.4.0")
BESIDE = ("hf_xet", "numpy", "safetensors")


def main() -> int:
    """Run the calls of every version against one service over a folder; the number of versions that fail."""
    failed = 0
    with TemporaryDirectory() as folder:
        settings = Settings(storage=f"file://{folder}/storage")
        with live_server(uvicorn_config(create_app(settings), settings)) as live:
            for version in VERSIONS:
                asked = {"HF_ENDPOINT": live.url, "HF_HOME": f"{folder}/{version}"}
                quiet = dict.fromkeys(("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_PROGRESS_BARS"), "1")
                told = subprocess.run(
                    [python_of(f"huggingface_hub=={version}", *BESIDE), CALLS], env=os.environ | asked | quiet
                )
                failed += told.returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
