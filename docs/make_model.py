"""Write a model for examples: `python docs/make_model.py model.onnx` makes an ONNX file of 37 MB."""

from __future__ import annotations

import argparse

from protoslice import schema

LAYERS = [("embedding", 4_000_000), ("attention", 3_000_000), ("feed_forward", 2_000_000), ("head", 250_000)]


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
        model.graph.initializer.add(
            name=f"{name}.weight", data_type=1, dims=[count], raw_data=bytes([number]) * 4 * count
        )
        node = model.graph.node.add(name=name, op_type="Mul", input=[before, f"{name}.weight"], output=[f"{name}.out"])
        before = node.output[0]
    with open(path, "wb") as file:
        file.write(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write an ONNX model of 37 MB.")
    parser.add_argument("path", help="file to write")
    main(parser.parse_args().path)
