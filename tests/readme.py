"""Run everything in the README: `make registries`.

The commands and the Python example also run with the other tests (`tests/docs/test_examples.py`);
the lines for clients of registries only here, with these clients installed.
"""

from __future__ import annotations

import os
import re
import runpy
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mlflow import WHOLE
from tests.support.environments import ROOT, python_of
from tests.support.serve import serve

HUB = ("huggingface_hub==1.33.0", "hf_xet")
SECTION = "## Use it as a model registry"
PORTS = ("127.0.0.1:8000", "127.0.0.1:5000", "--port 5000")


def lines() -> dict[str, str]:
    """The lines of the README by the program that they are about."""
    section = (ROOT / "README.md").read_text().partition(SECTION)[2]
    found = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return {name: text for text in found for name in ("hf", "mlflow", "oras") if f"{name} " in text}


def holds(lines: str, folder: Path, programs: Path, service: str) -> bool:
    """True if the lines, each of which has to succeed, show a tensor of the model."""
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
            os.killpg(shell.pid, signal.SIGTERM)  # a server that the lines left running


def main(oras: str) -> int:
    """Run the README's commands, then the lines of each client against a new service; return the number of failures."""
    programs = {"hf": python_of(*HUB).parent, "mlflow": python_of(WHOLE).parent, "oras": Path(oras).parent.absolute()}
    # A separate process, since plug-ins of pytest must be imported before the service.
    failed = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/docs/test_examples.py"], check=False
    ).returncode
    for name, text in lines().items():
        with TemporaryDirectory() as folder:
            sys.argv = ["make_model.py", f"{folder}/model.onnx"]
            runpy.run_path(str(ROOT / "docs/make_model.py"), run_name="__main__")
            with serve(storage=f"file://{folder}/storage") as live:
                held = holds(text, Path(folder), programs[name], live.url.removeprefix("http://"))
        print(f"README, {name}: {'holds' if held else 'FAILS'}")
        failed += not held
    return failed + (len(programs) - len(lines()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
