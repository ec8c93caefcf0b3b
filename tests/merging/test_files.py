"""Files that TensorFlow wrote, and files that are not what their metadata says."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from tests.support.golden import CHUNKED

from protoslice import schema
from protoslice.errors import CorruptModel, InconsistentChunks, ProtosliceError, Unsupported
from protoslice.merging import Merger, open_chunks
from protoslice.riegeli import RecordWriter
from protoslice.splitting import AutoSplitter, GraphDefSplitter, SavedModelSplitter, SplitPolicy, tensorflow_readable
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


# Files that TensorFlow wrote: read, merged, and split again.

CASES = json.loads((CHUNKED / "expected.json").read_text())
TYPES = {"graphdef": "tensorflow.GraphDef", "savedmodel": "tensorflow.SavedModel"}

each_case = pytest.mark.parametrize("case", CASES, ids=[case["file"] for case in CASES])


def new(case: dict[str, Any]) -> Any:
    kind = "graphdef" if case["kind"] == "graphdef" else "savedmodel"
    return schema.bundled().message_class(TYPES[kind])()


def original(case: dict[str, Any]) -> Any:
    message = new(case)
    message.MergeFromString((CHUNKED / case["original"]).read_bytes())
    return message


def as_noted(message: Any, note: str | None) -> Any:
    """The original with the differences that the note of `expected.json` tells of."""
    if note and "empty GraphDef.library" in note:
        message.library.SetInParent()
    if note and "float_val constants come back as tensor_content" in note:
        for node in message.node:
            tensor = node.attr["value"].tensor
            if node.op == "Const" and len(tensor.float_val) > 100:
                tensor.tensor_content = struct.pack(f"<{len(tensor.float_val)}f", *tensor.float_val)
                del tensor.float_val[:]
    return message


@each_case
def test_merging_gives_the_original_but_for_what_is_noted(case: dict[str, Any]) -> None:
    message = new(case)
    Merger.read(CHUNKED / case["file"].removesuffix(".cpb"), message)
    assert message == as_noted(original(case), case["merge_note"])


def tags(field: Any) -> list[list[Any]]:
    found = []
    for tag in field.field_tag:
        if tag.WhichOneof("kind") == "map_key":
            name = tag.map_key.WhichOneof("type")
            number = tag.map_key.DESCRIPTOR.fields_by_name[name].number
            found.append(["map_key", number, getattr(tag.map_key, name)])
        else:
            found.append([tag.WhichOneof("kind"), getattr(tag, tag.WhichOneof("kind"))])
    return found


def tree(message: Any) -> dict[str, Any]:
    index = message.chunk_index if message.HasField("chunk_index") else None
    return {
        "chunk_index": index,
        "fields": [{"tag": tags(field), "message": tree(field.message)} for field in message.chunked_fields],
    }


@each_case
def test_the_metadata_and_the_chunks_are_those_of_the_manifest(case: dict[str, Any]) -> None:
    with open_chunks(str(CHUNKED / case["file"])) as (chunks, metadata):
        kinds = {1: "MESSAGE", 2: "BYTES"}
        infos = [{"type": kinds[each.type], "size": each.size, "offset": each.offset} for each in metadata.chunks]
        assert infos == case["metadata"]["chunks"]
        assert tree(metadata.message) == case["metadata"]["message"]
        digests = [hashlib.sha256(chunk).hexdigest() for chunk in chunks]
        assert digests == [record["sha256"] for record in case["records"][:-1]]
        assert tensorflow_readable(metadata, new(case).DESCRIPTOR) == []


@each_case
@pytest.mark.parametrize("options", ["", "uncompressed", "zstd:3", "transpose"])
def test_what_is_written_anew_is_read_back(case: dict[str, Any], options: str, tmp_path: Path) -> None:
    message, merged = original(case), new(case)
    splitter = GraphDefSplitter if case["kind"] == "graphdef" else SavedModelSplitter
    policy = SplitPolicy.greedy(case["max_size"])
    assert splitter(message, policy=policy).write(tmp_path / "x", options) == str(tmp_path / "x.cpb")
    Merger.read(tmp_path / "x", merged)
    assert merged == message
    assert [path.name for path in tmp_path.iterdir()] == ["x.cpb"]


@each_case
def test_splitting_by_itself_gives_small_chunks_that_merge(case: dict[str, Any]) -> None:
    message, merged = original(case), new(case)
    chunks, chunked = AutoSplitter(message, policy=SplitPolicy(200, 2000)).split()
    assert max(chunk.ByteSize() for chunk in chunks if not isinstance(chunk, bytes)) <= 2000
    assert tensorflow_readable(chunked, message.DESCRIPTOR) == []
    Merger.merge(chunks, chunked, merged)
    assert merged == message
    assert message == original(case)
