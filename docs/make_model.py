"""Write a model for examples: `python docs/make_model.py model.onnx` makes an ONNX file of 37 MB."""

from __future__ import annotations

import argparse

import numpy as np

from protoslice import schema

LAYERS = [("embedding", 4_000_000), ("attention", 3_000_000), ("feed_forward", 2_000_000), ("head", 250_000)]
_FACTORS = (2654435761, 2246822519, 3266489917)  # odd, so that products of 32 bits take all values


def main(path: str) -> None:
    """Write the model: the same bytes at every run."""
    types = schema.bundled()
    model = types.message_class("onnx.ModelProto")()
    model.ir_version = 10
    model.producer_name = "protoslice docs"
    model.opset_import.add(version=21)
    model.graph.name = "tour"
    before = "input"
    for number, (name, count) in enumerate(LAYERS):
        weights = _weights(number, count).tobytes()
        model.graph.initializer.add(name=f"{name}.weight", data_type=1, dims=[count], raw_data=weights)
        node = model.graph.node.add(name=name, op_type="Mul", input=[before, f"{name}.weight"], output=[f"{name}.out"])
        before = node.output[0]
    with open(path, "wb") as file:
        file.write(model.SerializeToString(deterministic=True))


def _weights(number: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Return numbers around zero, most of them small, as trained weights are: the same on every machine."""
    numbers = np.arange(1, count + 1, dtype="<u4") * np.uint32(2 * number + 1)
    uniform = [(numbers * np.uint32(factor) >> np.uint32(8)) / 2**24 - 0.5 for factor in _FACTORS]
    return (sum(uniform[1:], uniform[0]) * 0.04 * (number + 1)).astype("<f4")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write an ONNX model of 37 MB.")
    parser.add_argument("path", help="file to write")
    main(parser.parse_args().path)
