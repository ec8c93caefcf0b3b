"""Files that engines load: each unmodified engine reads the service's files."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from protoslice import schema
from protoslice.client import Client

URL = os.environ["SERVICE"]
RANDOM = np.random.default_rng(11)
WIDTH, LAYERS = 64, 4


def onnx_model() -> tuple[bytes, list[Any]]:
    """Make a model of some layers, and return it with its weights."""
    types = schema.bundled()
    model: Any = types.message_class("onnx.ModelProto")(ir_version=9)
    model.opset_import.add(version=17)
    weights, before = [], "x"
    for number in range(LAYERS):
        weights.append(RANDOM.standard_normal((WIDTH, WIDTH)).astype("<f4") / 8)
        raw = weights[-1].tobytes()
        model.graph.initializer.add(name=f"w{number}", data_type=1, dims=[WIDTH, WIDTH], raw_data=raw)
        model.graph.node.add(op_type="MatMul", input=[before, f"w{number}"], output=[f"h{number}"])
        before = f"h{number}"
    for name, values in (("x", model.graph.input), (before, model.graph.output)):
        info = values.add(name=name)
        info.type.tensor_type.elem_type = 1
        info.type.tensor_type.shape.dim.add(dim_param="n")
        info.type.tensor_type.shape.dim.add(dim_value=WIDTH)
    model.graph.name = "layers"
    return bytes(model.SerializeToString()), weights


def onnxruntime(client: Client, folder: Path) -> str:
    """Check that a model with external data, and a part of it, compute the same as NumPy."""
    import onnxruntime as runtime

    data, weights = onnx_model()
    client.push(data, filename="layers.onnx", tags=["onnx"])
    client.download("onnx", folder / "whole", view="onnx")
    client.download("onnx", folder / "part.onnx", view="onnx/single.onnx", params=[("inputs", "h1"), ("outputs", "h2")])
    given = RANDOM.standard_normal((3, WIDTH)).astype("<f4")
    whole = runtime.InferenceSession(folder / "whole/model.onnx").run(None, {"x": given})[0]
    expected = given
    for weight in weights:
        expected = expected @ weight
    assert np.allclose(whole, expected, rtol=1e-4, atol=1e-5)
    part = runtime.InferenceSession(folder / "part.onnx").run(None, {"h1": given})[0]
    assert np.allclose(part, given @ weights[2], rtol=1e-4, atol=1e-5)
    return "a model with external data and a part of it"


def safetensors(client: Client, folder: Path) -> str:
    """Check that `safe_open` reads an ONNX model, aligned and converted."""
    from safetensors import safe_open

    data, weights = onnx_model()
    client.push(data, filename="layers.onnx", tags=["st"])
    client.download("st", folder / "a.safetensors", view="safetensors", params=[("align", "4096")])
    client.download("st", folder / "half.safetensors", view="safetensors", params=[("dtype", "F16")])
    with safe_open(folder / "a.safetensors", "np") as file:
        assert all(np.array_equal(file.get_tensor(f"w{n}"), weight) for n, weight in enumerate(weights))
    with safe_open(folder / "half.safetensors", "np") as file:
        assert all(np.array_equal(file.get_tensor(f"w{n}"), w.astype("f2")) for n, w in enumerate(weights))
    return "an ONNX model, aligned and converted"


def gguf(client: Client, folder: Path) -> str:
    """Check that the reader's blocks and floats equal the service's and those of the pulled file."""
    import gguf as library

    kinds = library.GGMLQuantizationType
    writer = library.GGUFWriter(folder / "a.gguf", "llama")
    for kind in (kinds.Q4_0, kinds.Q5_1, kinds.Q8_0, kinds.BF16):
        quantized = library.quants.quantize(RANDOM.standard_normal((8, 256)).astype("<f4"), kind)
        writer.add_tensor(kind.name, quantized, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    client.push(folder / "a.gguf", tags=["gguf"])
    client.download("gguf", folder / "pulled.gguf")
    for tensor in library.GGUFReader(folder / "pulled.gguf").tensors:
        if tensor.name != "BF16":  # NumPy has no such type
            assert np.array_equal(client.tensor("gguf", tensor.name), tensor.data)
        floats = library.quants.dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(client.tensor("gguf", tensor.name, dequantize=True), floats)
    return "blocks and floats of four types"


def transformers(client: Client, folder: Path) -> str:
    """Check that a tiny model gives the same numbers after a push and a pull, in other shards too."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(3)
    model: Any = GPT2LMHeadModel(GPT2Config(vocab_size=60, n_positions=16, n_embd=16, n_layer=2, n_head=2))
    model.save_pretrained(folder / "mine", max_shard_size="20KB")
    client.push(folder / "mine", tags=["gpt2"])
    client.download("gpt2", folder / "pulled")
    client.download("gpt2", folder / "cut", view="safetensors", params=[("shards", "30000")])
    (folder / "cut/config.json").write_bytes((folder / "mine/config.json").read_bytes())
    words = torch.arange(12).reshape(1, 12)
    model.eval()
    with torch.no_grad():
        expected = model(words).logits
        for name in ("pulled", "cut"):
            found: Any = GPT2LMHeadModel.from_pretrained(folder / name)
            assert torch.equal(found(words).logits, expected), name
    return "a tiny GPT-2, as pushed and in other shards"


def runai(client: Client, folder: Path) -> str:
    """Check that Run:ai's streamer reads an aligned file."""
    from runai_model_streamer import SafetensorsStreamer

    data, weights = onnx_model()
    client.push(data, filename="layers.onnx", tags=["runai"])
    client.download("runai", folder / "a.safetensors", view="safetensors", params=[("align", "4096")])
    with SafetensorsStreamer() as streamer:
        streamer.stream_file(str(folder / "a.safetensors"))
        found = {name: tensor.numpy().copy() for name, tensor in streamer.get_tensors()}
    assert all(np.array_equal(found[f"w{n}"], weight) for n, weight in enumerate(weights))
    return "an aligned file"


CALLS: dict[str, tuple[str, Callable[[Client, Path], str]]] = {
    "onnxruntime": ("onnxruntime", onnxruntime),
    "safetensors": ("safetensors", safetensors),
    "gguf": ("gguf", gguf),
    "transformers": ("transformers", transformers),
    "runai": ("runai-model-streamer", runai),
}
"""The package and the call of each engine."""


def main(name: str) -> None:
    """Run the call of an engine, and print its version."""
    package, call = CALLS[name]
    with tempfile.TemporaryDirectory() as folder, Client(URL) as client:
        print(f"{package} {version(package)}: {call(client, Path(folder))}: fine")


if __name__ == "__main__":
    main(sys.argv[1])
