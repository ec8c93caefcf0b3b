"""Programs in `examples/programs`: each runs as its docstring says, and prints what is expected."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.serve import service_process

ROOT = Path(__file__).resolve().parents[2]
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
"""Exit status and parts of the output, by program."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
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
def test_a_program_runs_as_its_docstring_says(name: str, service: tuple[str, Path]) -> None:
    url, folder = service
    text = (PROGRAMS / f"{name}.py").read_text()
    lines = [line for line in text.split('"""')[1].splitlines() if line.startswith("python ")]
    status, parts = EXPECTED[name]
    assert lines
    for line in lines:
        words = [word.replace("http://127.0.0.1:8000", url) for word in line.split()[1:]]
        ran = run([str(PROGRAMS / words[0]), *words[1:]], folder)
        assert ran.returncode == status, ran.stderr
        assert all(part in ran.stdout for part in parts), ran.stdout
