"""Clients that generators make of the OpenAPI document, run by `make openapi`.

The page is checked against the types of openapi-typescript; the Python client of openapi-python-client is used.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.environments import python_of
from tests.support.live import live_server
from tests.support.stores import onnx

from protoslice.client import Client
from protoslice.server.app import create_app
from protoslice.server.settings import Settings
from protoslice.server.transport.uvicorn_config import uvicorn_config

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("openapi-python-client==0.29.1", "ruff")
CALLS = Path(__file__).parent / "interop/generated_calls.py"


def main() -> int:
    """Generate and use both clients; raise if a generator warns or a call fails."""
    subprocess.run(["sh", ROOT / "web/build.sh", sys.executable, "check"], check=True)
    python = python_of(*PACKAGES)
    with TemporaryDirectory() as name:
        folder = Path(name)
        generate: list[str | Path] = [python.with_name("openapi-python-client"), "generate", "--fail-on-warning"]
        generate += ["--config", ROOT / "openapi/python-client.yaml", "--path", ROOT / "openapi/openapi.json"]
        path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"  # ruff formats what is generated
        subprocess.run([*generate, "--output-path", folder / "client"], check=True, env=os.environ | {"PATH": path})
        settings = Settings(storage="memory://")
        with live_server(uvicorn_config(create_app(settings), settings)) as live:
            (folder / "model.onnx").write_bytes(onnx(100_000))
            with Client(live.url) as client:
                client.push(folder / "model.onnx", tags=["m:1"], resume=False)
            env = os.environ | {"PYTHONPATH": str(folder / "client")}
            subprocess.run([python, CALLS, live.url], check=True, env=env)
    return 0


if __name__ == "__main__":
    sys.exit(main())
