"""Commands that the command line and the plain page print, run in a shell with hostile names."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import pytest

from protoslice.cli.hints import command_line
from protoslice.client import Client
from protoslice.sources.files import BytesSource

EVIL = [
    "x;touch PWNED;$(touch PWNED)",
    "`touch PWNED`",
    'it\'s "quoted"',
    "a  b",
    "100%25",
    "-rf",
    "--url=evil",
    ".hidden",
    "~root",
    "é\N{SNOWMAN}\N{GRINNING FACE}",
    "a&b|c>PWNED<d*?[e]{f,g}!h#i\\",
    "$PWNED${PWNED}",
    "' || touch PWNED || '",
    "two\nlines\ntouch PWNED\n",
    "\t\x1b[31m\x7f",
    "\N{RIGHT-TO-LEFT OVERRIDE}\N{ZERO WIDTH SPACE}",
]
FEW = ['x;touch PWNED;$(touch PWNED)`touch PWNED` it\'s  "quoted"', "-rf", "two\nlines\ntouch PWNED\n", "é\N{SNOWMAN}"]
"""The names for tests of whole programs, each of which takes seconds."""
PRINTED = re.compile(r"(?:with|run|already|it|store|add): (protoslice .*)$", re.MULTILINE)
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path, service: str) -> Run:
    """Return a function that runs a line in bash, in an empty folder; it asserts the exit code and no other effects."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    home = tmp_path / "home"

    def run(line: str, code: int = 0, url: str | None = None) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PROTOSLICE_URL": service if url is None else url,
            "XDG_CONFIG_HOME": str(home),
        }
        done = subprocess.run(
            ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == code, (line, done.stdout, done.stderr)
        assert not [each for each in tmp_path.rglob("*") if each.name == "PWNED"], line
        return done

    return run


def printed(done: subprocess.CompletedProcess[str]) -> str:
    """Return the only command that a message suggests."""
    (found,) = PRINTED.findall(done.stderr)
    return str(found)


@pytest.mark.parametrize("name", EVIL)
def test_command_gives_a_program_the_names_themselves(name: str, tmp_path: Path) -> None:
    line = command_line("split", name, f"{name}.cpb", view=name, tag=[name, "b"], out=None)
    script = "import json, sys; print(json.dumps(sys.argv[1:]))"
    shell = f"protoslice() {{ {sys.executable} -c '{script}' \"$@\"; }}; {line}"
    done = subprocess.run(["bash", "-c", shell], cwd=tmp_path, capture_output=True, check=True, timeout=60)
    given = json.loads(done.stdout)
    assert given == ["split", f"--view={name}", f"--tag={name}", "--tag=b", *(["--"] * name.startswith("-")), name,
                     f"{name}.cpb"]  # fmt: skip
    assert line.isprintable()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", FEW)
def test_push_of_a_file_names_the_command_for_its_folder(run: Run, tmp_path: Path, name: str, service: str) -> None:
    folder = tmp_path / "cwd" / name
    folder.mkdir()
    tensor = onnx.numpy_helper.from_array(np.arange(1000, dtype=np.float32), "w")
    model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], initializer=[tensor]))
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=10)
    pushed = run(command_line("push", os.path.join(name, "m.onnx"), url=service, tag="advised:1"), url="")
    run(printed(pushed), url="")
    with Client(service) as client:
        assert {file.path for file in client.store("advised:1").files} == {"m.onnx", "w.bin"}


@pytest.mark.parametrize("name", FEW)
def test_cat_of_external_data_names_the_command_that_writes_it(run: Run, tmp_path: Path, name: str) -> None:
    values = np.arange(1000, dtype=np.float32)
    tensor = onnx.numpy_helper.from_array(values, name)
    model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], initializer=[tensor]))
    file = tmp_path / "cwd" / f"{name}.onnx"
    onnx.save(model, file, save_as_external_data=True, location="w.bin", size_threshold=10)
    told = run(command_line("cat", f"./{name}.onnx", "graph.initializer[0].raw_data"), code=4)
    run(printed(told))
    assert (tmp_path / "cwd" / "raw_data.bin").read_bytes() == values.tobytes()


@pytest.mark.parametrize("prefix", FEW)
def test_split_of_a_store_names_the_command_that_pulls(run: Run, tmp_path: Path, service: str, prefix: str) -> None:
    with Client(service) as client:
        client.push(b"\x0a\x22\x0a\x20" + bytes(32), type="tensorflow.GraphDef", tags=["split:1"])
    told = run(command_line("split", "@split:1", prefix), code=3)
    run(printed(told))
    assert (tmp_path / "cwd" / f"{prefix}.cpb").is_file()


def test_removals_name_the_commands_that_go_on(run: Run, service: str) -> None:
    with Client(service) as client:
        store = client.push(b"\x0a\x22\x0a\x20" + os.urandom(16).hex().encode(), tags=["removed:1"]).store.id
        told = run(command_line("rm", "removed:1", url=service), url="")
        told = run(printed(told), url="")
        assert store not in {each.id for each in client.stores()}
        run(printed(told), url="")
        assert client.store(store).id == store


@pytest.mark.parametrize("name", [FEW[0], "-rf", ".hidden", "~root"])
def test_pull_of_hostile_names_writes_nothing_else(run: Run, tmp_path: Path, service: str, name: str) -> None:
    with Client(service) as client:
        ref = client.push({name: BytesSource(b"\x0a\x02ab" + name.encode())}).store.id
    run(command_line("pull", f"@{ref[:12]}", "there/"))
    assert [each.name for each in (tmp_path / "cwd" / "there").iterdir()] == [name]
    run(command_line("pull", f"@{ref[:12]}"), code=2 if name[0] in ".-~" else 0)
    assert (tmp_path / "cwd" / name).exists() == (name[0] not in ".-~")


def test_plain_page_prints_commands_that_run(run: Run, service: str, tmp_path: Path, graph_of: Any) -> None:
    """The first command of the page without scripts makes the store for the other commands."""
    (tmp_path / "cwd" / "model.onnx").write_bytes(
        onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [])).SerializeToString()
    )
    page = httpx.get(service, headers={"accept": "text/html"}).text
    lines = [line for block in re.findall(r"<pre><code>(.*?)</code>", page, re.DOTALL) for line in block.splitlines()]
    ran = [html.unescape(line) for line in lines if line.startswith(("curl ", "protoslice "))]
    assert len(ran) >= 4
    for line in ran:
        run(f"{line.replace('curl ', 'curl -sSf ', 1)}")
