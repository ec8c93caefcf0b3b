"""The verbs in the processes of a user: exit codes, and one line for an error."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import protoslice
from protoslice import schema
from protoslice.cli.app import app

PROGRAM = [sys.executable, "-m", "protoslice.cli"]


def _call(*args: str, stdin: bytes = b"", code: int = 0) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run([*PROGRAM, *args], input=stdin, capture_output=True, check=False)
    assert done.returncode == code, (done.stdout, done.stderr)
    if code not in {0, 2}:
        line = done.stderr.decode()
        assert line.startswith("protoslice: ")
        assert line.count("\n") == 1
        assert b"Traceback" not in done.stderr
    return done


def _json(*args: str) -> Any:
    return json.loads(_call(*args, "--json").stdout)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of three constants and fifty small nodes."""
    graph: Any = schema.bundled().message_class("tensorflow.GraphDef")()
    for number in range(3):
        node = graph.node.add(name=f"weight_{number}", op="Const")
        node.attr["value"].tensor.tensor_content = bytes([number]) * 300_000
    for number in range(50):
        graph.node.add(name=f"op_{number}", op="NoOp", input=["weight_0"])
    path = tmp_path_factory.mktemp("graph") / "gräph 'x'.pb"
    path.write_bytes(graph.SerializeToString(deterministic=True))
    return path


@pytest.mark.parametrize(
    "command",
    [
        'cat "$1" node[0] | true',
        'tree "$1" | true',
        "--version | true",
        "--help | true",
        'info "$1" --json | true',
    ],
)
def test_who_is_not_read_ends_as_cat_does(graph: Path, command: str) -> None:
    program = f"sleep 0.1 | {sys.executable} -m protoslice.cli {command}"  # the reader has closed the pipe by then
    done = subprocess.run(
        ["bash", "-c", f'{program}; echo "${{PIPESTATUS[1]}}"', "_", str(graph)], capture_output=True, check=False
    )
    assert done.stderr == b""
    assert done.stdout == b"141\n"


def test_links_and_devices_stay_what_they_are(graph: Path, tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target.pb", tmp_path / "link.pb", tmp_path / "pipe"
    target.write_bytes(b"old")
    link.symlink_to(target)
    _call("merge", str(graph), str(link), "--force")
    assert link.is_symlink()
    assert target.read_bytes() == graph.read_bytes()
    os.mkfifo(pipe)
    copy = tmp_path / "copy"
    with copy.open("wb") as file, subprocess.Popen(["cat", str(pipe)], stdout=file):
        _call("merge", str(graph), str(pipe))
    assert copy.read_bytes() == graph.read_bytes()
    assert pipe.is_fifo()


def test_a_terminal_without_letters_gets_escapes(graph: Path) -> None:
    plain = os.environ | {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [*PROGRAM, "tree", str(graph), "node", "--limit", "1"], env=plain, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u2026 52 more" in done.stdout


def test_a_failed_write_leaves_no_file(graph: Path, tmp_path: Path) -> None:
    limit = f'ulimit -f 100; exec {sys.executable} -m protoslice.cli merge "$1" out.pb'
    done = subprocess.run(["bash", "-c", limit, "_", str(graph)], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 6
    assert list(tmp_path.iterdir()) == []


def _on_a_terminal(*args: str) -> tuple[str, int]:
    """Return the screen of a terminal of 100 columns, and the exit code."""
    pid, fd = pty.fork()
    if pid == 0:  # pragma: no cover - the child
        os.environ.update(COLUMNS="100", TERM="xterm")
        os.execv(sys.executable, [*PROGRAM, *args])
    shown = b""
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        try:
            piece = os.read(fd, 65536)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    return shown.decode(), os.waitstatus_to_exitcode(status)


def test_a_terminal_gets_text_but_no_binary(graph: Path) -> None:
    shown, code = _on_a_terminal("cat", str(graph), "node[0].op")
    assert (shown, code) == ("Const\r\n", 0)
    shown, code = _on_a_terminal("cat", str(graph), "node[0]")
    assert code == 0
    assert 'op: "Const"\r\n' in shown
    assert "fields larger than 1.00 KiB are left out" in shown
    shown, code = _on_a_terminal("cat", str(graph), 'node[0].attr["value"].tensor.tensor_content')
    assert code == 3
    assert "use -o FILE, or -o - for standard output" in shown


BAR = """
import sys
from protoslice.cli import main
from protoslice.cli.models import files
from protoslice.cli import progress

progress.PATIENCE_SECONDS = -1
plainly = files.open_proto

def slowly(*args, progress, **options):
    progress(1 << 20, 1 << 21)
    return plainly(*args, **options)

files.open_proto = slowly
main()
"""


@pytest.mark.parametrize(("source", "due"), [("file", {b"indexing", b"merging"}), ("stdin", {b"reading", b"merging"})])
def test_a_terminal_sees_a_bar_when_it_takes_long(graph: Path, tmp_path: Path, source: str, due: set[bytes]) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text(BAR)
    file, out = str(graph) if source == "file" else "-", tmp_path / "out.pb"
    pid, fd = pty.fork()
    if pid == 0:  # pragma: no cover - the child
        os.environ.update(COLUMNS="100", TERM="xterm")
        if source == "stdin":
            os.dup2(os.open(graph, os.O_RDONLY), 0)
        os.execv(sys.executable, [sys.executable, str(slow), "merge", file, str(out)])
    shown = b""
    while True:
        try:
            shown += os.read(fd, 65536)
        except OSError:
            break
    os.waitpid(pid, 0)
    os.close(fd)
    assert {word for word in (b"indexing", b"reading", b"merging") if word in shown} >= due
    assert b"MiB" in shown or b"kB" in shown or b"KiB" in shown
    assert out.read_bytes() == graph.read_bytes()


def test_nobody_who_is_no_terminal_sees_a_bar(graph: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.pb"
    done = subprocess.run([sys.executable, "-c", BAR, "merge", str(graph), str(out)], capture_output=True, check=True)
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(f"{out}: ".encode())


def test_help_shows_an_example_for_every_verb() -> None:
    looking = ("info", "tree", "chunks", "cat", "split", "merge", "tensor", "verify", "diff")
    moving = ("push", "pull", "ls", "tag", "rm", "restore", "doctor")
    for verb in (*looking, *moving, "serve", "config", "gc", "storage check", "storage usage", "storage schemes"):
        assert f"Example: protoslice {verb}" in CliRunner().invoke(app, [*verb.split(), "--help"]).output


def _usages(command: Any, *names: str) -> Iterator[tuple[str, list[str]]]:
    """Return each command's usage text after the command's name."""
    for name, each in command.commands.items():
        if hasattr(each, "commands"):
            yield from _usages(each, *names, name)
        else:
            shown = CliRunner().invoke(app, [*names, name, "--help"], terminal_width=1000).output
            usage = shown.partition("Usage: ")[2].partition("\n\n")[0]
            yield name, usage.split()[1 + len([*names, name]) :]


def test_the_usage_of_every_command_names_what_people_type() -> None:
    found = dict(_usages(typer.main.get_command(app)))
    assert len(found) > 40
    odd = {name: words for name, words in found.items() if any(word != word.upper() or "[[" in word for word in words)}
    assert odd == {}


def test_the_version_is_told() -> None:
    assert _call("--version").stdout.startswith(b"protoslice ")
    assert protoslice.__all__
