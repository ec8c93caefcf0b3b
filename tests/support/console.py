"""Console transcripts: commands and their expected output, which tests run and compare.

A transcript consists of steps. `$ COMMAND` begins a step. The lines below it are the output in a terminal, and then
`[exit N]` if the exit code is not 0. `protoslice` runs in this process, and so do its pipes and redirections, as in
`protoslice … | sort > out`. Other commands, and lines with `&&`, `;`, `<` or `$(…)`, run in bash.
`NAME=$(protoslice …)` keeps an output for later commands, which use it as `$NAME`.

Two marks in the expected text match changing output: `…` matches any characters within a line, and a line `[...]`
matches any lines. Dates and times count as `…` on both sides. Output lines that begin with `$ `, `# ` or `\\` get a
backslash in front.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from typer.testing import CliRunner

from protoslice.cli import app as program

_TIME = re.compile(r"20\d\d-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?Z?)?")
_LINES: Final = r"(?:.*\n)*?"
_STEP = re.compile(r"^\$ ", re.MULTILINE)
_MARKED = re.compile(r"^(?=\$ |# |\\)", re.MULTILINE)
_SHELL = re.compile(r"&&|\|\||[;<`]|\$\(|\d>|>&")
_PYTHON: Final = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and the output that a terminal is expected to show for it."""

    command: str
    expected: str


def steps(text: str) -> list[Step]:
    """Return the steps of a transcript. A comment (`# …`) ends an output, with the blank lines before it."""
    return [Step(command, "\n".join(expected)) for command, expected, _ in map(_split, _STEP.split(text)[1:])]


def rewritten(text: str, outputs: Iterable[str]) -> str:
    """Return a transcript in which these outputs replace the expected ones."""
    head, *parts = _STEP.split(text)
    lines = head.splitlines()
    for part, output in zip(parts, outputs, strict=True):
        command, _, behind = _split(part)
        lines += [f"$ {command}", *output.splitlines(), *behind]
    return "".join(f"{line}\n" for line in lines)


def _split(part: str) -> tuple[str, list[str], list[str]]:
    """Split a step into its command, its output's lines, and the lines after the output."""
    command, *lines = part.split("\n")[: -1 if part.endswith("\n") else None]
    end = next((number for number, line in enumerate(lines) if line.startswith("# ")), len(lines))
    while end and not lines[end - 1]:
        end -= 1
    return command, lines[:end], lines[end:]


def merged(expected: str, shown: str) -> str:
    """Return `shown`, with each line replaced by the line of `expected` whose marks match it.

    If the whole text matches, return `expected`.
    """
    wanted = [_pattern(line) for line in expected.splitlines()]
    if re.fullmatch("".join(wanted), "".join(f"{line}\n" for line in shown.splitlines())):
        return expected
    lines, at = [], 0
    for line in shown.splitlines():
        fits = (n for n in range(at, len(wanted)) if wanted[n] != _LINES and re.fullmatch(wanted[n], f"{line}\n"))
        found = next(fits, None)
        lines.append(line if found is None else expected.splitlines()[found])
        at = at if found is None else found + 1
    return "\n".join(lines)


def _pattern(line: str) -> str:
    if line == "[...]":
        return _LINES
    return ".*".join(map(re.escape, line.split("…"))) + "\n"


def timeless(text: str) -> str:
    """Return `text` with `…` in place of each date and time."""
    return _TIME.sub("…", text)


@dataclass(frozen=True, slots=True)
class _Done:
    out: bytes
    error: bytes
    both: bytes
    code: int


@dataclass(slots=True)
class Shell:
    """A folder and an environment, in which commands run one after the other."""

    folder: Path
    environment: dict[str, str]
    "Variables in addition to those of this process."
    names: Mapping[str, str]
    "For each text that changes from run to run, such as the service's address, the text to show instead."

    def shown(self, step: Step, names: Mapping[str, str] | None = None) -> str:
        """Run a step's command, and return the output as a transcript should have it; `names` adds to `self.names`."""
        more = list((names or {}).items())
        command = step.command
        for real, name in [*more, *self.names.items()]:
            command = command.replace(name, real)
        text, code = self._run(command)
        for real, name in [*self.names.items(), *more]:
            text = text.replace(real, name)
        text = _MARKED.sub("\\\\", timeless(text).rstrip("\n")) + (f"\n[exit {code}]" if code else "")
        return merged(timeless(step.expected), text.lstrip("\n"))

    def _run(self, command: str) -> tuple[str, int]:
        """Run a command; return its terminal output and the exit code."""
        kept = re.fullmatch(r"(\w+)=\$\((protoslice .*)\)", command)
        command = kept[2] if kept else command
        shown, given = b"", b""
        *first, last = [command] if _SHELL.search(command) else _parts(command, "|")
        for each in first:
            done = self._one(each, given)
            shown, given = shown + done.error, done.out
        done = self._one(last, given)
        if kept:
            self.environment[kept[1]] = done.out.decode().strip()
        return (shown + (done.error if kept else done.both)).decode(errors="backslashreplace"), done.code

    def _one(self, command: str, given: bytes) -> _Done:
        if not re.match(r"\s*(\w+=\S* +)*protoslice ", command) or _SHELL.search(command):
            return self._in_bash(command, given)
        call, *target = _parts(command, ">")
        words = shlex.split(re.sub(r"\$(\w+)", lambda name: self.environment.get(name[1], name[0]), call))
        at = words.index("protoslice")
        environment = self.environment | dict(word.split("=", 1) for word in words[:at])
        with chdir(self.folder):
            done = CliRunner().invoke(program.app, words[at + 1 :], input=given, env=environment)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        if target:
            (self.folder / target[0].strip()).write_bytes(done.stdout_bytes)
            return _Done(b"", done.stderr_bytes, done.stderr_bytes, done.exit_code)
        return _Done(done.stdout_bytes, done.stderr_bytes, done.output_bytes, done.exit_code)

    def _in_bash(self, command: str, given: bytes) -> _Done:
        path = os.pathsep.join([str(_PYTHON), os.environ["PATH"]])
        environment = os.environ | {"PATH": path} | self.environment
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=environment, input=given, capture_output=True, check=False
        )
        out = done.stdout if done.stdout.endswith(b"\n") or not done.stderr else done.stdout + b"\n" * bool(done.stdout)
        return _Done(done.stdout, done.stderr, out + done.stderr, done.returncode)


def _parts(command: str, operator: str) -> list[str]:
    """Split a command at an operator outside of quotes."""
    parts = [""]
    for each in command.split(operator):
        if parts[-1] and _is_closed(parts[-1]):
            parts.append(each)
        else:
            parts[-1] = f"{parts[-1]}{operator}{each}" if parts[-1] else each
    return parts


def _is_closed(text: str) -> bool:
    try:
        shlex.split(text)
    except ValueError:
        return False
    return True
