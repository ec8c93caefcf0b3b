"""Chunks above 2 GiB, which no protobuf runtime parses, are written with a warning."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from tests.support.canonical import varint

import protoslice
from protoslice.defaults import LARGEST_MESSAGE
from protoslice.library.proto import LargeChunkWarning, size_problem

PATH = "graph.initializer[0].raw_data"


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """An ONNX model with one value of 2 GiB, in a hole of the file."""
    data = b""
    size = LARGEST_MESSAGE + 1
    for number in (9, 5, 7):
        data = varint(number << 3 | 2) + varint(size + len(data)) + data
    path = tmp_path / "large.onnx"
    with path.open("wb") as file:
        file.write(data)
        file.truncate(len(data) + size)
    return path


def test_the_library_warns_of_a_chunk_that_no_runtime_parses(large: Path) -> None:
    with protoslice.open(large) as proto:
        with pytest.warns(LargeChunkWarning, match=r"chunk graph\.initializer\[0\]\.raw_data has 2147483648 bytes"):
            proto.chunks.cpb()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert proto.split(min_chunk=1 << 40, max_chunk=1 << 41).problem is not None


def test_the_command_line_names_the_chunk(call: Any, large: Path) -> None:
    done = call("chunks", large, "--json")
    assert [chunk["path"] for chunk in json.loads(done.stdout)][-1] == PATH
    assert f"note: chunk {PATH} has 2147483648 bytes" in done.stderr


def test_a_split_that_writes_such_a_chunk_says_so(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protoslice.library.proto.LARGEST_MESSAGE", 100)
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x3a\xb2\x01\x2a\xaf\x01\x4a\xac\x01" + bytes(172))
    for least in ("64B", "1MiB"):  # several chunks, and a single one
        done = call("split", path, tmp_path / "out", "--min-chunk", least)
        assert done.stderr.count("protobuf runtimes parse at most 100") == 1, done.stderr


def test_size_problem_names_only_chunks_that_runtimes_cannot_parse() -> None:
    assert PATH in (size_problem(PATH, LARGEST_MESSAGE + 1) or "")
    assert size_problem(PATH, LARGEST_MESSAGE) is None
