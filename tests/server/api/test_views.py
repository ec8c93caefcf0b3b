"""Views over a real socket: bytes, ranges, validators, forms.

The tests also cover chunked protos and XLA's split protos over HTTP. Stores without a root are tested with every way to
upload them, their facts, and their views.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.server.bodies.ways import Site, Way, assembled, form, recipe, tar
from tests.support.chunked import METADATA
from tests.support.golden import CHUNKED, MODELS
from tests.support.serve import LiveServer, assert_problem, exchange
from tests.support.streams import FRAMED
from tests.support.views import CASES, FILE, PLAIN, STREAM, Tag, ViewCase

from protoslice import schema, versions
from protoslice.riegeli import RecordWriter
from protoslice.schema import bundled

GOLDEN = MODELS / "onnx_functions_training" / "model.onnx"


@pytest.fixture(scope="module")
def store(client: httpx.Client, model: bytes) -> dict[str, Any]:
    files = [("file", item) for item in {FILE: model, **STREAM}.items()]
    answer = client.post("/v1/stores?tag=views:1", files=files)
    assert answer.status_code == 201
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture(scope="module", params=PLAIN, ids=lambda case: case.path)
def case(request: pytest.FixtureRequest) -> ViewCase:
    found: ViewCase = request.param
    return found


@pytest.mark.contract
def test_the_file_and_the_whole_merge_are_the_upload(client: httpx.Client, store: dict[str, Any], model: bytes) -> None:
    for path in (f"files/{FILE}", "merge"):
        answer = client.get(f"/v1/stores/{store['id']}/{path}")
        assert answer.content == model
        assert answer.headers["etag"] == f'"sha256-{hashlib.sha256(model).hexdigest()}"'
        assert answer.headers["x-protobuf-message"] == "onnx.ModelProto"


@pytest.mark.contract
def test_ids_are_immutable_and_names_are_not(client: httpx.Client, store: dict[str, Any], case: ViewCase) -> None:
    view, lasting = case.path, f"/v1/stores/{store['id']}/{case.path}"
    by_id = client.get(lasting)
    kept = "max-age=31536000, immutable" if case.tag is Tag.STORE else "max-age=3600"
    assert by_id.headers["cache-control"] == f"public, {kept}, no-transform"
    assert "content-location" not in by_id.headers
    for ref, slash in (("views:1", "/"), ("views%3A1", "/"), (store["id"][:12], "/"), ("views:1", "%2F")):
        by_name = client.get(f"/v1/stores/{ref}{slash}{view}")
        assert by_name.content == by_id.content
        assert by_name.headers["etag"] == by_id.headers["etag"]
        assert by_name.headers["cache-control"] == "no-cache, no-transform"
        assert client.get(by_name.headers["content-location"]).content == by_id.content
        assert (
            client.get(f"/v1/stores/{ref}/{view}", headers={"if-none-match": by_id.headers["etag"]}).status_code == 304
        )


@pytest.mark.contract
@pytest.mark.parametrize("shown", ["chunks", "tree?path=graph", "treemap", "summary", "tensors", "pieces"])
def test_json_of_a_store_says_its_lasting_url_however_its_slashes_are_spelt(
    client: httpx.Client, store: dict[str, Any], shown: str
) -> None:
    for slash in ("/", "%2F"):
        answer = client.get(f"/v1/stores/views:1{slash}{shown}")
        assert answer.status_code == 200
        assert answer.headers["content-location"] == f"/v1/stores/{store['id']}/{shown}"


def make_later_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give all code that reads stores another version."""
    named = {name for name in vars(versions) if name.isupper() and not name.startswith("_")}
    for module in [each for name, each in sys.modules.items() if name.startswith("protoslice.views.")]:
        for version in named & vars(module).keys():
            monkeypatch.setattr(module, version, 99)
    monkeypatch.setattr("protoslice.server.http.responses._rendered_by", lambda: "a later program")


