"""Records of a store over a real socket: whole, by path and mask, by key and in samples."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import httpx
import pytest
from google.protobuf import descriptor_pb2, json_format, message_factory
from google.protobuf.message import Message
from tests.support.serve import assert_problem
from tests.support.streams import FRAMED, example

from protoslice import schema
from protoslice.schema.rendering import render
from protoslice.streams import open_records

pytestmark = pytest.mark.contract

EXAMPLES = [example(n) for n in range(500)]
TYPE = "tensorflow.Example"


@pytest.fixture(scope="module", params=["tfrecord", "delimited", "u32be"])
def framing(request: pytest.FixtureRequest) -> str:
    """Return a framing of the stream."""
    return str(request.param)


@pytest.fixture(scope="module")
def url(client: httpx.Client, framing: str) -> str:
    """Return the URL of the records of a store of one stream."""
    return stored(client, FRAMED[framing](EXAMPLES), f"{framing}.train")


def problem(answer: httpx.Response, status: int, slug: str) -> str:
    """Return the detail of a problem."""
    said = assert_problem(answer.status_code, answer.headers, answer.content, expected=status, slug=slug)
    return str(said["detail"])


def stored(client: httpx.Client, stream: bytes, name: str) -> str:
    headers = {"content-type": "application/x-protobuf-delimited"}
    answer = client.put(f"/v1/stores?filename={name}", content=stream, headers=headers)
    assert answer.status_code in {200, 201}, answer.text
    return f"/v1/stores/{answer.json()['id']}/records"


def test_one_record_is_a_view(client: httpx.Client, url: str) -> None:
    answer = client.get(f"{url}/7")
    assert answer.content == EXAMPLES[7]
    assert answer.headers["x-protobuf-message"] == TYPE
    assert answer.headers["content-type"] == "application/protobuf"
    assert client.get(f"{url}/8").headers["etag"] != answer.headers["etag"]


def test_one_record_is_rendered(client: httpx.Client, url: str) -> None:
    shown = client.get(f"{url}/7", headers={"accept": "application/json"})
    assert shown.content == render(TYPE, "json", b"", EXAMPLES[7])
    assert client.get(f"{url}/7", headers={"accept": "text/plain"}).content == render(TYPE, "text", b"", EXAMPLES[7])


@pytest.mark.parametrize("form", ["delimited", "tfrecord", "u64le"])
def test_several_records_come_framed(client: httpx.Client, url: str, form: str) -> None:
    frame = FRAMED[form]
    whole = client.get(f"{url}?slice=100:400&format={form}")
    assert whole.content == frame(EXAMPLES[100:400])
    older = client.get(f"{url}?range=100:400&format={form}")
    assert (older.content, older.headers["etag"]) == (whole.content, whole.headers["etag"])
    problem(client.get(f"{url}?range=1:2&slice=1:2"), 400, "invalid-input")
    some = client.get(f"{url}?n=9,3&n=499&n=3&format={form}")
    assert some.content == frame([EXAMPLES[n] for n in (9, 3, 499, 3)])
    assert client.get(f"{url}?range=490:600&format={form}").content == frame(EXAMPLES[490:])


def test_several_records_come_as_lines_and_as_text(client: httpx.Client, url: str) -> None:
    for accept in ("application/jsonl", "application/x-ndjson"):
        lines = client.get(f"{url}?range=5:8", headers={"accept": accept})
        assert lines.headers["content-type"] == "application/jsonl; charset=utf-8"
        shown = [json.loads(line) for line in lines.text.splitlines()]
        assert shown == [json.loads(render(TYPE, "json", b"", record)) for record in EXAMPLES[5:8]]
    text = client.get(f"{url}?range=5:7", headers={"accept": "text/plain"})
    assert text.content == b"\n".join(render(TYPE, "text", b"", record) for record in EXAMPLES[5:7])


def test_a_stream_is_summed_up(client: httpx.Client, url: str, framing: str) -> None:
    answer = client.get(f"{url}?summary")
    assert answer.headers["content-type"].startswith("application/json")
    stream = FRAMED[framing](EXAMPLES)
    assert answer.json() == {
        "file": f"{framing}.train",
        "framing": framing,
        "type": TYPE,
        "count": 500,
        "size": len(stream),
        "fault": None,
    }
    assert answer.headers["repr-digest"].startswith("sha-256=:")


def test_a_type_of_ones_own_is_read_by_its_schema(client: httpx.Client) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="own_record.proto", package="own", syntax="proto3")
    file.message_type.add(name="Record").field.add(name="height", number=1, type=13, label=1, json_name="height")
    types = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    headers = {"content-type": "application/protobuf"}
    assert client.put("/v1/schemas/own-records", content=types, headers=headers).is_success
    url = stored(client, FRAMED["delimited"]([b"\x08\x07", b"\x08\x09"]), "own.records")
    answer = client.get(f"{url}?type=own.Record", headers={"accept": "application/jsonl"})
    assert answer.text == '{"height": 7}\n{"height": 9}\n'
    assert client.get(f"{url}/1?type=own.Record", headers={"accept": "application/json"}).json() == {"height": 9}
    refused = client.get(f"{url}/1?type=own.Unknown", headers={"accept": "application/json"})
    problem(refused, 422, "unsupported")


def test_names_that_a_schema_declares_for_json_are_those_in_json(client: httpx.Client) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="named.proto", package="named", syntax="proto3")
    record = file.message_type.add(name="Record")
    names = {"foo_bar": "fooBar", "first": "@id", "second": "zweites", "with_none": "withNone"}
    for number, (name, json_name) in enumerate(names.items(), 1):
        record.field.add(name=name, number=number, type=13, label=1, json_name=json_name)
    record.nested_type.add(name="Inner").field.add(name="x", number=1, type=13, label=1, json_name="$x")
    record.field.add(name="below", number=9, type=11, label=1, type_name=".named.Record.Inner", json_name="below")
    types = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    headers = {"content-type": "application/protobuf"}
    assert client.put("/v1/schemas/named-records", content=types, headers=headers).is_success
    kind: Any = message_factory.GetMessages([file])["named.Record"]
    message = kind(foo_bar=1, first=2, second=3, with_none=4, below={"x": 5})
    url = stored(client, FRAMED["delimited"]([message.SerializeToString()]), "named.records")
    answer = client.get(f"{url}/0?type=named.Record", headers={"accept": "application/json"})
    assert answer.json() == {"foo_bar": 1, "@id": 2, "zweites": 3, "with_none": 4, "below": {"$x": 5}}
    assert json_format.Parse(answer.text, kind()) == message
    url = client.post("/v1/stores?filename=a.pb&type=named.Record", content=message.SerializeToString()).json()["id"]
    shown = client.get(f"/v1/stores/{url}/merge", headers={"accept": "application/json"})
    assert shown.json() == answer.json()


def test_a_store_of_several_files_wants_the_name_of_one(client: httpx.Client) -> None:
    files = [("file", (f"{name}.rec", FRAMED["u32le"](EXAMPLES[:n]))) for n, name in ((3, "a"), (4, "b"))]
    store = client.post("/v1/stores", files=files).json()["id"]
    url = f"/v1/stores/{store}/records"
    assert client.get(f"{url}?summary&file=b.rec").json()["count"] == 4
    assert "file=" in problem(client.get(f"{url}/0"), 400, "invalid-input")
    problem(client.get(f"{url}/0?file=c.rec"), 404, "not-found")


@pytest.mark.parametrize(
    ("query", "status", "slug"),
    [
        ("/500", 404, "not-found"),
        ("/x", 400, "invalid-input"),
        ("/1?framing=csv", 400, "invalid-input"),
        ("?range=7", 400, "invalid-input"),
        ("?n=500", 404, "not-found"),
        ("?format=tfrecord_gzip", 422, "unsupported"),
    ],
)
def test_what_cannot_be_is_a_problem(client: httpx.Client, url: str, query: str, status: int, slug: str) -> None:
    problem(client.get(f"{url}{query}"), status, slug)


def test_a_file_that_is_no_stream_says_so(client: httpx.Client) -> None:
    url = stored(client, b"\x89PNG\r\n\x1a\n" + hashlib.sha256(b"").digest(), "picture.png")
    assert "framing" in problem(client.get(f"{url}/0"), 422, "unsupported")


LABELLED = [example(n % 40) for n in range(100)]
LABEL = 'features.feature["label"].int64_list.value[0]'


@pytest.fixture(scope="module", params=["tfrecord", "u32be"])
def parts(client: httpx.Client, request: pytest.FixtureRequest) -> str:
    """Return the URL of the records of a store of one stream."""
    stream = FRAMED[request.param]([*LABELLED, b""])
    answer = client.put(f"/v1/stores?filename={request.param}.parts", content=stream)
    assert answer.status_code in {200, 201}, answer.text
    return f"/v1/stores/{answer.json()['id']}/records?type=tensorflow.Example"


def asked(parts: str, **params: object) -> httpx.URL:
    """Return the URL with more parameters; a list repeats its parameter."""
    return httpx.URL(parts).copy_merge_params(params)  # type: ignore[arg-type]


def got(client: httpx.Client, parts: str, framing: str = "delimited", **params: object) -> list[bytes]:
    answer = client.get(asked(parts, format=framing, **params))
    assert answer.status_code == 200, answer.text
    return list(open_records(answer.content, "any", framing=framing))


def masked(record: bytes) -> Message:
    message = schema.bundled().message_class("tensorflow.Example").FromString(record)
    for name in ("image", "weights"):
        del message.features.feature[name]  # type: ignore[attr-defined]
    return message


def test_a_mask_is_kept_of_each_record(client: httpx.Client, parts: str) -> None:
    kept = got(client, parts, fields='features.feature["label"]', range="3:50")
    assert [masked(each).SerializeToString(deterministic=True) for each in LABELLED[3:50]] == kept
    small = got(client, parts, omit_larger_than="8", range="30:31")
    assert 0 < len(small[0]) < len(LABELLED[30])


def test_a_path_leads_into_each_record(client: httpx.Client, parts: str) -> None:
    labels = [str(n % 40).encode() for n in range(100)]
    for framing in ("delimited", "u64le"):
        assert got(client, parts, framing, path=LABEL, range=":100") == labels
    assert got(client, parts, path=LABEL, range="99:101") == [b"19", b""]
    shown = client.get(
        f"{parts}&range=7:9&path=features.feature%5B%22label%22%5D", headers={"accept": "application/jsonl"}
    )
    assert shown.text == '{"int64_list": {"value": ["7"]}}\n{"int64_list": {"value": ["8"]}}\n'


def test_records_are_found_by_key(client: httpx.Client, parts: str) -> None:
    assert got(client, parts, key=LABEL, value="7") == [LABELLED[7], LABELLED[47], LABELLED[87]]
    assert got(client, parts, key=LABEL, value="39", path=LABEL) == [b"39", b"39"]
    both = got(client, parts, key=LABEL, value=["39", "0"], range=":1")
    assert both == [LABELLED[n] for n in (0, 39, 79, 0, 40, 80)]
    problem(client.get(asked(parts, key=LABEL, value="41")), 404, "not-found")


def test_a_sample_is_decided_by_its_seed(client: httpx.Client, parts: str) -> None:
    first, again, other = (got(client, parts, sample=20, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert len(first) == 20


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("path=nothing.here", 404),
        ("path=a[", 400),
        ("value=7", 400),
        ("key=nothing&value=7", 404),
        ("sample=10001", 400),
    ],
)
def test_parts_that_cannot_be_given_are_refused(client: httpx.Client, parts: str, query: str, status: int) -> None:
    answer = client.get(f"{parts}&{query}")
    assert answer.status_code == status, answer.text
