"""All commands in the README.

The commands and the Python example also run with the other tests (`tests/docs/test_examples.py`). The lines for
registries' clients run only here, with these clients installed.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.clients.mlflow import WHOLE
from tests.clients.running import program
from tests.support.environments import ROOT, python_of
from tests.support.serve import serve

HUB = ("huggingface_hub==1.33.0", "hf_xet")
SECTION = "## Use it as a model registry"
PORTS = ("127.0.0.1:8000", "127.0.0.1:5000", "--port 5000")


def lines() -> dict[str, str]:
    """Return the README's lines for each client program."""
    section = (ROOT / "README.md").read_text().partition(SECTION)[2]
    found = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return {name: text for text in found for name in ("hf", "mlflow", "oras") if f"{name} " in text}


def holds(lines: str, folder: Path, programs: Path, service: str) -> bool:
    """Return True if the lines, each of which must succeed, show a tensor of the model."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for said, meant in zip(PORTS, (service, f"127.0.0.1:{port}", f"--port {port}"), strict=True):
        lines = lines.replace(said, meant)
    asked = {"PROTOSLICE_URL": f"http://{service}", "PATH": f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin"}
    shell = subprocess.Popen(
        ["/bin/bash", "-ec", lines],
        cwd=folder, env=os.environ | asked, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert shell.stdout is not None
    try:
        status, told = shell.wait(300), ""
        while "head.weight" not in told and (line := shell.stdout.readline()):
            told += line
        return status == 0 and "head.weight" in told
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGTERM)  # a server that the lines started


def run(folder: Path) -> str:
    """Run the README's commands, then the lines of each client against a new service."""
    programs = {"hf": python_of(*HUB).parent, "mlflow": python_of(WHOLE).parent, "oras": program("oras").parent}
    # A separate process, since plug-ins of pytest must be imported before the service.
    subprocess.run([sys.executable, "-m", "pytest", "-q", "tests/docs/test_examples.py"], cwd=ROOT, check=True)
    found = lines()
    assert found.keys() == programs.keys(), found.keys()
    for name, text in found.items():
        home = folder / name
        home.mkdir()
        subprocess.run([sys.executable, ROOT / "docs/make_model.py", home / "model.onnx"], check=True)
        with serve(storage=(home / "storage").as_uri()) as live:
            assert holds(text, home, programs[name], live.url.removeprefix("http://")), f"lines of {name}"
    return f"README with {HUB[0]}, {WHOLE} and oras".replace("==", " ")
