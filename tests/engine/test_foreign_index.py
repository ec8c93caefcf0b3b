"""An index that somebody else made up: its checksums are right, and what it says is not."""

from __future__ import annotations

import struct
from typing import Any

import pytest

import protoslice
from protoslice import _core
from protoslice.errors import LimitExceeded
from protoslice.schema import bundled

GRAPH = "tensorflow.GraphDef"
LENGTHS = 32
"""Offset in the header of the lengths of the sections."""
HEADER = 88
PAGE = 65536
NODE = 80


def graph() -> bytes:
    message: Any = bundled().message_class(GRAPH)()
    message.node.add(name="n").attr["value"].tensor.tensor_content = bytes(50_000)
    return bytes(message.SerializeToString())


def crc(data: bytes) -> bytes:
    sums = _core.BlockSums()
    sums.update(data)
    return sums.finish()


def with_parents(index: bytes, parents: list[int]) -> bytes:
    """`index`, whose nodes but the root stand in `parents`, with checksums to match."""
    types, nodes, *_ = lengths = struct.unpack_from("<7Q", index, LENGTHS)
    body = HEADER + 4 * -(-sum(lengths) // PAGE) + 4
    assert nodes == NODE * (len(parents) + 1)
    made = bytearray(index)
    for number, parent in enumerate(parents, 1):
        struct.pack_into("<I", made, body + types + NODE * number, parent)
    made[HEADER : body - 4] = crc(bytes(made[body:]))
    made[body - 4 : body] = crc(bytes(made[: body - 4]))
    return bytes(made)


def test_the_largest_fields_of_an_index_are_told_with_their_paths() -> None:
    data = graph()
    index = protoslice.open(data, GRAPH).index_bytes
    again = with_parents(index, [0, 1, 2, 3])
    assert again == index, "as it was"
    assert protoslice.open(data, GRAPH, index=again).largest(1)[0].path.endswith("tensor_content")


@pytest.mark.parametrize("parents", [[1, 2, 3, 4], [4, 1, 2, 3], [2, 1, 2, 3]])
def test_a_message_that_stands_in_itself_is_an_error(parents: list[int]) -> None:
    data = graph()
    index = with_parents(protoslice.open(data, GRAPH).index_bytes, parents)
    with pytest.raises(LimitExceeded, match="deep"):
        protoslice.open(data, GRAPH, index=index).largest(1)
