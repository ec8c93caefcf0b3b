"""Models of other formats through `@safetensors/`, fetched by boto3 and read by safetensors for numpy."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from tests.server.registries.s3.test_clients import client
from tests.support.golden import MODELS, folder
from tests.support.serve import serve

from protoslice.client import Client

CASES = (
    "tf_checkpoint_object",
    "tf_ckpt_sharded",
    "tf_sm_keras",
    "gguf_splits",
    "gguf_big_endian",
    "onnx_external_many",
)
"""The models without elements that safetensors refuses to read into numpy, such as BF16."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve() as live:
        yield live.url


@pytest.mark.parametrize("case", CASES)
def test_view_has_every_tensor_and_no_other_weights(url: str, case: str, tmp_path: Path) -> None:
    tag, model = case.replace("_", "-"), json.loads((MODELS / case / "expected.json").read_text())
    with Client(url) as service:
        service.push(folder(case), root=model["root"], tags=[tag], resume=False)
    prefix = f"tags/{tag}/@safetensors/"
    with closing(client(url)) as s3:
        keys = [each["Key"] for each in s3.list_objects_v2(Bucket="default", Prefix=prefix)["Contents"]]
        s3.download_file("default", f"{prefix}model.safetensors", str(tmp_path / "model.safetensors"))
    assert not [key for key in keys if ".data-" in key or key.endswith((".bin", ".gguf", ".index"))]
    read = load_file(tmp_path / "model.safetensors")
    wanted = {each["name"]: each for each in model["tensors"] if each["dtype"] != "STRING"}
    assert read.keys() == wanted.keys()
    for name, tensor in read.items():
        little = tensor.astype(tensor.dtype.newbyteorder("<"))
        assert (list(tensor.shape), hashlib.sha256(little.tobytes()).hexdigest()) == (
            wanted[name]["shape"],
            wanted[name]["sha256"],
        ), name
