"""Three versions of huggingface_hub, each in a separate environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.clients.running import CALLS
from tests.support.environments import python_of
from tests.support.serve import serve

VERSIONS = ("0.36.2", "1.33.0", "2.4.0")
WITH = ("hf_xet", "numpy", "safetensors")
"""The packages that each version is installed with."""


QUIET = dict.fromkeys(("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_PROGRESS_BARS"), "1")


def run(folder: Path) -> str:
    """Run the calls of every version at an open service, and its uses of tokens at a closed one."""
    pythons = [python_of(f"huggingface_hub=={version}", *WITH) for version in VERSIONS]
    with serve(storage=(folder / "open").as_uri()) as live:
        for python, version in zip(pythons, VERSIONS, strict=True):
            asked = {"HF_ENDPOINT": live.url, "HF_HOME": str(folder / version)}
            subprocess.run([python, CALLS / "hub_calls.py"], env=os.environ | asked | QUIET, check=True)
    with serve(storage=(storage := (folder / "closed").as_uri()), auth="tokens") as live:
        admin = _token("admin", "--storage", storage, "--scope", "admin", "--every-space")
        asked_of = ["--url", live.url, "--scope", "read"]
        read, write = _token("r", *asked_of, admin=admin), _token("w", *asked_of, "--scope", "write", admin=admin)
        tokens = folder / "tokens.json"
        tokens.write_text(json.dumps({"read": read, "write": write, "wrong": write[:-6] + "aaaaaa"}))
        for python in pythons:
            environment = os.environ | QUIET | {"HF_ENDPOINT": live.url}
            subprocess.run([python, CALLS / "hub_tokens.py", tokens], env=environment, check=True)
    return f"huggingface_hub {', '.join(VERSIONS)}"


def _token(name: str, *said: str, admin: str = "") -> str:
    command = [sys.executable, "-m", "protoslice.cli", "token", "create", name, *said]
    done = subprocess.run(
        command, env=os.environ | {"PROTOSLICE_TOKEN": admin}, check=True, capture_output=True, text=True
    )
    return done.stdout.split()[-1]
