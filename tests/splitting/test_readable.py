"""Warnings about chunks that TensorFlow's Merger could not read."""

from __future__ import annotations

from typing import Any

import pytest

from protoslice import schema
from protoslice.splitting import tensorflow_readable
from protoslice.splitting.paths import chunk_metadata, chunked_message

GRAPH = schema.bundled().descriptor("tensorflow.GraphDef")
FUNCTION = schema.bundled().descriptor("tensorflow.FunctionDef")
OP = schema.bundled().descriptor("paddle.framework.proto.OpDesc")


def field(tags: list[Any], chunk: int | None = 0, below: list[Any] | None = None) -> Any:
    message = chunked_message()
    added = message.chunked_fields.add()
    for tag in tags:
        index = added.field_tag.add()
        if isinstance(tag, int):
            index.field = tag
        elif tag[0] == "index":
            index.index = tag[1]
        else:
            setattr(index.map_key, *tag)
    if chunk is not None:
        added.message.chunk_index = chunk
    if below is not None:
        added.message.chunked_fields.add().field_tag.add().field = below[0]
    return message


NODE: list[Any] = [1, ("index", 0)]
CASES: list[tuple[Any, list[Any], str]] = [
    (GRAPH, [99], "the message: the field tags do not match any field"),
    (GRAPH, [*NODE, ("index", 0)], "node[0]: the field tags do not match any field"),
    (GRAPH, [1], "node: TensorFlow crashes on a repeated message field whose tags have no index"),
    (GRAPH, [2, ("index", 0)], "library: TensorFlow crashes on an index or key of a singular field"),
    (GRAPH, [*NODE, 5], "node[0].attr: TensorFlow crashes on a map field whose tags have no key"),
    (GRAPH, [*NODE, 5, ("i64", 1)], "node[0].attr[1]: the key's type is not that of the map"),
    (GRAPH, [*NODE, 3], "node[0].input: TensorFlow crashes on repeated elements that are not messages"),
    (GRAPH, [3], "version: TensorFlow reads the chunk of a number as text, and crashes if the number is out of range"),
    (FUNCTION, [4, ("s", "r")], 'ret["r"]: TensorFlow crashes on a map value that is not a message'),
    (OP, [3], "type: TensorFlow does not parse a chunk that lacks a required field"),
    (OP, [], "the message: TensorFlow cannot parse a part of a message type with required fields"),
]


@pytest.mark.parametrize(("descriptor", "tags", "reason"), CASES, ids=[case[2] for case in CASES])
def test_reasons(descriptor: Any, tags: list[Any], reason: str) -> None:
    assert tensorflow_readable(field(tags), descriptor) == [reason]


def test_chunks_have_to_be_there() -> None:
    metadata = chunk_metadata()
    metadata.version.join_version = 1
    metadata.chunks.add(size=1 << 31)
    metadata.message.MergeFrom(field([2], 1))
    assert tensorflow_readable(metadata, GRAPH) == [
        "join_version is 1, where TensorFlow writes 0",
        "chunk 0 has 2147483648 bytes, over 2147483647",
        "library: chunk 1 does not exist",
    ]


def test_parts_without_chunks() -> None:
    assert tensorflow_readable(field([], None), GRAPH) == [
        "the message: this part names no chunk, so TensorFlow would read chunk 0"
    ]
    assert tensorflow_readable(field([], 0, [2]), GRAPH) == [
        "the message: TensorFlow ignores chunks nested in a part that has no field tag"
    ]
    text = field([*NODE, 1], None)
    assert tensorflow_readable(text, GRAPH) == [
        "node[0].name: this value names no chunk, so TensorFlow would read chunk 0"
    ]


def test_order_below_map_keys_is_not_certain() -> None:
    value = [*NODE, 5, ("s", "value")]
    both = field(value)
    both.MergeFrom(field([*value, 8], 1))
    assert tensorflow_readable(both, GRAPH) == [
        'node[0].attr["value"].tensor: this chunk is below a map key, and TensorFlow may merge it before the chunk '
        "that contains it"
    ]
