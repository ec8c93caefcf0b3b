"""Terminal sessions: bars for long work, as a terminal shows them; output elsewhere has no bars.

Elements as text are compared with NumPy's text of them.
"""

from __future__ import annotations

import os
import pty
import re
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ
from typing import Any
from urllib.parse import urlsplit

import ml_dtypes
import numpy as np
import pytest
from tests.support.wire import in_a_thread

from protoslice.cli.arrays import array_lines, reader_of

PROGRAM = [sys.executable, "-m", "protoslice.cli"]
COLUMNS, ROWS = 100, 24
RATE = 6 << 20
SIZE = 20 << 20


@contextmanager
def slow_line(upstream: str) -> Iterator[str]:
    """Limit the connection to the service to this number of bytes per second each way."""
    place = urlsplit(upstream)

    class Line(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((str(place.hostname), place.port or 80)) as far:
                back = threading.Thread(target=_carry, args=(far, self.request), daemon=True)
                back.start()
                _carry(self.request, far)
                back.join(10)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Line)
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)  # bytes in flight count as sent
    with in_a_thread(server) as address:
        yield f"http://{address}"


def _carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(64 << 10):
            target.sendall(piece)
            time.sleep(len(piece) / RATE)
        target.shutdown(socket.SHUT_WR)


class Screen:
    """A terminal with the features that bars need: its current content, and all content so far."""

    def __init__(self) -> None:
        self.lines = [""]
        self.seen: list[str] = []
        self._row, self._column = 0, 0

    def take(self, text: str) -> None:
        """Process a program's output."""
        for step in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", text):
            if step == "\r":
                self._column = 0
            elif step == "\n":
                self._row += 1
                self.lines += [""] * (self._row + 1 - len(self.lines))
            elif step.startswith("\x1b["):
                self._steer(step[2:-1], step[-1])
            else:
                line = self.lines[self._row].ljust(self._column)
                self.lines[self._row] = line[: self._column] + step + line[self._column + len(step) :]
                self._column += len(step)
        self.seen.append("\n".join(self.lines).rstrip())

    def _steer(self, argument: str, what: str) -> None:
        if what == "A":
            self._row = max(0, self._row - int(argument or "1"))
        elif what == "K":
            self.lines[self._row] = "" if argument == "2" else self.lines[self._row][: self._column]


