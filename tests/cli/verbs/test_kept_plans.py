"""The command line on a chunked proto: the chunks that it came with, unless sizes are given."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.support.golden import CHUNKED

import protoslice

FILE = CHUNKED / "graph_many_nodes.max20000.cpb"


def _chunks(call: Any, *args: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(call("chunks", *args, "--json").stdout)
    return [{name: value for name, value in chunk.items() if name != "sha256"} for chunk in found]


def test_chunks_are_those_that_came(call: Any, service: str) -> None:
    with protoslice.open(FILE) as proto:
        sizes = [chunk.size for chunk in proto.chunks]
        anew = [chunk.size for chunk in proto.split(min_chunk=500)]
    assert [chunk["size"] for chunk in _chunks(call, FILE)] == sizes
    assert [chunk["size"] for chunk in _chunks(call, FILE, "--min-chunk", 500)] == anew != sizes
    at = call("push", FILE, "--url", service).stdout.strip()
    assert _chunks(call, at) == _chunks(call, FILE)
    at = call("push", FILE, "--url", service, "--plan", "policy", "--min-chunk", 500).stdout.strip()
    assert _chunks(call, at) == _chunks(call, FILE, "--min-chunk", 500)
    assert "OK: 1 file, " in call("verify", at).stdout


def test_info_says_so(call: Any, service: str) -> None:
    at = call("push", FILE, "--url", service).stdout.strip()
    for name in (FILE, at):
        assert re.search(r"^chunks +7 \(as in the chunked file\)$", call("info", name).stdout, re.MULTILINE)
    assert json.loads(call("info", FILE, "--json").stdout)["own_chunks"] is True


def test_split_keeps_the_file(call: Any, tmp_path: Path) -> None:
    call("split", FILE, tmp_path / "same")
    assert (tmp_path / "same.cpb").read_bytes() == FILE.read_bytes()
    call("split", FILE, tmp_path / "anew", "--min-chunk", "500")
    assert (tmp_path / "anew.cpb").read_bytes() != FILE.read_bytes()
    call("split", FILE, tmp_path / "whole", "--min-chunk", "1MiB")
    assert (tmp_path / "whole.pb").stat().st_size > 0


def test_verify_reads_the_chunks_as_the_root_passes_by(call: Any, service: str) -> None:
    at = call("push", FILE, "--url", service).stdout.strip()
    assert "OK: 1 file, 7 chunks" in call("verify", at).stdout
    assert call("diff", FILE, at).stdout == "equal\n"
