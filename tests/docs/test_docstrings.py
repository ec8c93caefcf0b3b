"""Docstrings of public calls: each names its arguments, and its example prints the shown output."""

from __future__ import annotations

import doctest
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from inspect import getdoc, isclass, isfunction, isroutine, signature
from pathlib import Path
from typing import Any

import pytest
from tests.support.serve import service_process

import protoslice
import protoslice.client
from protoslice import Client
from protoslice.client.records import RemoteRecords

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "http://127.0.0.1:8000"
CLASSES: dict[str, type] = {
    name: kind
    for module in (protoslice, protoslice.client)
    for name in module.__all__
    if isclass(kind := getattr(module, name))
} | {"RemoteRecords": RemoteRecords}


def _calls() -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield the public functions, and the public methods of public classes, with their names."""
    yield from ((name, call) for name in protoslice.__all__ if isfunction(call := getattr(protoslice, name)))
    for name, kind in CLASSES.items():
        for method in dir(kind):
            call = getattr(kind, method)
            ours = str(getattr(call, "__module__", "")).startswith("protoslice")
            if ours and isroutine(call) and not method.startswith("_"):
                yield f"{name}.{method}", call


CALLS = dict(_calls())
DOCUMENTED = {name: getdoc(each) or "" for name, each in {**CLASSES, **CALLS}.items()}


@pytest.mark.parametrize("name", CALLS)
def test_a_public_call_names_its_arguments_and_has_an_example(name: str) -> None:
    doc = DOCUMENTED[name]
    if doc.startswith("See `"):
        return
    taken = [each for each in signature(CALLS[name]).parameters.values() if each.name not in {"self", "cls"}]
    missing = [each.name for each in taken if not re.search(rf"^ +\**{each.name}: ", doc, re.MULTILINE)]
    assert missing == []
    assert "Examples:\n" in doc or name.endswith(".close")


def test_examples_print_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["make_model.py", "model.onnx"])
    runpy.run_path(str(ROOT / "docs/make_model.py"), run_name="__main__")
    settings = {
        "STORAGE": (tmp_path / "stores").as_uri(),
        "SPACE_WATERMARK_BYTES": "1",
        "LOG_LEVEL": "error",
        "AUTH": "tokens",
        "ADMIN_TOKEN_FILE": str(tmp_path / "token"),
        "REGISTER_ALLOW": folder.as_uri(),
        "WEBHOOK_ALLOW": "https://ci.example/",
    }
    with service_process(settings={f"PROTOSLICE_{name}": value for name, value in settings.items()}) as running:
        token = (tmp_path / "token").read_text().strip()
        monkeypatch.setenv("PROTOSLICE_URL", running.url)
        monkeypatch.setenv("PROTOSLICE_TOKEN", token)
        failed: list[str] = []
        with Client(running.url, token=token) as client:
            for name, doc in {doc: (name, doc) for name, doc in DOCUMENTED.items() if ">>>" in doc}.values():
                if [tag.name for tag in client.tags()] != ["demo:1"]:
                    _reset(client)
                known: dict[str, Any] = {"protoslice": protoslice, "client": client, "token": token}
                text = doc.replace(ADDRESS, running.url).replace("file:///models", folder.as_uri())
                test = doctest.DocTestParser().get_doctest(text, known, name, None, None)
                doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=failed.append)
    assert not failed, "".join(failed)


def _reset(client: Client) -> None:
    """Remove all tags except `demo:1`, which points at the store of `model.onnx`."""
    for tag in client.tags():
        client.untag(tag.name)
    client.push("model.onnx", tags=["demo:1"])