def on_a_terminal(*args: object, columns: int = COLUMNS) -> Screen:
    """Run the program to its successful end on a screen, and return the screen."""
    pid, fd = pty.fork()
    if pid == 0:  # pragma: no cover - the child
        os.environ.update(TERM="xterm")
        os.execv(sys.executable, [*PROGRAM, *map(str, args)])
    ioctl(fd, TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    screen = Screen()
    with suppress(OSError):  # reading fails once the program has left the terminal
        while piece := os.read(fd, 65536):
            screen.take(piece.decode("utf-8", "ignore"))
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    assert os.waitstatus_to_exitcode(status) == 0, screen.lines
    return screen


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Write a file whose upload takes some seconds, and of which the service has no part."""
    path = tmp_path / "large.pb"
    path.write_bytes(b"\x0a\x80\x80\x80\x0a" + os.urandom(SIZE))
    return path


def assert_bar(screen: Screen, what: str, *, moves: bool) -> None:
    """Assert that a bar showed sizes, rate and remaining time, and that it is gone at the end."""
    bar = re.compile(rf"^{what} +[━╸╺ ]+ +\d+\.\d+/20\.\d+ MiB +[\d.]+ [KM]iB/s +\d:\d\d:\d\d$", re.MULTILINE)
    shown = [bar.findall(each) for each in screen.seen]
    assert any(shown), screen.seen[-3:]
    assert all(len(each) <= 1 for each in shown), "one bar, in its place"
    assert not moves or len({each[0] for each in shown if each}) > 3
    assert what not in "\n".join(screen.lines), "it leaves nothing behind"


def test_what_takes_long_shows_a_bar_and_leaves_its_answer(service: str, large: Path, tmp_path: Path) -> None:
    with slow_line(service) as url:
        pushed = on_a_terminal("push", large, "--url", url, "--tag", "large:1")
        pulled = on_a_terminal("pull", f"{url}/v1/stores/large:1", tmp_path / "back.pb")
    assert_bar(pushed, "pushing", moves=True)
    assert pushed.lines[0].startswith(f"{url}/m/")
    assert pushed.lines[1].startswith("protoslice: large.pb: protobuf of unknown type")
    assert pushed.lines[2] == "protoslice: 20.0 MiB sent"
    assert_bar(pulled, "pulling", moves=False)  # progress is written in parts, which arrive together
    assert pulled.lines[0] == f"{tmp_path / 'back.pb'}: 20.0 MiB"
    assert (tmp_path / "back.pb").read_bytes() == large.read_bytes()


def test_where_nobody_watches_nothing_is_shown(service: str, large: Path, tmp_path: Path) -> None:
    with slow_line(service) as url:
        command = [*PROGRAM, "push", str(large), "--url", url, "--tag", "large:2"]
        pushed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(pushed.stderr.splitlines()) == 2, "the report on the model, and how much was sent"
    assert "\x1b" not in pushed.stdout + pushed.stderr
    assert "pushing" not in pushed.stderr


def test_completion_knows_verbs_and_options(tmp_path: Path) -> None:
    def complete(words: str, at: int) -> list[str]:
        asked = {"_PROTOSLICE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        program = Path(sys.executable).parent / "protoslice"
        done = subprocess.run([program], env=os.environ | asked, capture_output=True, text=True, check=False)
        return done.stdout.split()

    assert complete("protoslice ver", 1) == ["verify"]
    assert "--omit-larger-than" in complete("protoslice merge --o", 2)
    asked_in_bash = ["bash", "-c", '"$@"; exit', "bash", *PROGRAM, "--show-completion"]  # the shell that is found
    home = os.environ | {"HOME": str(tmp_path)}
    script = subprocess.run(asked_in_bash, env=home, capture_output=True, text=True, check=True)
    assert "complete -o default -F" in script.stdout


@pytest.mark.parametrize(
    ("shell", "first"),
    [("bash", "_protoslice_completion() {"), ("zsh", "#compdef protoslice"), ("fish", "complete --command protoslice")],
)
def test_who_packages_it_gets_the_script_of_any_shell(shell: str, first: str) -> None:
    program = Path(sys.executable).parent / "protoslice"
    asked = os.environ | {"_PROTOSLICE_COMPLETE": f"source_{shell}"}
    done = subprocess.run([program], env=asked, capture_output=True, text=True, check=True)
    assert done.stdout.lstrip("\n").startswith(first)
    assert ("_protoslice_completion" in done.stdout) == (shell != "fish")
    manual = (Path(__file__).parents[3] / "docs/reference/command-line.md").read_text()
    assert f"_PROTOSLICE_COMPLETE=source_{shell} protoslice" in manual


def test_the_list_of_verbs_is_not_cut() -> None:
    done = subprocess.run(
        [*PROGRAM, "--help"], env=os.environ | {"COLUMNS": "80"}, capture_output=True, text=True, check=True
    )
    verbs = done.stdout.partition("Commands:")[2]
    assert verbs.count("\n  ") > 15
    assert "..." not in verbs


def test_a_narrow_terminal_still_tells_things_apart(model: Path) -> None:
    shown = on_a_terminal("info", model, columns=40).lines
    names = [line.split()[-1] for line in shown if "constant_" in line]
    assert len(set(names)) == len(names) == 4


def test_a_terminal_gets_numbers_and_statistics(
    store: str, model: Path, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROTOSLICE_URL", service)
    for source in (model, store):
        shown = on_a_terminal("tensor", source, "constant_1", "--slice", "0:2").lines
        number = f"{np.frombuffer(bytes([2] * 4), '<f4')[0]:.5g}"
        assert shown[0] == "constant_1[0:2]  F32 2"
        assert shown[1] == f"[{number} {number}]"
        assert shown[2].startswith("min ")
        whole = on_a_terminal("tensor", source, "constant_1").lines
        assert whole[:2] == ["constant_1  F32 75000", f"[{' '.join([number] * 3)} ... {' '.join([number] * 3)}]"]


def shown(array: np.ndarray[Any, Any], dtype: str) -> str:
    """Return the text of an array of this data type."""
    read = reader_of(array.tobytes(), array.shape)
    return "\n".join(array_lines(dtype, array.shape, read))


def words(text: str) -> list[str]:
    """Return brackets, numbers and dots without the space between them."""
    return text.replace("[", " [ ").replace("]", " ] ").split()


@pytest.mark.parametrize(
    "shape", [(), (5,), (0,), (2, 0), (2, 3), (1, 1, 1), (1001,), (40, 50), (2, 30, 40), (7, 3, 2, 60)]
)
def test_integers_are_printed_as_numpy_prints_them(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int), dtype="<i4").reshape(shape) - 7
    with np.printoptions(threshold=1000, edgeitems=3, linewidth=78):
        expected = str(array)
    assert words(shown(array, "I32")) == words(expected if array.size or len(shape) < 2 else shown(array, "I32"))


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("F64", "<f8"),
        ("F32", "<f4"),
        ("F16", "<f2"),
        ("BF16", ml_dtypes.bfloat16),
        ("F8_E4M3FN", ml_dtypes.float8_e4m3fn),
    ],
)
def test_floats_are_printed_with_five_digits(dtype: str, kind: Any) -> None:
    array = np.array([[1.5, -0.25, 0.0], [448, 2**-6, -3]]).astype(kind)
    assert [float(word) for word in words(shown(array, dtype)) if word not in "[]"] == array.astype(
        float
    ).ravel().tolist()


def test_other_types_are_printed() -> None:
    assert shown(np.array([True, False]), "BOOL") == "[ True False]"
    assert shown(np.array([1 + 2j, -3.5j], "<c8"), "C64") == "[   1+2j -0-3.5j]"
    assert shown(np.array([-8, 7], "i1"), "I4") == "[-8  7]"
    assert shown(np.array([15, 0], "u1"), "U4") == "[15  0]"


def test_only_shown_elements_are_read() -> None:
    asked: list[str] = []

    def read(text: str) -> bytes:
        asked.append(text)
        return bytes(4 * 9)

    list(array_lines("F32", (1 << 40, 1 << 40), read))
    end = 1 << 40
    assert asked == [
        "0:3,0:3", f"0:3,{end - 3}:{end}", f"{end - 3}:{end},0:3", f"{end - 3}:{end},{end - 3}:{end}",
    ]  # fmt: skip


def test_long_rows_are_broken() -> None:
    lines = shown(np.arange(100, dtype="<i8") + 1000, "I64").split("\n")
    assert max(map(len, lines)) <= 80
    assert len(lines) > 5
    assert (lines[0][0], lines[-1][-1]) == ("[", "]")
