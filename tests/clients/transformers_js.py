"""transformers.js loads a tiny ONNX model with its tokenizer from a service, and computes."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any, Final

import httpx
from tests.clients.hub_npm import installed_by_npm
from tests.clients.running import HERE, good, serving
from tests.support.hub import commit

from protoslice import schema

VERSION: Final = "4.3.2"
WORDS: Final = ("[PAD]", "[UNK]", "hello", "world")
WIDTH: Final = 8
_CALLS: Final = "transformers_js.mjs"


def run(folder: Path) -> str:
    """Commit the model, and run `transformers_js.mjs` on an open and on a closed service."""
    home = installed_by_npm("@huggingface/transformers", VERSION)
    shutil.copy(HERE / _CALLS, home)  # modules are looked up next to the script
    vectors = [[float(row * WIDTH + column) for column in range(WIDTH)] for row in range(len(WORDS))]
    config = {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": WIDTH, "vocab_size": len(WORDS)}
    files = {
        "config.json": json.dumps(config).encode(),
        "tokenizer.json": json.dumps(_tokenizer()).encode(),
        "tokenizer_config.json": json.dumps({"tokenizer_class": "BertTokenizer", "pad_token": "[PAD]"}).encode(),
        "onnx/model.onnx": _model(vectors),
    }
    told = ""
    for closed in (False, True):
        with serving(folder, closed=closed) as service:
            headers = {"authorization": f"Bearer {service.token}"} if closed else {}
            with httpx.Client(base_url=service.url, headers=headers, timeout=60) as client:
                client.post("/api/repos/create", json={"organization": "ann", "name": "tiny"}).raise_for_status()
                commit(client, "models/ann/tiny", files).raise_for_status()
            asked = {"HUB_URL": service.url, "HF_TOKEN": service.token, "EXPECTED": json.dumps(vectors[2:])}
            asked["CACHE"] = str(folder / f"cache-{closed}")
            told = good("node", home / _CALLS, folder=folder, env=asked).splitlines()[-1]
    return f"@huggingface/transformers {VERSION}, {told}"


def _tokenizer() -> dict[str, Any]:
    """A tokenizer that splits text at spaces."""
    special = [
        {"id": id, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for id, word in enumerate(WORDS[:2])
    ]  # fmt: skip
    vocabulary = {word: id for id, word in enumerate(WORDS)}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    }  # fmt: skip


def _model(vectors: list[list[float]]) -> bytes:
    """Return a model that outputs the vector of each word."""
    model: Any = schema.bundled().message_class("onnx.ModelProto")(ir_version=9)
    model.opset_import.add(version=17)
    model.graph.name = "words"
    raw = b"".join(struct.pack(f"<{WIDTH}f", *vector) for vector in vectors)
    model.graph.initializer.add(name="vectors", data_type=1, dims=[len(vectors), WIDTH], raw_data=raw)
    model.graph.node.add(op_type="Gather", input=["vectors", "input_ids"], output=["last_hidden_state"])
    for name, kind, values, dims in (
        ("input_ids", 7, model.graph.input, ["b", "n"]),
        ("attention_mask", 7, model.graph.input, ["b", "n"]),
        ("last_hidden_state", 1, model.graph.output, ["b", "n", WIDTH]),
    ):
        info = values.add(name=name)
        info.type.tensor_type.elem_type = kind
        for dim in dims:
            info.type.tensor_type.shape.dim.add(**({"dim_param": dim} if isinstance(dim, str) else {"dim_value": dim}))
    return bytes(model.SerializeToString())
