"""Safety of terminal, signals and streams: no name controls the terminal, and no interrupted run leaves half a file."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.environments import ROOT

from protoslice import schema
from protoslice.cli.errors import ExitCode
from protoslice.cli.tables import escaped, print_items, print_json, print_table

PROGRAM = [sys.executable, "-m", "protoslice.cli"]
STEERING = "\x1b]0;title\x07\x1b[31m\x9b2J\x7f\u202eevil\u2028\r"


def steers(shown: str) -> list[str]:
    """Return the characters of `shown` that a terminal would act upon, except line ends."""
    return [c for c in shown if c != "\n" and unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}]


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """Write a graph whose names would control a terminal, in a file whose name would too."""
    graph: Any = schema.bundled().message_class("tensorflow.GraphDef")()
    for _ in range(3):
        node = graph.node.add(name=STEERING, op=STEERING)
        node.attr[STEERING].s = STEERING.encode() * 5000
    path = tmp_path / f"{STEERING}.pb"
    path.write_bytes(graph.SerializeToString())
    return path


@pytest.mark.parametrize(
    "args",
    [
        ["info", "--json"],
        ["info", "--type=tensorflow.GraphDef"],
        ["tree", "", "--depth", "9"],
        ["tree", "node", "--depth", "9", "--json"],
        ["chunks", "--min-chunk", "100"],
        ["chunks", "--min-chunk", "100", "--json"],
        ["split", "{out}", "--min-chunk", "100"],
        ["merge", "{out}"],
        ["merge", "{out}/nowhere"],
        ["cat", "node[0].name", "-o", "{out}"],
        ["cat", f"nodes{STEERING}"],
    ],
)
def test_no_name_steers_a_terminal(graph: Path, tmp_path: Path, args: list[str]) -> None:
    verb, *rest = [arg.format(out=tmp_path / f"out{STEERING}") if "{out}" in arg else arg for arg in args]
    command = [*PROGRAM, verb, str(graph), *rest, "--type", "tensorflow.GraphDef"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 2, 4}, done.stderr
    assert verb == "cat" or "evil" in done.stdout + done.stderr or verb in {"merge", "info"}
    assert steers(done.stdout + done.stderr) == []
    if "--json" in args:
        assert json.loads(done.stdout)


@pytest.mark.parametrize("verb", ["diff", "tensor", "tensor none", "verify", "diff --json"])
def test_no_tensor_steers_a_terminal(tmp_path: Path, verb: str) -> None:
    paths = []
    for number in range(2):
        model: Any = schema.bundled().message_class("onnx.ModelProto")()
        model.graph.name = f"{STEERING}{number}"
        for name in (STEERING, f"{number}{STEERING}"):
            model.graph.initializer.add(name=name, data_type=1, dims=[100], raw_data=bytes([number]) * 400)
        away = model.graph.initializer.add(name=f"x{STEERING}", data_type=1, dims=[number], data_location=1)
        away.external_data.add(key="location", value=STEERING)
        paths.append(tmp_path / f"{number}.onnx")
        paths[-1].write_bytes(model.SerializeToString())
    name, *rest = verb.split()
    files = paths if name == "diff" else paths[:1]
    command = [*PROGRAM, name, *map(str, files), *rest, "--type", "onnx.ModelProto"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 3, 4, 8}, done.stderr
    assert "evil" in done.stdout + done.stderr or verb == "tensor none"
    assert steers(done.stdout + done.stderr) == []


def test_a_missing_file_with_such_a_name() -> None:
    done = subprocess.run([*PROGRAM, "info", STEERING], capture_output=True, text=True, check=False)
    assert (done.returncode, steers(done.stderr), done.stderr.count("\n")) == (4, [], 1)


def test_text_on_a_terminal_keeps_lines_and_nothing_else(graph: Path) -> None:
    pid, fd = pty.fork()
    if pid == 0:  # pragma: no cover - the child
        os.execv(sys.executable, [*PROGRAM, "cat", str(graph), "node[1].op", "--type=tensorflow.GraphDef"])
    shown = b""
    while True:
        try:
            shown += os.read(fd, 65536)
        except OSError:
            break
    os.waitpid(pid, 0)
    os.close(fd)
    assert shown.endswith(b"\r\n")
    assert steers(shown[:-2].decode()) == []
    assert b"evil" in shown


@pytest.mark.parametrize("wanted", [True, False])
def test_colours_are_for_those_who_want_them(
    wanted: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "" if wanted else "1")
    print_table(["change", "path"], [["added", "a"], ["other", "b"]], colours={"added": "green"})
    shown = capsys.readouterr().out.splitlines()
    assert [line.startswith("\x1b[") for line in shown] == [wanted, wanted, False]


def test_escapes_are_those_of_json() -> None:
    assert escaped("a\x1b\n\u202e\U000e0001é") == "a\\u001b\\n\\u202e\\udb40\\udc01é"
    assert escaped("a\n\tb", keep="\n\t") == "a\n\tb"
    assert json.loads(f'"{escaped(STEERING)}"') == STEERING


def test_exit_codes_are_those_of_the_page() -> None:
    page = (ROOT / "docs/reference/command-line.md").read_text()
    documented = {int(each) for row in re.findall(r"^\| ([0-9, ]+) \|", page, re.MULTILINE) for each in row.split(",")}
    assert documented == {0, 1, 129, 143, 141, *ExitCode}


@dataclass(frozen=True)
class Listed:
    name: str
    tags: tuple[str, ...]
    updated: datetime | None
    inner: Listed | None = None


MOMENT = datetime(2026, 11, 30, 1, 2, 3, 456_789, UTC)
LISTED = [Listed("one", ("a", "b"), MOMENT), Listed("two", (), None)]
COLUMNS: dict[str, Any] = {
    "name": lambda each: each.name,
    "tags": lambda each: each.tags,
    "updated": lambda each: each.updated,
    "": lambda each: 7,
}


def test_print_json_writes_dataclasses_and_times_as_the_service_does(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"found": Listed("out", (), None, LISTED[0])})
    assert json.loads(capsys.readouterr().out)["found"] == {
        "name": "out", "tags": [], "updated": None,
        "inner": {"name": "one", "tags": ["a", "b"], "updated": "2026-11-30T01:02:03Z", "inner": None},
    }  # fmt: skip
    with pytest.raises(TypeError, match="Path has no JSON form"):
        print_json(Path())


def test_print_items_writes_one_list_as_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_items(iter(LISTED), COLUMNS, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "name  tags  updated",
        "one   a b   2026-11-30 01:02  7",
        "two                           7",
    ]
    print_items(iter(LISTED), COLUMNS, as_json=True)
    assert [each["updated"] for each in json.loads(capsys.readouterr().out)] == ["2026-11-30T01:02:03Z", None]


@pytest.mark.parametrize("as_json", [False, True])
def test_print_items_notes_that_a_limit_left_some_out(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    for limit, shown, note in ((0, 2, ""), (2, 2, ""), (1, 1, "protoslice: only the first 1 are shown")):
        print_items(iter(LISTED), COLUMNS, as_json=as_json, limit=limit)
        said = capsys.readouterr()
        assert len(json.loads(said.out) if as_json else said.out.splitlines()[1:]) == shown
        assert said.err.startswith(note)
        assert bool(said.err) == bool(note)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, -15), (signal.SIGHUP, -1), (signal.SIGINT, 130)])
def test_a_program_that_is_asked_to_end_leaves_nothing_half_written(
    graph: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    script = (
        "import time\nfrom protoslice.cli.models import output\nfrom protoslice.cli import main\n"
        "def stall(pieces, file, progress):\n    print('writing', flush=True)\n    time.sleep(60)\n"
        "output._copy = stall\nmain()\n"
    )
    out = tmp_path / "out"
    out.mkdir()
    command = [sys.executable, "-c", script, "merge", str(graph), str(out / "model.pb")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        assert len(list(out.iterdir())) == 1
        process.send_signal(number)
        _, complaint = process.communicate(timeout=30)
    assert (process.returncode, complaint) == (code, "protoslice: interrupted\n" if code == 130 else "")
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    ("redirection", "code", "says"),
    [
        ("info - <&-", 6, "standard input or output is closed"),
        ('info "$1" >&-', 6, "standard input or output is closed"),
        ('info "$1" >/dev/full', 6, "No space left on device"),
        ('info "$1" <&-', 0, ""),
        ('info "$1" 2>&-', 0, ""),
        ('info "$1" 2>/dev/full', 0, ""),
        ("info nothing 2>/dev/full", 4, ""),
        ('info "$1" <&- >&- 2>&-', 6, ""),
        ("--version >&-", 6, "standard input or output is closed"),
        ("--help >/dev/full", 6, "No space left on device"),
        ('merge "$1" out.pb <&- >&-', 0, "out.pb"),
    ],
)
def test_closed_and_full_streams_give_a_line(
    graph: Path, tmp_path: Path, redirection: str, code: int, says: str
) -> None:
    command = f'exec "{sys.executable}" -m protoslice.cli {redirection}'
    done = subprocess.run(
        ["bash", "-c", command, "_", str(graph)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert says in done.stderr
