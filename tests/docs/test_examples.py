"""Examples of the README and of every page: `console` blocks print the shown output, and `python` blocks run.

Blocks that are not run are `sh`, `text` or `py`. Programs in `examples/programs` run as their docstrings describe, and
print the expected output.
"""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.console import Shell, Step, steps, timeless
from tests.support.serve import service_process

from protoslice.client import Client

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "127.0.0.1:8000"
PAGES = [
    str(page.relative_to(ROOT))
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if re.search(r"^```(console|python)$", page.read_text(), re.MULTILINE)
]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[str]:
    """Run a service with `model.onnx` from `tmp_path` as `demo:1`; yield its host and port."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    sys.argv = ["make_model.py", str(tmp_path / "model.onnx")]
    runpy.run_path(str(ROOT / "docs/make_model.py"), run_name="__main__")
    settings = {"STORAGE": (tmp_path / "stores").as_uri(), "SPACE_WATERMARK_BYTES": "1", "LOG_LEVEL": "error"}
    with service_process(settings={f"PROTOSLICE_{name}": value for name, value in settings.items()}) as running:
        yield running.url.removeprefix("http://")


@pytest.mark.parametrize("name", PAGES)
def test_examples_run_as_shown(name: str, tmp_path: Path, service: str) -> None:
    page = (ROOT / name).read_text()
    if "$ protoslice push model.onnx --tag demo:1" not in page:
        with Client(f"http://{service}") as client:
            client.push(tmp_path / "model.onnx", tags=["demo:1"])
    shell = Shell(tmp_path, {"PROTOSLICE_URL": f"http://{service}", "HOME": str(tmp_path)}, {service: ADDRESS})
    found = [step for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL) for step in steps(block)]
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert found or blocks
    for step in found:
        shown = shell.shown(step).removesuffix("\n[exit 8]")  # of `diff`, which a terminal does not show
        assert shown == timeless(step.expected), step.command
    code = "\n".join(blocks)
    (tmp_path / "example.py").write_text(code.replace(ADDRESS, service))
    shown = shell.shown(Step("python example.py", ""))
    assert "Traceback" not in shown
    assert all(said in shown for said in re.findall(r"# prints (.*)$", code, re.MULTILINE))


PROGRAMS = ROOT / "examples/programs"
HEAD = ["-0.030093698", "0.019812621", "0.22971894", "-0.040374737"]
EXPECTED = {
    "push_checked": (0, ["demo:1: ", " bytes sent"]),
    "largest_tensors": (0, ["16000000 (4000000,) embedding.weight", "1000000 (250000,) head.weight"]),
    "read_slice": (0, [f"{float(number):.4f}"[:6] for number in HEAD]),
    "compare": (1, ["head.weight"]),
    "as_safetensors": (0, ["weights.safetensors: 37000"]),
    "read_many": (0, ["attention.weight ", "head.weight "]),
}
"""The exit status and parts of the output, by program."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Run a service with `demo:1` and a changed `demo:2`; yield its URL and the folder with `model.onnx`."""
    folder = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["make_model.py", str(folder / "model.onnx")])
        runpy.run_path(str(ROOT / "docs/make_model.py"), run_name="__main__")
    changed = bytearray((folder / "model.onnx").read_bytes())
    at = changed.index(np.array([HEAD[0]], "<f4").tobytes() + np.array([HEAD[1]], "<f4").tobytes())
    changed[at] ^= 1
    (folder / "changed.onnx").write_bytes(changed)
    with service_process(settings={"PROTOSLICE_STORAGE": (folder / "stores").as_uri()}) as running:
        for file, tag in (("model.onnx", "demo:1"), ("changed.onnx", "demo:2")):
            run([str(PROGRAMS / "push_checked.py"), running.url, file, tag], folder).check_returncode()
        yield running.url, folder


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in `folder`."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def test_every_program_has_a_case() -> None:
    assert sorted(EXPECTED) == sorted(file.stem for file in PROGRAMS.glob("*.py"))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_program_runs_as_its_docstring_says(name: str, models: tuple[str, Path]) -> None:
    url, folder = models
    text = (PROGRAMS / f"{name}.py").read_text()
    lines = [line for line in text.split('"""')[1].splitlines() if line.startswith("python ")]
    status, parts = EXPECTED[name]
    assert lines
    for line in lines:
        words = [word.replace("http://127.0.0.1:8000", url) for word in line.split()[1:]]
        ran = run([str(PROGRAMS / words[0]), *words[1:]], folder)
        assert ran.returncode == status, ran.stderr
        assert all(part in ran.stdout for part in parts), ran.stdout
