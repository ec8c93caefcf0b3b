"""Examples of the README and the guides: `console` blocks print what is shown, `python` blocks run."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.serve import service_process

from protoslice.client import Client

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "127.0.0.1:8000"
PAGES = ["README.md", *(f"docs/{name}.md" for name in ("client", "command-line", "formats", "http-api", "splitting"))]
ELSEWHERE = ("huggingface_hub", "my_package", "xarray")
"Packages of examples that `make registries`, `make engines` and `tests/formats/test_registry.py` use."


@pytest.fixture
def service(tmp_path: Path) -> Iterator[str]:
    """Host and port of a service, to which `model.onnx` in `tmp_path` is uploaded as `demo:1`."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    sys.argv = ["make_model.py", str(tmp_path / "model.onnx")]
    runpy.run_path(str(ROOT / "docs/make_model.py"), run_name="__main__")
    settings = {"STORAGE": (tmp_path / "stores").as_uri(), "SPACE_WATERMARK_BYTES": "1", "LOG_LEVEL": "error"}
    with service_process(settings={f"PROTOSLICE_{name}": value for name, value in settings.items()}) as running:
        yield running.url.removeprefix("http://")


def _steps(page: str) -> list[tuple[str, str]]:
    """Each command of the `console` blocks, and the lines that are to follow it."""
    steps: list[tuple[str, str]] = []
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            steps.append((command, expected))
    return steps


def _timeless(text: str) -> str:
    return re.sub(r'"created":"[^"]*"|20\d\d-\d\d-\d\d[ T]\d\d:\d\d(:\d\dZ)?', "…", text)


def _run(command: str, folder: Path, service: str) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "PROTOSLICE_URL": f"http://{service}", "HOME": str(folder)}
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)
    # A terminal shows both, and a line feed after text that has none.
    shown = done.stdout + done.stderr
    return shown if not shown or shown.endswith("\n") else shown + "\n"


@pytest.mark.parametrize("name", PAGES)
def test_examples_run_as_shown(name: str, tmp_path: Path, service: str) -> None:
    page = (ROOT / name).read_text()
    if name != "README.md":
        with Client(f"http://{service}") as client:
            client.push(tmp_path / "model.onnx", tags=["demo:1"])
    steps = _steps(page)
    blocks = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)]
    assert steps or blocks
    for command, expected in steps:
        shown = _run(command.replace(ADDRESS, service), tmp_path, service).replace(service, ADDRESS)
        assert _timeless(shown) == _timeless(expected), command
    code = "\n".join(block for block in blocks if not any(package in block for package in ELSEWHERE))
    (tmp_path / "example.py").write_text(code.replace(ADDRESS, service))
    shown = _run("python example.py", tmp_path, service)
    assert "Traceback" not in shown
    assert all(said in shown for said in re.findall(r"# prints (.*)$", code, re.MULTILINE))
