"""Types of one's own: `--schema` on verbs for files, and the verbs of `schema` for a service."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from tests.engine.test_printed_paths import SET
from tests.support.canonical import delimited
from tests.support.streams import FRAMED

PROTO = """
syntax = "proto3";
package me;
import "part.proto";
message Thing { string title = 1; repeated Part parts = 2; bytes content = 3; }
"""
PART = """
syntax = "proto3";
package me;
message Part { int64 weight = 1; }
"""
TYPE = ["--type", "me.Thing"]
THING = b"\x0a\x05hello\x12\x02\x08\x2a\x1a\x03abc"
"""title: "hello" parts { weight: 42 } content: "abc"."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder of a message, a stream of two, and the declaration of their type."""
    (tmp_path / "thing.proto").write_text(PROTO)
    (tmp_path / "part.proto").write_text(PART)
    (tmp_path / "thing.pb").write_bytes(THING)
    (tmp_path / "things").write_bytes(FRAMED["delimited"]([THING, THING[:7]]))
    return tmp_path


def field(message: Any, name: str, number: int, kind: int, type_name: str = "", *, repeated: bool = False) -> None:
    message.field.add(name=name, number=number, type=kind, type_name=type_name, label=3 if repeated else 1)


@pytest.fixture
def binpb(folder: Path) -> Path:
    """Descriptor set of the type, made without a compiler."""
    types = FileDescriptorSet()
    file = types.file.add(name="thing.proto", package="me", syntax="proto3")
    thing, part = file.message_type.add(name="Thing"), file.message_type.add(name="Part")
    field(thing, "title", 1, 9)
    field(thing, "parts", 2, 11, ".me.Part", repeated=True)
    field(thing, "content", 3, 12)
    field(part, "weight", 1, 3)
    (folder / "thing.binpb").write_bytes(types.SerializeToString())
    return folder / "thing.binpb"


def test_every_verb_reads_types_of_a_schema_file(call: Any, folder: Path, binpb: Path, tmp_path: Path) -> None:
    schema, thing = ["--schema", binpb, *TYPE], folder / "thing.pb"
    assert json.loads(call("info", thing, "--json", *schema).stdout)["type"] == "me.Thing"
    assert "title" in call("tree", thing, *schema).stdout
    assert json.loads(call("chunks", thing, "--json", *schema).stdout)[0]["type"] == "me.Thing"
    assert call("cat", thing, "parts[0].weight", *schema).stdout_bytes == b"42"
    assert call("merge", thing, "-", "--fields", "title", *schema).stdout_bytes == THING[:7]
    call("split", thing, tmp_path / "split", "--min-chunk", "1", "--json", *schema)
    assert call("cat", tmp_path / "split.cpb", "title", *schema).stdout_bytes == b"hello"
    assert json.loads(call("tensor", thing, "--json", *schema).stdout) == []
    assert call("verify", thing, *schema).stdout.startswith("well-formed")
    records = call("records", folder / "things", "--framing", "delimited", "--range", ":", "--json", *schema).stdout
    assert [json.loads(line)["title"] for line in records.splitlines()] == ["hello", "hello"]
    (folder / "other.pb").write_bytes(THING.replace(b"hello", b"HELLO"))
    told = json.loads(call("diff", thing, folder / "other.pb", "--json", *schema, code=8).stdout)
    assert [each["path"] for each in told["differences"] if each["what"] == "part"] == ["title"]


@pytest.mark.parametrize(
    "verb", [["info"], ["tree"], ["cat", "title"], ["merge", "out"], ["chunks"], ["tensor"], ["verify"], ["graph"]]
)
def test_a_chunked_file_of_unknown_type_needs_its_type(
    call: Any, folder: Path, binpb: Path, tmp_path: Path, verb: list[str]
) -> None:
    name, *more = verb
    file, out = tmp_path / "split.cpb", tmp_path / "out"
    call("split", folder / "thing.pb", tmp_path / "split", "--min-chunk", "1", "--schema", binpb, *TYPE)
    said = call(name, file, *(out if each == "out" else each for each in more), code=3).stderr
    assert "a message of unknown type; pass the root's type" in said
    assert not out.exists()
    assert "[0]" in call("tree", file, "records").stdout


def test_a_proto_file_is_compiled_with_what_it_imports(call: Any, folder: Path) -> None:
    schema = ["--schema", folder / "thing.proto", *TYPE]
    assert call("cat", folder / "thing.pb", "parts[0].weight", *schema).stdout_bytes == b"42"
    (folder / "part.proto").unlink()
    assert "part.proto" in call("cat", folder / "thing.pb", "title", *schema, code=3).stderr


def test_without_a_compiler_a_proto_file_is_told_how_to_be_compiled(
    call: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "grpc_tools", None)
    told = call("tree", folder / "thing.pb", "--schema", folder / "thing.proto", *TYPE, code=3).stderr
    assert "pip install grpcio-tools" in told
    assert "--descriptor_set_out" in told


def test_a_schema_file_that_is_of_no_use_is_named(call: Any, folder: Path, binpb: Path, store: str) -> None:
    thing = folder / "thing.pb"
    assert "me.Other" in call("tree", thing, "--schema", binpb, "--type", "me.Other", code=3).stderr
    assert str(thing) in call("tree", thing, "--schema", thing, code=2).stderr
    missing = folder / "none.binpb"
    assert str(missing) in call("tree", thing, "--schema", missing, code=4).stderr
    assert "--schema are only for files" in call("tree", store, "--schema", binpb, code=3).stderr


def test_types_are_kept_on_a_service(call: Any, folder: Path, binpb: Path, tmp_path: Path) -> None:
    put = json.loads(call("schema", "put", "mine", binpb, "--json").stdout)
    assert (put["name"], put["messages"], put["size"]) == ("mine", 2, binpb.stat().st_size)
    assert put in json.loads(call("schema", "ls", "--json").stdout)
    assert call("schema", "show", "mine").stdout.splitlines() == ["me.Part", "me.Thing"]
    call("schema", "show", "mine", "-o", tmp_path / "back.binpb")
    assert (tmp_path / "back.binpb").read_bytes() == binpb.read_bytes()
    call("push", folder / "thing.pb", *TYPE, "--tag", "thing:1")
    assert call("cat", "@thing:1", "parts[0].weight").stdout_bytes == b"42"
    call("schema", "rm", "mine")
    assert "mine" in call("schema", "show", "mine", code=4).stderr
    assert call("cat", "@thing:1", "title").stdout_bytes == b"hello"


def test_extensions_are_printed_by_paths_that_are_accepted(call: Any, tmp_path: Path) -> None:
    (tmp_path / "x.binpb").write_bytes(SET.SerializeToString())
    leaf = delimited(1, b"y" * 20)
    (tmp_path / "m.pb").write_bytes(delimited(101, delimited(101, leaf)) + delimited(102, leaf))
    schema = [tmp_path / "m.pb", "--schema", tmp_path / "x.binpb", "--type", "x.M"]

    def paths(listed: Any) -> list[str]:
        return [
            path for node in listed["items"] for path in (node["path"], *paths(node.get("children", {"items": []})))
        ]

    printed = paths(json.loads(call("tree", *schema, "--depth", "4", "--json").stdout))
    assert "[x.ext].[x.ext].bytes" in printed
    assert "[x.exts][0].bytes" in printed
    for path in printed:
        call("tree", schema[0], path, *schema[1:])
        call("merge", schema[0], "-", "--fields", path, *schema[1:])
    assert call("cat", schema[0], "[x.exts][0].bytes", "-o", "-", *schema[1:]).stdout_bytes == b"y" * 20
