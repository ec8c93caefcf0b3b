"""Every verb, with every option, where the packages of an extra are not installed: no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
from datetime import datetime
from enum import Enum

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import typer.main
from click.testing import CliRunner
from protoslice.cli.app import app

def value(param):
    kind = param.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return str(next(iter(kind)).value)
    return {int: "1", float: "1", datetime: "2030-01-01"}.get(kind, "x")

def option(param):
    return [param.opts[0]] if param.is_flag else [param.opts[0], value(param)]

def calls(words, command):
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            yield from calls([*words, name], each)
        return
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    few, many = [p for p in arguments if p.required], [p for p in arguments if p.name != "rest"]
    options = [p for p in command.params if p.param_type_name == "option" and "--help" not in p.opts]
    needed = [word for p in options if p.required for word in option(p)]
    every = [word for p in options if not p.required and p.name == "every_space" for word in option(p)]
    for given in (few, many):
        begin = [*words, *[value(p) for p in given], *needed]
        yield begin
        for p in options:
            if not p.required:
                yield [*begin, *option(p)]
                yield [*begin, *every, *option(p)]

failed, hints, tried = [], set(), 0
command = typer.main.get_command(app)
for call in calls([], command):
    done = CliRunner().invoke(command, call)
    tried += 1
    if not isinstance(done.exception, SystemExit | None) or done.exit_code == 1:
        failed.append(f"{call}: {done.exception!r} {done.output[-200:]}")
    if "install the extra" in done.output:
        hints.add((" ".join(call[:2]), done.output.split("install the extra ")[1].split("'")[1]))
print(json.dumps({"failed": failed, "hints": sorted(hints), "tried": tried}))
"""
PACKAGES = {
    "server": "pydantic_settings,fastapi,uvicorn,prometheus_client,joserfc,orjson,httptools,uvloop",
    "client": "httpx,urllib3,fsspec",
}


@pytest.mark.parametrize("extra", PACKAGES)
def test_no_verb_fails_by_a_traceback_without_an_extra(extra: str, tmp_path: Path) -> None:
    # What is installed is refused early: no service is asked, and none begins.
    early = {
        "server": {"PROTOSLICE_URL": ""},
        "client": {"PROTOSLICE_URL": "http://127.0.0.1:9", "PROTOSLICE_LOG_LEVEL": "x"},
    }
    environment = {"PATH": "", "XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path), **early[extra]}
    command = [sys.executable, "-c", SCRIPT, PACKAGES[extra]]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["failed"] == []
    assert found["tried"] > 300
    advised = {verb for verb, named in found["hints"] if named == extra}
    expected = {"server": {"config", "serve", "token create"}, "client": {"ls"}}[extra]
    assert expected <= advised
