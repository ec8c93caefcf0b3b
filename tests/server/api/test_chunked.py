"""Chunked protos and split protos of XLA over HTTP."""

from __future__ import annotations

import io
import json
from typing import Any

import httpx
import pytest
from tests.support.chunked import METADATA
from tests.support.golden import CHUNKED

from protoslice.riegeli import RecordWriter
from protoslice.schema import bundled

FILE = (CHUNKED / "graph_many_nodes.max20000.cpb").read_bytes()
SIZES = {"min_chunk": "500", "max_chunk": "5000"}


def _made(client: httpx.Client, **query: str) -> dict[str, object]:
    answer = client.post("/v1/stores", params={"filename": "x.cpb", **SIZES, **query}, content=FILE)
    assert answer.is_success, answer.text
    made: dict[str, object] = answer.json()
    return made


def test_the_plan_that_came_and_the_one_by_sizes(client: httpx.Client) -> None:
    base = f"/v1/stores/{_made(client)['id']}"
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


def test_what_a_later_program_may_plan_otherwise_is_not_kept_for_ever(client: httpx.Client) -> None:
    base = f"/v1/stores/{_made(client)['id']}"
    for path in ("chunks/0", "metadata"):
        own, by_sizes = (client.get(f"{base}/{path}{query}") for query in ("", "?plan=policy"))
        assert "immutable" in own.headers["cache-control"]
        assert "immutable" not in by_sizes.headers["cache-control"]
        assert own.headers["etag"] != by_sizes.headers["etag"]


def test_a_plan_by_sizes_from_the_beginning(client: httpx.Client) -> None:
    kept, by_sizes = _made(client), _made(client, plan="policy")
    assert (kept["planner"], by_sizes["planner"]) == (3, 4)
    assert kept["chunks"] != by_sizes["chunks"]
    for path in ("chunks/0", "metadata", "cpb"):
        assert (
            client.get(f"/v1/stores/{by_sizes['id']}/{path}").content
            == client.get(f"/v1/stores/{kept['id']}/{path}?plan=policy").content
        )


@pytest.mark.parametrize("path", ["chunks", "chunks/0", "metadata", "cpb"])
def test_another_plan_is_refused(client: httpx.Client, path: str) -> None:
    answer = client.get(f"/v1/stores/{_made(client)['id']}/{path}?plan=mine")
    assert (answer.status_code, answer.json()["title"] != "") == (400, True)
    assert "Invalid plan 'mine'" in answer.json()["detail"]


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
