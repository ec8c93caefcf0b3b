"""Chunked protos and split protos of XLA over HTTP."""

from __future__ import annotations

import io
from typing import Any

import httpx
from tests.support.chunked import METADATA
from tests.support.golden import CHUNKED

from protoslice.riegeli import RecordWriter
from protoslice.schema import bundled

FILE = (CHUNKED / "graph_many_nodes.max20000.cpb").read_bytes()


def test_the_plan_that_came_and_the_one_by_sizes(client: httpx.Client) -> None:
    answer = client.post("/v1/stores?filename=x.cpb&min_chunk=500&max_chunk=5000", content=FILE)
    base = f"/v1/stores/{answer.json()['id']}"
    assert client.get(f"{base}/cpb").content == FILE
    metadata = METADATA.FromString(client.get(f"{base}/metadata").content)
    rows = client.get(f"{base}/chunks").json()["items"]
    assert [row["size"] for row in rows] == [chunk.size for chunk in metadata.chunks]
    by_sizes = METADATA.FromString(client.get(f"{base}/metadata", params={"plan": "policy"}).content)
    again = client.get(f"{base}/chunks", params={"plan": "policy"}).json()["items"]
    assert [row["size"] for row in again] == [chunk.size for chunk in by_sizes.chunks] != [row["size"] for row in rows]
    assert client.get(f"{base}/chunks/1?plan=policy").content != client.get(f"{base}/chunks/1").content
    shown = client.get(f"{base}/metadata?plan=policy", headers={"accept": "application/json"}).json()
    assert len(shown["chunks"]) == len(by_sizes.chunks)
    # What a later program may plan otherwise is not kept for ever.
    for path in ("chunks/0", "metadata"):
        own, by_sizes = (client.get(f"{base}/{path}{query}") for query in ("", "?plan=policy"))
        assert "immutable" in own.headers["cache-control"]
        assert "immutable" not in by_sizes.headers["cache-control"]
        assert own.headers["etag"] != by_sizes.headers["etag"]


GPU: Any = bundled().message_class("xla.gpu.GpuExecutableProto")
WEIGHTS = bytes(range(256)) * 8192


def _split() -> tuple[bytes, Any]:
    manifest: Any = bundled().message_class("xla.SplitProtoManifest")(result_proto_type=GPU.DESCRIPTOR.full_name)
    binary = manifest.records.add().field_override_record
    binary.field_path.add(field_number=4)
    binary.field_type = 1
    manifest.records.add().proto_merge_record.SetInParent()
    manifest.records.add().proto_merge_record.SetInParent()
    constant, rest = GPU(), GPU(module_name="m")
    constant.constants.add(symbol_name="weights").content.data = WEIGHTS
    out = io.BytesIO()
    with RecordWriter(out, options="snappy") as writer:
        for record in (manifest.SerializeToString(), b"code", constant.SerializeToString(), rest.SerializeToString()):
            writer.write_record(record)
    constant.MergeFrom(rest)
    constant.binary = b"code"
    return out.getvalue(), constant


def test_views_of_a_split_proto_are_those_of_the_whole(client: httpx.Client) -> None:
    data, whole = _split()
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
