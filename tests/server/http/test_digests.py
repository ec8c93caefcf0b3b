"""Digests of request bodies: compared for every body that is read; a wrong body has no effect."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode

import httpx
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from tests.support.serve import LiveServer, assert_problem, exchange

pytestmark = pytest.mark.contract

DESCRIPTORS = FileDescriptorSet(file=[FileDescriptorProto(name="garbled.proto", package="garbled")]).SerializeToString()
JSON = {"content-type": "application/json"}


def digest(data: bytes) -> dict[str, str]:
    return {"content-digest": f"sha-256=:{b64encode(hashlib.sha256(data).digest()).decode()}:"}


@pytest.fixture(scope="module")
def store(client: httpx.Client) -> str:
    return str(client.post("/v1/stores?filename=digested.pb", content=b"\x0a\x08digested").json()["id"])


def bodies(client: httpx.Client, store: str) -> list[tuple[str, str, bytes, dict[str, str]]]:
    """Well-formed requests for each route that reads a body whole; a right digest makes them succeed."""
    headers = {"tus-resumable": "1.0.0", "upload-length": "2", "upload-concat": "partial"}
    headers |= {"content-type": "application/offset+octet-stream"}
    upload = client.post("/v1/uploads", headers=headers, content=b"\x08\x01").headers["location"]
    asked = {"stores": [store], "chunks": [{"sha256": "0" * 64, "size": 1}]}
    return [
        ("PUT", "/v1/tags/digested", json.dumps({"store": store}).encode(), JSON),
        ("POST", "/v1/stores/assemble", json.dumps({"uploads": {"a.pb": upload}}).encode(), JSON),
        ("POST", "/v1/chunks/missing", json.dumps(asked).encode(), JSON),
        ("PUT", "/v1/schemas/digested", DESCRIPTORS, {"content-type": "application/protobuf"}),
    ]


def test_wherever_a_body_is_read_its_digest_is_compared(client: httpx.Client, store: str) -> None:
    for method, path, body, headers in bodies(client, store):
        before = [client.get(f"/v1/{what}").json() for what in ("stores", "tags", "schemas")]
        wrong = client.request(method, path, content=body, headers=headers | digest(body + b" "))
        assert_problem(wrong.status_code, wrong.headers, wrong.content, expected=400, slug="digest-mismatch")
        assert [client.get(f"/v1/{what}").json() for what in ("stores", "tags", "schemas")] == before
        right = client.request(method, path, content=body, headers=headers | digest(body))
        assert right.status_code in {200, 201}, (path, right.text)


def test_a_body_in_place_is_compared_before_it_is_looked_at(client: httpx.Client) -> None:
    body = json.dumps({"files": {"a.pb": "file:///nowhere/a.pb"}}).encode()
    wrong = client.post("/v1/stores/register", content=body, headers=JSON | digest(b"{}"))
    assert_problem(wrong.status_code, wrong.headers, wrong.content, expected=400, slug="digest-mismatch")
    right = client.post("/v1/stores/register", content=body, headers=JSON | digest(body))
    assert_problem(right.status_code, right.headers, right.content, expected=422)


def test_a_body_in_pieces(service: LiveServer, store: str) -> None:
    halves = (b'{"store": ', b'"' + store.encode() + b'"}')
    for said, status in ((b"".join(halves), 201), (halves[1] + halves[0], 400)):
        head = b"PUT /v1/tags/pieces:%d HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n" % status
        head += b"transfer-encoding: chunked\r\ncontent-digest: " + digest(said)["content-digest"].encode()
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(half), half) for half in halves)
        assert exchange(service, head + b"\r\n\r\n" + chunks + b"0\r\n\r\n").status == status


def test_digests_that_say_nothing_of_the_body_are_passed_over_or_refused(client: httpx.Client, store: str) -> None:
    body = json.dumps({"store": store}).encode()
    for value, status in (("md5=:AAAA:", 200), ("sha-256=:AAAA:", 400), ("sha-256=1", 400)):
        client.put("/v1/tags/passed", content=body, headers=JSON)
        answer = client.put("/v1/tags/passed", content=body, headers=JSON | {"content-digest": value})
        assert answer.status_code == status
