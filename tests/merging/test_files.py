"""Files that are not what their metadata says."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from tests.support.golden import CHUNKED

from protoslice import schema
from protoslice.errors import CorruptModel, InconsistentChunks, ProtosliceError, Unsupported
from protoslice.merging import Merger
from protoslice.riegeli import RecordWriter
from protoslice.splitting.paths import chunk_metadata


def graph() -> Any:
    return schema.bundled().message_class("tensorflow.GraphDef")()


def metadata(size: int, offset: int) -> Any:
    found = chunk_metadata()
    found.chunks.add(size=size, offset=offset)
    found.message.chunk_index = 0
    return found


def write(folder: Path, *records: bytes) -> Path:
    with RecordWriter(folder / "x.cpb", options="uncompressed") as writer:
        writer.write_records(records)
    return folder / "x"


@pytest.mark.parametrize(
    ("size", "offset", "reason"),
    [
        (6, 64, "should have 6 bytes, but its record has 5"),
        (5, 63, "no record starts there"),
        (5, 1 << 40, "no record starts there"),
        (5, (1 << 64) - 1, "no record starts there"),
    ],
)
def test_chunks_that_are_not_where_they_should_be(size: int, offset: int, reason: str, tmp_path: Path) -> None:
    prefix, message = write(tmp_path, b"\x0a\x03\x0a\x01x", metadata(size, offset).SerializeToString()), graph()
    with pytest.raises(InconsistentChunks, match=reason) as caught:
        Merger.read(prefix, message)
    assert caught.value.path == "the root message"
    assert message == graph()


@pytest.mark.parametrize("size", [0, 5])
def test_a_size_may_be_left_out(size: int, tmp_path: Path) -> None:
    message = graph()
    Merger.read(write(tmp_path, b"\x0a\x03\x0a\x01x", metadata(size, 64).SerializeToString()), message)
    assert message.node[0].name == "x"


def test_files_without_metadata(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="without records"):
        Merger.read(write(tmp_path), graph())
    with pytest.raises(Unsupported, match=r"its last record is not a ChunkMetadata"):
        Merger.read(write(tmp_path, b"\xff"), graph())
    (tmp_path / "y.pb").write_bytes(b"\xff")
    with pytest.raises(CorruptModel, match=r"y\.pb is not a tensorflow\.GraphDef"):
        Merger.read(tmp_path / "y", graph())


def test_damaged_files_give_errors_and_leave_the_message_alone(tmp_path: Path) -> None:
    data = (CHUNKED / "graph_many_nodes.max20000.cpb").read_bytes()
    rng = random.Random(7)
    failed = 0
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        (tmp_path / "x.cpb").write_bytes(damaged[: rng.randrange(len(data))] if rng.random() < 0.2 else damaged)
        message = graph()
        try:
            Merger.read(tmp_path / "x", message)
        except ProtosliceError:
            failed += 1
            assert message == graph()
    assert failed > 100


def test_damaged_metadata_gives_errors_and_leaves_the_message_alone() -> None:
    chunks = [graph(), b"text", graph()]
    rng = random.Random(8)
    seeds = [bytes.fromhex(text) for text in (
        "08001208 0a020801 1a020801",
        "0800120a 0a020801 0a021800 1a020800",
        "08001216 0a020801 0a021800 0a020805 0a071205 0a0376616c 1a020801",
    )]  # fmt: skip
    for _ in range(2000):
        damaged = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        message, found = graph(), chunk_metadata().message
        try:
            found.MergeFromString(bytes(damaged))
        except DecodeError:
            continue
        try:
            Merger.merge(chunks, found, message)
        except ProtosliceError:
            assert message == graph()
