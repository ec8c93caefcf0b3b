"""Files that TensorFlow wrote: read, merged, and split again."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from tests.support.golden import CHUNKED

from protoslice import schema
from protoslice.merging import Merger, open_chunks
from protoslice.splitting import AutoSplitter, GraphDefSplitter, SavedModelSplitter, SplitPolicy, tensorflow_readable

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
