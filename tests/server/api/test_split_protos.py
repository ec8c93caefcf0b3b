"""An XLA split proto in the service: every view of it, as of any proto."""

from __future__ import annotations

import io
import json
from typing import Any

import httpx
import pytest

from protoslice.riegeli import RecordWriter
from protoslice.schema import bundled

GPU: Any = bundled().message_class("xla.gpu.GpuExecutableProto")
WEIGHTS = bytes(range(256)) * 8192


def _split(options: str) -> tuple[bytes, Any]:
    manifest: Any = bundled().message_class("xla.SplitProtoManifest")(result_proto_type=GPU.DESCRIPTOR.full_name)
    binary = manifest.records.add().field_override_record
    binary.field_path.add(field_number=4)
    binary.field_type = 1
    manifest.records.add().proto_merge_record.SetInParent()
    manifest.records.add().proto_merge_record.SetInParent()
    constant, rest = GPU(), GPU(module_name="m")
    constant.constants.add(symbol_name="weights").content.data = WEIGHTS
    out = io.BytesIO()
    with RecordWriter(out, options=options) as writer:
        for record in (manifest.SerializeToString(), b"code", constant.SerializeToString(), rest.SerializeToString()):
            writer.write_record(record)
    constant.MergeFrom(rest)
    constant.binary = b"code"
    return out.getvalue(), constant


@pytest.mark.parametrize("options", ["uncompressed", "snappy"])
def test_every_view_works(client: httpx.Client, options: str) -> None:
    data, whole = _split(options)
    answer = client.post("/v1/stores", content=data, headers={"content-type": "application/octet-stream"})
    assert answer.status_code == 201, answer.text
    store = answer.json()
    assert store["type"] == GPU.DESCRIPTOR.full_name
    base = f"/v1/stores/{store['id']}"
    assert GPU.FromString(client.get(f"{base}/merge").content) == whole
    assert client.get(f"{base}/merge", params={"path": "binary"}).content == b"code"
    (row,) = client.get(f"{base}/tensors").json()["items"]
    assert (row["name"], row["dtype"], row["shape"], row["role"]) == ("weights", "U8", [len(WEIGHTS)], "constant")
    part = client.get(f"{base}/tensors/weights", params={"slice": "70000:70010"}, headers={"range": "bytes=2-5"})
    assert part.content == WEIGHTS[70002:70006]


def test_one_that_is_cut_short_says_so(client: httpx.Client) -> None:
    manifest: Any = bundled().message_class("xla.SplitProtoManifest")(result_proto_type="xla.HloProto")
    manifest.records.add().proto_merge_record.SetInParent()
    out = io.BytesIO()
    with RecordWriter(out, options="uncompressed") as writer:
        writer.write_record(manifest.SerializeToString())
    answer = client.post("/v1/stores", content=out.getvalue(), headers={"content-type": "application/octet-stream"})
    assert 400 <= answer.status_code < 500
    assert "fewer records" in json.dumps(answer.json())
