"""The measured models: a few large constants, many small nodes, and a stream that is never saved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.protos.writer import varint

from protoslice import schema

GRAPH = "tensorflow.GraphDef"
CONSTANTS = 8


def big_constants(path: Path, size: int) -> None:
    """Write a GraphDef of eight constants, which have `size` bytes together."""
    graph: Any = schema.bundled().message_class(GRAPH)()
    for number in range(CONSTANTS):
        node = graph.node.add(name=f"constant_{number}", op="Const")
        node.attr["dtype"].type = 1
        tensor = node.attr["value"].tensor
        tensor.dtype = 1
        tensor.tensor_shape.dim.add(size=size // CONSTANTS // 4)
        tensor.tensor_content = bytes(range(251)) * (size // CONSTANTS // 251)
    path.write_bytes(graph.SerializeToString())


def small_nodes(path: Path, count: int) -> None:
    """Write a GraphDef of `count` nodes of about half a kilobyte each, like a frozen model's."""
    graph: Any = schema.bundled().message_class(GRAPH)()
    for number in range(count):
        scope = f"model/encoder/layer_{number // 40}/attention/block_{number // 5 % 8}"
        node = graph.node.add(name=f"{scope}/op_{number}", op="BatchMatMulV2" if number % 3 else "Reshape")
        node.input.extend([f"{scope}/op_{number - 1}", f"{scope}/op_{number - 2}"])
        node.device = "/job:localhost/replica:0/task:0/device:GPU:0"
        node.attr["T"].type = 1
        node.attr["adj_x"].b = False
        node.attr["adj_y"].b = bool(number % 2)
        shape = node.attr["_output_shapes"].list.shape.add()
        for size in (32, 128, 768):
            shape.dim.add(size=size)
        node.attr["_class"].list.s.append(f"loc:@{scope}/kernel/initializer/weights".encode())
        node.attr["_origin"].s = f"layers/{scope}/call.py:{number}".encode() * 2
    path.write_bytes(graph.SerializeToString())


def stream_of_constants(count: int, each: int) -> Iterator[bytes]:
    """Yield a GraphDef of `count` constants of `each` bytes, in pieces of at most 64 KiB that share their memory."""
    zeros = bytes(64 << 10)
    for number in range(count):
        tensor = b"\x08\x01\x22" + varint(each)
        value = b"\x42" + varint(len(tensor) + each) + tensor
        entry = b"\x0a\x05value\x12" + varint(len(value) + each) + value
        node = b"\x0a\x08" + b"c%07d" % number + b"\x12\x05Const\x2a" + varint(len(entry) + each) + entry
        yield b"\x0a" + varint(len(node) + each) + node
        for start in range(0, each, len(zeros)):
            yield zeros[: min(len(zeros), each - start)]
