"""Protos, models, records and chunks by URI: the same as by path, by range reads alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.bundles import Variable, bundle
from tests.support.counted import CountedBucket, counted_bucket

import protoslice
from protoslice import open_model, schema
from protoslice.errors import NotFound
from protoslice.merging import Merger
from protoslice.riegeli import RecordReader

BIG = 2 << 20


def onnx(count: int) -> bytes:
    """A model of so many tensors of 2 MiB."""
    model: Any = schema.bundled().message_class("onnx.ModelProto")(ir_version=8)
    model.graph.name = "g"
    model.graph.node.add(op_type="Add", name="n")
    for number in range(count):
        model.graph.initializer.add(name=f"w{number}", dims=[BIG // 4], data_type=1, raw_data=bytes([number]) * BIG)
    return bytes(model.SerializeToString())


MODEL = onnx(8)


@pytest.fixture
def bucket() -> Iterator[CountedBucket]:
    with counted_bucket() as found:
        found.fill({"d/model.onnx": MODEL})
        yield found


def test_a_proto_is_opened_and_read_in_part(bucket: CountedBucket) -> None:
    with protoslice.open(f"{bucket.uri}/d/model.onnx") as proto:
        assert proto.type == "onnx.ModelProto"
        # A request for the facts, and one for what lies behind each of the large tensors at most.
        assert len(bucket.requests) <= 2 + 8
        assert bucket.bytes_read < len(MODEL) / 10
        bucket.requests.clear()
        part = proto.merge('graph.initializer[name="w5"].raw_data')
        assert part[100:200].read() == b"\x05" * 100
        assert len(bucket.requests) <= 2
        assert bucket.bytes_read <= 3 * (64 << 10)
    assert bucket.closed == 1


def test_a_slice_of_a_tensor_reads_no_other(bucket: CountedBucket) -> None:
    with open_model(f"{bucket.uri}/d/model.onnx") as model:
        assert list(model) == [f"w{number}" for number in range(8)]
        assert model["w3"][0:10].tobytes() == b"\x03" * 40
        assert len(bucket.requests) <= 2 + 8 + 1
        assert bucket.bytes_read < len(MODEL) / 10
    assert bucket.closed == 1


def test_a_saved_model_in_a_bucket(bucket: CountedBucket) -> None:
    values = np.arange(1 << 20, dtype=np.float32)
    saved: Any = schema.bundled().message_class("tensorflow.SavedModel")(saved_model_schema_version=1)
    saved.meta_graphs.add().meta_info_def.tags.append("serve")
    variables = bundle("saved/variables/variables", [Variable("w", 1, (1 << 20,), values.tobytes())])
    bucket.fill({"saved/saved_model.pb": saved.SerializeToString(), **variables})
    with open_model(f"{bucket.uri}/saved") as model:
        assert model["w"][1000:1002].tolist() == values[1000:1002].tolist()
    assert bucket.bytes_read < (4 << 20) / 4
    assert len(bucket.requests) <= 12


def test_options_reach_the_storage(bucket: CountedBucket) -> None:
    protoslice.open(f"{bucket.uri}/d/model.onnx", storage_options={"a": "b"}).close()
    open_model(f"{bucket.uri}/d/model.onnx", storage_options={"c": "d"}).close()
    assert bucket.options == [{"a": "b"}, {"c": "d"}]


def test_what_is_not_there(bucket: CountedBucket) -> None:
    for opening in (protoslice.open, open_model, RecordReader):
        with pytest.raises(NotFound, match="No object counted"):
            opening(f"{bucket.uri}/d/nothing")
    assert bucket.closed == 3


def test_a_chunked_proto_is_merged_from_a_bucket(bucket: CountedBucket, tmp_path: Path) -> None:
    with protoslice.open(MODEL) as proto, (tmp_path / "m.cpb").open("wb") as file:
        proto.chunks.cpb().write_to(file)
    bucket.fill({"m.cpb": (tmp_path / "m.cpb").read_bytes(), "whole.pb": MODEL})
    for name in ("m", "whole"):
        into = schema.bundled().message_class("onnx.ModelProto")()
        Merger.read(f"{bucket.uri}/{name}", into, storage_options={})
        assert into.SerializeToString(deterministic=True) == MODEL
    with pytest.raises(NotFound, match=r"No file .*/none.cpb or .*/none.pb"):
        Merger.read(f"{bucket.uri}/none", schema.bundled().message_class("onnx.ModelProto")())
    with RecordReader(f"{bucket.uri}/m.cpb", storage_options={}) as reader:
        assert sum(1 for _ in reader.read_records()) == 10
