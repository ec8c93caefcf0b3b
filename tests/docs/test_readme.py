"""Example of the README that needs a service; the tests of the command line try the rest."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
from tests.support.live import live_server

from protoslice.client import Client
from protoslice.server.app import create_app
from protoslice.server.settings import Settings
from protoslice.server.transport.uvicorn_config import uvicorn_config

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "http://127.0.0.1:8000"


def test_the_example_over_http(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = (
        each
        for each in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
        if ADDRESS in each
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["make_model.py", "model.onnx"])
    runpy.run_path(str(ROOT / "docs/make_model.py"), run_name="__main__")
    settings = Settings(storage="memory://", space_watermark_bytes=0)
    with live_server(uvicorn_config(create_app(settings), settings)) as live:
        with Client(live.url) as client:
            client.push("model.onnx", tags=["demo:1"], resume=False)
        capsys.readouterr()
        exec(compile(example.replace(ADDRESS, live.url), "README.md", "exec"), {})
    numbers, names = (line for line in capsys.readouterr().out.splitlines() if line.startswith("["))
    assert len(numbers.split()) == 4
    assert names.startswith("['embedding.weight', 'attention.weight'")
    assert names.endswith("b'\\x03\\x03\\x03\\x03\\x03\\x03\\x03\\x03\\x03\\x03\\x03\\x03\\x03\\x03\\x03\\x03'")
