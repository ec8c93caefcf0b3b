"""Write a model for examples: `python docs/make_model.py model.onnx` makes an ONNX file of 37 MB.

With `--layers 20` it is another one: 20 layers of 512 MiB, whose numbers are zeros but for the first thousand of each.
Such a file takes hardly any room on a disk, as most of it is a hole.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from protoslice import schema, varints

LAYERS = [("embedding", 4_000_000), ("attention", 3_000_000), ("feed_forward", 2_000_000), ("head", 250_000)]
_FACTORS = (2654435761, 2246822519, 3266489917)  # odd, so that products of 32 bits take all values
_ROWS, _COLUMNS = 32_768, 4096  # of a large layer
_RAW_DATA, _INITIALIZER, _GRAPH = 9, 5, 7  # numbers of fields
_TYPES = schema.bundled()


def main(path: str) -> None:
    """Write the model: the same bytes at every run."""
    model = _head()
    before = "input"
    for number, (name, count) in enumerate(LAYERS):
        weights = _weights(number, count).tobytes()
        model.graph.initializer.add(name=f"{name}.weight", data_type=1, dims=[count], raw_data=weights)
        before = _add_node(model.graph, name, before)
    with open(path, "wb") as file:
        file.write(model.SerializeToString(deterministic=True))


def write_large(path: str, layers: int) -> None:
    """Write a model of `layers` layers of 512 MiB as protobuf's wire format: no runtime can serialize it."""
    model = _head()
    before = "input"
    for number in range(layers):
        before = _add_node(model.graph, f"layers.{number}", before)
    graph, size = model.graph.SerializeToString(deterministic=True), 4 * _ROWS * _COLUMNS
    model.ClearField("graph")
    heads = list(_initializers(layers, size))
    with open(path, "wb") as file:
        file.write(model.SerializeToString(deterministic=True))
        file.write(_tag(_GRAPH, len(graph) + sum(map(len, heads)) + size * layers) + graph)
        for number, head in enumerate(heads):
            file.write(head + _weights(number, 1000).tobytes())
            file.seek(size - 4000, 1)
        file.truncate()


def _head() -> Any:
    model = _TYPES.message_class("onnx.ModelProto")()
    model.ir_version = 10
    model.producer_name = "protoslice docs"
    model.opset_import.add(version=21)
    model.graph.name = "tour"
    return model


def _add_node(graph: Any, name: str, before: str) -> str:
    node = graph.node.add(name=name, op_type="Mul", input=[before, f"{name}.weight"], output=[f"{name}.out"])
    return node.output[0]


def _initializers(layers: int, size: int) -> Iterator[bytes]:
    """Yield what is before the numbers of each layer."""
    tensor = _TYPES.message_class("onnx.TensorProto")(dims=[_ROWS, _COLUMNS], data_type=1)
    for number in range(layers):
        tensor.name = f"layers.{number}.weight"
        head = tensor.SerializeToString(deterministic=True) + _tag(_RAW_DATA, size)
        yield _tag(_INITIALIZER, len(head) + size) + head


def _tag(field: int, length: int) -> bytes:
    return bytes([field << 3 | 2]) + varints.write(length)


def _weights(number: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Return numbers around zero, most of them small, as trained weights are: the same on every machine."""
    numbers = np.arange(1, count + 1, dtype="<u4") * np.uint32(2 * number + 1)
    uniform = [(numbers * np.uint32(factor) >> np.uint32(8)) / 2**24 - 0.5 for factor in _FACTORS]
    return (sum(uniform[1:], uniform[0]) * 0.04 * (number + 1)).astype("<f4")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write an ONNX model of 37 MB.")
    parser.add_argument("path", help="file to write")
    parser.add_argument("--layers", type=int, help="write so many layers of 512 MiB, mostly zeros")
    given = parser.parse_args()
    main(given.path) if given.layers is None else write_large(given.path, given.layers)
