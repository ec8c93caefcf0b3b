"""Clients of Hugging Face, each version in an environment of its own, run by `make registries`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.environments import python_of
from tests.support.serve import serve

CALLS = Path(__file__).parent / "interop/hub_calls.py"
TOKENS = Path(__file__).parent / "interop/hub_tokens.py"
VERSIONS = ("0.36.2", "1.33.0", "2.4.0")
BESIDE = ("hf_xet", "numpy", "safetensors")


QUIET = dict.fromkeys(("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_PROGRESS_BARS"), "1")


def main() -> int:
    """Run the calls of every version, and its uses of tokens; the number of runs that fail."""
    with TemporaryDirectory() as folder, TemporaryDirectory() as closed:
        return _calls(folder) + _tokens(closed)


def _tokens(folder: str) -> int:
    """Uses of tokens at a closed service; the number of versions that fail."""
    storage, failed = f"file://{folder}/storage", 0
    with serve(storage=storage, auth="tokens") as live:
        admin = _token("admin", "--storage", storage, "--scope", "admin", "--every-space")
        asked = ["--url", live.url, "--scope", "read"]
        given = {
            "read": _token("r", *asked, admin=admin),
            "write": _token("w", *asked, "--scope", "write", admin=admin),
        }
        tokens = Path(folder) / "tokens.json"
        tokens.write_text(json.dumps(given | {"wrong": given["write"][:-6] + "aaaaaa"}))
        for version in VERSIONS:
            python = python_of(f"huggingface_hub=={version}", *BESIDE)
            told = subprocess.run([python, TOKENS, tokens], env=os.environ | QUIET | {"HF_ENDPOINT": live.url})
            failed += told.returncode != 0
    return failed


def _token(name: str, *said: str, admin: str = "") -> str:
    command = [sys.executable, "-m", "protoslice.cli", "token", "create", name, *said]
    done = subprocess.run(
        command, env=os.environ | {"PROTOSLICE_TOKEN": admin}, check=True, capture_output=True, text=True
    )
    return done.stdout.split()[-1]


def _calls(folder: str) -> int:
    failed = 0
    with serve(storage=f"file://{folder}/storage") as live:
        for version in VERSIONS:
            asked = {"HF_ENDPOINT": live.url, "HF_HOME": f"{folder}/{version}"}
            python = python_of(f"huggingface_hub=={version}", *BESIDE)
            failed += subprocess.run([python, CALLS], env=os.environ | asked | QUIET).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
