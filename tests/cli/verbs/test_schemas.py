"""Types of one's own: without a compiler, and with extensions."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli import makers
from tests.engine.test_printed_paths import SET
from tests.support.canonical import delimited


def test_without_a_compiler_a_proto_file_is_told_how_to_be_compiled(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    makers.thing(tmp_path)
    monkeypatch.setitem(sys.modules, "grpc_tools", None)
    told = call(
        "tree", tmp_path / "thing.pb", "--schema", tmp_path / "thing.proto", "--type", "me.Thing", code=3
    ).stderr
    assert "pip install grpcio-tools" in told
    assert "--descriptor_set_out" in told


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
