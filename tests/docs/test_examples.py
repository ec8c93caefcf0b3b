"""Examples of the README and of every page: `console` blocks print what is shown, `python` blocks run.

Blocks that only show something are `sh`, `text` or `py`.
"""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

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
    """Host and port of a service, to which `model.onnx` in `tmp_path` is uploaded as `demo:1`."""
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