@pytest.mark.contract
@pytest.mark.parametrize(
    ("path", "accept", "tag"),
    [("tensors", "*/*", Tag.BYTES), *((case.path, case.accept, case.tag) for case in CASES if case.tag != Tag.STORE)],
)
def test_what_a_later_program_may_mend_is_not_kept_for_ever(
    client: httpx.Client, store: dict[str, Any], path: str, accept: str, tag: Tag, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, headers = f"/v1/stores/{store['id']}/{path}", {"accept": accept}
    before = client.get(url, headers=headers)
    assert "immutable" not in before.headers["cache-control"]
    assert before.headers["cache-control"].startswith("public, max-age=3600")
    make_later_program(monkeypatch)
    after = client.get(url.replace(store["id"], store["id"][:20]), headers=headers)
    assert (after.headers["etag"] == before.headers["etag"]) == (tag is Tag.BYTES)


@pytest.mark.contract
@pytest.mark.parametrize("case", [case for case in CASES if case.tag is Tag.STORE], ids=lambda case: case.path)
def test_what_the_id_decides_about_has_the_same_tag_for_ever(
    client: httpx.Client, store: dict[str, Any], case: ViewCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"/v1/stores/{store['id']}/{case.path}"
    before = client.get(url)
    make_later_program(monkeypatch)
    assert client.get(url).headers["etag"] == before.headers["etag"]
    assert "immutable" in before.headers["cache-control"]


@pytest.mark.contract
def test_head_is_get_without_the_body(client: httpx.Client, store: dict[str, Any], case: ViewCase) -> None:
    def headers(answer: httpx.Response) -> dict[str, str]:
        return {name: value for name, value in answer.headers.items() if name not in {"date", "x-request-id"}}

    url = f"/v1/stores/{store['id']}/{case.path}"
    head = client.head(url, headers={"range": "bytes=0-0"})
    assert headers(head) == headers(client.get(url))
    assert head.content == b""


@pytest.mark.contract
def test_head_refuses_what_get_refuses(client: httpx.Client, store: dict[str, Any], case: ViewCase) -> None:
    url = f"/v1/stores/{store['id']}/{case.path}"
    for _ in range(2):  # a stored length changes nothing
        for accept in ("image/png", "*/*;q=0", "image/png, */*;q=0.1", "*/*"):
            head, get = client.head(url, headers={"accept": accept}), client.get(url, headers={"accept": accept})
            assert head.status_code == get.status_code == (200 if accept.endswith(("0.1", "*/*")) else 406), accept


@pytest.mark.contract
@pytest.mark.parametrize(
    "path", ["/v1/stores/views:1", "/v1/stores/views:1/tree", "/v1/tags/views:1", "/v1/stores", "/", "/docs"]
)
def test_head_of_everything_else(client: httpx.Client, store: dict[str, Any], path: str) -> None:
    plain = {"accept-encoding": "identity"}
    head, get = client.head(path, headers=plain), client.get(path, headers=plain)
    assert head.status_code == get.status_code == 200
    assert head.content == b""
    assert head.headers["content-length"] == get.headers["content-length"] == str(len(get.content))


@pytest.mark.contract
@given(data=st.data())
@settings(max_examples=150)
def test_any_range_of_any_view_is_a_slice_of_the_whole(
    client: httpx.Client, store: dict[str, Any], data: st.DataObject
) -> None:
    url = f"/v1/stores/{store['id']}/{data.draw(st.sampled_from(PLAIN)).path}"
    whole = client.get(url)
    size = len(whole.content)
    first = data.draw(st.integers(0, size - 1))
    last = data.draw(st.integers(first, min(size + 10, first + 300_000)))
    part = client.get(url, headers={"range": f"bytes={first}-{last}", "if-range": whole.headers["etag"]})
    assert part.status_code == 206
    assert part.content == whole.content[first : last + 1]
    assert part.headers["content-range"] == f"bytes {first}-{min(last, size - 1)}/{size}"
    assert part.headers["etag"] == whole.headers["etag"]


@pytest.mark.contract
def test_the_chunk_table_without_digests_reads_nothing(serving: Any, tmp_path: Path, model: bytes) -> None:
    """Without this, the first request to a large store would read all of it; damage shows a read."""
    with serving(storage=tmp_path.as_uri()) as live, httpx.Client(base_url=live.url) as client:
        client.put("/v1/stores?tag=table&filename=model.onnx", content=model)
        path = next(path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size == len(model))
        path.write_bytes(bytes(len(model)))
        assert client.get("/v1/stores/table/chunks").status_code == 500
        answer = client.get("/v1/stores/table/chunks?digests=false&limit=2")
        assert [(chunk["size"] > 0, chunk["sha256"]) for chunk in answer.json()["items"]] == [(True, None)] * 2
        assert "digests=false" in answer.headers["link"]
        path.write_bytes(model)
        known = client.get("/v1/stores/table/chunks?limit=2").json()["items"]
        assert [{**chunk, "sha256": None} for chunk in known] == answer.json()["items"]


@pytest.fixture(scope="module")
def golden(client: httpx.Client) -> str:
    client.put("/v1/stores?filename=model.onnx&tag=golden", content=GOLDEN.read_bytes())
    return "/v1/stores/golden"


@pytest.mark.contract
def test_messages_are_rendered(client: httpx.Client, golden: str) -> None:
    message = schema.bundled().message_class("onnx.ModelProto").FromString(GOLDEN.read_bytes())
    text = client.get(f"{golden}/merge", headers={"accept": "text/plain"})
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text_format.Parse(text.text, type(message)()) == message
    for accept, content_type in (
        ("application/json", "application/json; charset=utf-8"),
        ("application/protobuf+json", "application/protobuf+json; charset=utf-8"),
        ("application/*;q=0.1, application/json", "application/json; charset=utf-8"),
    ):
        answer = client.get(f"{golden}/merge", headers={"accept": accept, "range": "bytes=0-9"})
        assert answer.status_code == 200
        assert answer.headers["content-type"] == content_type
        assert answer.headers["accept-ranges"] == "none"
        assert json.loads(answer.content)["graph"]["name"] == message.graph.name  # type: ignore[attr-defined]


@pytest.mark.contract
def test_each_form_has_its_own_entity_tag(client: httpx.Client, golden: str) -> None:
    forms = ("application/protobuf", "application/json", "application/protobuf+json", "text/plain")
    tags = {client.get(f"{golden}/merge", headers={"accept": form}).headers["etag"] for form in forms}
    assert len(tags) == len(forms)


@pytest.mark.contract
@pytest.mark.parametrize("accept", [None, "*/*", "application/*", "application/x-protobuf", "text/html, */*;q=0.1"])
def test_protobuf_is_the_default(client: httpx.Client, golden: str, accept: str | None) -> None:
    headers = {} if accept is None else {"accept": accept}
    assert client.get(f"{golden}/merge", headers=headers).headers["content-type"] == "application/protobuf"


@pytest.mark.contract
def test_what_cannot_be_offered(client: httpx.Client, golden: str, store: dict[str, Any]) -> None:
    for url, accept in (
        (f"{golden}/merge", "image/png"),
        (f"{golden}/merge", "application/protobuf;q=0, application/json;q=0"),
        (f"/v1/stores/{store['id']}/chunks/1", "application/json"),
    ):
        answer = client.get(url, headers={"accept": accept})
        problem = assert_problem(
            answer.status_code, answer.headers, answer.content, expected=406, slug="not-acceptable"
        )
        assert problem["offers"]


@pytest.mark.contract
def test_rendering_has_a_limit(serving: Any, model: bytes) -> None:
    with serving(max_rendered_bytes=1 << 20) as live, httpx.Client(base_url=live.url) as client:
        client.put("/v1/stores?filename=model.onnx&tag=big", content=model)
        answer = client.get("/v1/stores/big/merge", headers={"accept": "application/json"})
        assert_problem(answer.status_code, answer.headers, answer.content, expected=413, slug="limit-exceeded")
        small = client.get("/v1/stores/big/merge?omit_larger_than=1KiB", headers={"accept": "application/json"})
        assert small.status_code == 200
        assert len(small.json()["graph"]["node"]) == 20


@pytest.mark.contract
def test_unknown_types_are_not_rendered(client: httpx.Client) -> None:
    client.put("/v1/stores?tag=unknown", content=b"\xaa\xaa\x7d\x01z")
    answer = client.get("/v1/stores/unknown/merge", headers={"accept": "application/json"})
    assert_problem(answer.status_code, answer.headers, answer.content, expected=422, slug="unsupported")


@pytest.mark.contract
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("chunks/99", 404),
        ("chunks/x", 400),
        ("files/none", 404),
        ("merge?path=graph.nothing", 404),
        ("merge?path=graph..node", 400),
        ("merge?path=%ff", 400),
        ("tree?depth=0", 400),
    ],
)
def test_what_is_not_there(service: LiveServer, store: dict[str, Any], path: str, expected: int) -> None:
    answer = exchange(service, f"GET /v1/stores/{store['id']}/{path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    assert_problem(answer.status, answer.headers, answer.body, expected=expected)


@pytest.mark.contract
def test_a_part_is_the_message_at_the_path(client: httpx.Client, store: dict[str, Any]) -> None:
    node = client.get(f"/v1/stores/{store['id']}/merge", params={"path": "graph.node[3]"})
    assert node.headers["x-protobuf-message"] == "onnx.NodeProto"
    assert node.content == b"\x0a\x02x3\x1a\x02n3\x22\x04Relu"
    name = client.get(f"/v1/stores/{store['id']}/merge", params={"path": "graph.node[3].name"})
    assert (name.content, name.headers["content-type"]) == (b"n3", "text/plain; charset=utf-8")
    names = client.get(f"/v1/stores/{store['id']}/merge", params={"fields": ["graph.node[*].name", "graph.name"]})
    message = schema.bundled().message_class("onnx.ModelProto").FromString(names.content)
    assert [node.name for node in message.graph.node] == [f"n{n}" for n in range(20)]  # type: ignore[attr-defined]


CHUNKED_FILE = (CHUNKED / "graph_many_nodes.max20000.cpb").read_bytes()


def test_the_plan_that_came_and_the_one_by_sizes(client: httpx.Client) -> None:
    answer = client.post("/v1/stores?filename=x.cpb&min_chunk=500&max_chunk=5000", content=CHUNKED_FILE)
    base = f"/v1/stores/{answer.json()['id']}"
    assert client.get(f"{base}/cpb").content == CHUNKED_FILE
    metadata = METADATA.FromString(client.get(f"{base}/metadata").content)
    rows = client.get(f"{base}/chunks").json()["items"]
    assert [row["size"] for row in rows] == [chunk.size for chunk in metadata.chunks]
    by_sizes = METADATA.FromString(client.get(f"{base}/metadata", params={"plan": "policy"}).content)
    again = client.get(f"{base}/chunks", params={"plan": "policy"}).json()["items"]
    assert [row["size"] for row in again] == [chunk.size for chunk in by_sizes.chunks] != [row["size"] for row in rows]
    assert client.get(f"{base}/chunks/1?plan=policy").content != client.get(f"{base}/chunks/1").content
    shown = client.get(f"{base}/metadata?plan=policy", headers={"accept": "application/json"}).json()
    assert len(shown["chunks"]) == len(by_sizes.chunks)
    # A later program may plan these chunks in another way, so they are not cached forever.
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


TREE = {"README.md": b"# Words\n", "config.json": b'{"a": 1}', "weights.bin": Random(7).randbytes(70_000)}
OF_ROOT = ["chunks", "tree", "tensors", "references.json", "signatures", *(c.path for c in PLAIN if c.needs_root)]


@pytest.mark.parametrize("send", [form, tar, recipe, assembled])
def test_a_tree_is_taken_however_it_comes(client: httpx.Client, tmp_path: Path, send: Way) -> None:
    answer = send(Site(client, tmp_path), TREE)
    assert answer.status_code in {200, 201}, answer.text
    store = answer.json()
    assert (store["root"], store["type"], store["chunks"], store["schema"], store["planner"]) == (
        None, None, 0, None, None
    )  # fmt: skip
    assert store["why"].startswith("none of the 3 files is in a supported format")
    for name, data in TREE.items():
        assert client.get(f"/v1/stores/{store['id']}/files/{name}").content == data
    pieces = client.get(f"/v1/stores/{store['id']}/pieces").json()
    assert {piece["file"] for piece in pieces["items"]} == set(TREE)


def test_views_of_a_proto_are_no_root(client: httpx.Client, tmp_path: Path) -> None:
    store = form(Site(client, tmp_path), TREE).json()
    for view in OF_ROOT:
        url = f"/v1/stores/{store['id']}/{view}"
        assert client.head(url).status_code == 404
        answer = client.get(url)
        problem = assert_problem(answer.status_code, answer.headers, answer.content, expected=404, slug="no-root")
        assert problem["detail"] == f"This store has files, but no root proto: {store['why']}"


@pytest.mark.parametrize(
    ("name", "head", "kind"), [("m.onnx.gz", b"\x1f\x8b\x08\0", "gzip"), ("m.pb.zst", b"\x28\xb5\x2f\xfd", "zstd")]
)
def test_a_packed_file_stays_as_it_is(client: httpx.Client, name: str, head: bytes, kind: str) -> None:
    data = head + Random(3).randbytes(5000)
    answer = client.put(f"/v1/stores?filename={name}", content=data)
    assert answer.status_code == 201, answer.text
    store = answer.json()
    assert (store["root"], store["type"], store["files"][0]["path"]) == (None, None, name)
    assert f"this is {kind}: decompress it first" in store["why"]
    file = client.get(f"/v1/stores/{store['id']}/files/{name}")
    assert file.content == data
    assert "content-encoding" not in file.headers


def test_a_stream_of_records_is_a_fact_of_the_store(client: httpx.Client) -> None:
    stream = FRAMED["tfrecord"]([b"\x08\x01", b"\x08\x02"])
    for files in ([("a", b"words")], [("train", stream)], [("README.md", b"# Words\n"), ("a/train", stream)]):
        sent = client.post("/v1/stores", files=[("file", item) for item in files]).json()
        found = [item["records_file"] for item in (sent, client.get(f"/v1/stores/{sent['id']}").json())]
        (listed,) = [item for item in client.get("/v1/stores").json()["items"] if item["id"] == sent["id"]]
        path = next((path for path, data in files if data == stream), None)
        assert [*found, listed["records_file"]] == [path] * 3
        answer = client.get(f"/v1/stores/{sent['id']}/records", params={"file": path or "a", "summary": "true"})
        assert (answer.status_code == 200) == (path is not None), answer.text
