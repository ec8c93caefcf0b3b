"""Warnings about chunks that TensorFlow's Merger could not read."""

from __future__ import annotations

from typing import Any

import pytest

from protoslice import schema
from protoslice.splitting import tensorflow_readable
from protoslice.splitting.metadata import chunk_metadata, chunked_message

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
    (GRAPH, [99], "the message: the tags do not name a field here"),
    (GRAPH, [*NODE, ("index", 0)], "node[0]: the tags do not name a field here"),
    (GRAPH, [1], "node: a repeated message without an index stops the process"),
    (GRAPH, [2, ("index", 0)], "library: an index or key where there can be none stops the process"),
    (GRAPH, [*NODE, 5], "node[0].attr: a map without a key stops the process"),
    (GRAPH, [*NODE, 5, ("i64", 1)], "node[0].attr[1]: the kind of the key is not that of the map"),
    (GRAPH, [*NODE, 3], "node[0].input: elements that are no messages stop the process"),
    (GRAPH, [3], "version: a number is read as text, which stops the process where it does not fit"),
    (FUNCTION, [4, ("s", "r")], 'ret["r"]: a map\'s value that is not a message stops the process'),
    (OP, [3], "type: a chunk without a required field is not parsed"),
    (OP, [], "the message: a part that may lack required fields is not parsed"),
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
        "library: chunk 1 is not there",
    ]


def test_parts_without_chunks() -> None:
    assert tensorflow_readable(field([], None), GRAPH) == ["the message: a part without a chunk is read as chunk 0"]
    assert tensorflow_readable(field([], 0, [2]), GRAPH) == [
        "the message: chunks inside a part of the message itself are passed over"
    ]
    text = field([*NODE, 1], None)
    assert tensorflow_readable(text, GRAPH) == ["node[0].name: a value without a chunk is read from chunk 0"]


def test_order_below_map_keys_is_not_certain() -> None:
    value = [*NODE, 5, ("s", "value")]
    both = field(value)
    both.MergeFrom(field([*value, 8], 1))
    assert tensorflow_readable(both, GRAPH) == [
        'node[0].attr["value"].tensor: below a map key, the order with the chunk above it is not certain'
    ]
