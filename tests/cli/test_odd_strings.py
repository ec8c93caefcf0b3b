"""Strings that are not UTF-8, in every type of message: no verb that reads a file fails on them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import typer.main
from click.testing import CliRunner
from tests.support.odd_strings import odd_message, root_types

from protoslice import schema
from protoslice.cli import app as program

PACKAGES = {name: list(types) for name, types in groupby(root_types(), lambda name: name.rpartition(".")[0])}
READS = {"file", "stream", "before"}
"""The first arguments of verbs that read a file."""
COMMAND: Any = typer.main.get_command(program.app)
VERBS = {
    name: command
    for name, command in COMMAND.commands.items()
    if command.params and command.params[0].param_type_name == "argument" and command.params[0].name in READS
}


def _calls(name: str, type_name: str, folder: Path) -> Iterator[list[str]]:
    """Yield calls of a verb with the fewest arguments, with all arguments, and with JSON output."""
    path, out = folder / "m.pb", str(folder / "out")
    given = {
        "file": str(path), "stream": str(path), "before": str(path), "after": str(folder / "other.pb"),
        "path": _first_path(type_name), "out": out, "out_prefix": out, "number": "0", "name": "*", "around": "\\xff",
    }  # fmt: skip
    parameters = VERBS[name].params
    options = {option for each in parameters if each.param_type_name != "argument" for option in each.opts}
    arguments = [each for each in parameters if each.param_type_name == "argument"]
    few = [given[each.name] for each in arguments if each.required]
    many = [given[each.name] for each in arguments]  # an argument with a new name fails here until it has a value
    for values in (few, many):
        yield [name, *values, "--type", type_name]
        if "--json" in options:
            yield [name, *values, "--type", type_name, "--json"]
    if name == "tensor":
        yield from ([name, str(path), "--type", type_name, "-o", f"{out}{end}"] for end in (".safetensors", ".npz"))
    if name == "cat":
        yield [name, str(path), "", "--type", type_name]


def _first_path(type_name: str) -> str:
    return schema.bundled().descriptor(type_name).fields[0].name


def _failures(types: list[str], folder: Path) -> list[str]:
    """Return the calls that ended by an exception, for messages of these types and all verbs that read a file."""
    wrong: list[str] = []
    for type_name in types:
        (folder / "m.pb").write_bytes(odd_message(type_name))
        (folder / "other.pb").write_bytes(odd_message(type_name, b"\xfe"))
        for name in VERBS:
            for call in _calls(name, type_name, folder):
                done = CliRunner().invoke(COMMAND, call, env={"XDG_CONFIG_HOME": str(folder)})
                if done.exit_code == 1 or not isinstance(done.exception, SystemExit | None) or "b'\\xff" in done.output:
                    wrong.append(f"{call}: {done.exception!r} {done.output[-300:]}")
    return wrong


@pytest.mark.parametrize("package", PACKAGES)
def test_verbs_read_messages_of_every_type(package: str, tmp_path: Path) -> None:
    assert {"info", "tree", "tensor", "diff", "verify", "graph"} <= VERBS.keys()
    assert _failures(PACKAGES[package], tmp_path) == []


def test_a_parser_that_leaves_bytes_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "parsed", lambda kind, data: kind.FromString(data))
    assert _failures(["onnx.ModelProto"], tmp_path) != []


@pytest.mark.parametrize(
    "arguments", [["cat", "{}", "gr\udcffaph"], ["merge", "{}", "out", "--fields", "\udcff"], ["tree", "{}", "\udcff"]]
)
def test_arguments_that_are_not_utf8_are_named(call: Any, tmp_path: Path, arguments: list[str]) -> None:
    file = tmp_path / "m.onnx"
    file.write_bytes(b"\x08\x07\x3a\x03\x12\x01g")
    said = call(*[each.format(file) for each in arguments], code=2).stderr
    assert r"\xff" in said
    assert "is not valid UTF-8" in said
