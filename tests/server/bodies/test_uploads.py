"""Uploads: accepted and refused ones, the time of a refusal, and the content that remains."""

from __future__ import annotations

import gzip
import hashlib
import io
import socket
import subprocess
import tarfile
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.serve import LiveServer, assert_problem, exchange, read_answer
from tests.support.web import web_server

from protoslice.server.request import body as request_body

pytestmark = pytest.mark.contract


def digest(data: bytes) -> str:
    return f"sha-256=:{b64encode(hashlib.sha256(data).digest()).decode()}:"


def metric(client: httpx.Client, name: str) -> float:
    for line in client.get("/metrics").text.splitlines():
        if line.startswith(name + " "):
            return float(line.split(" ")[1])
    raise AssertionError(f"no metric {name}")


def test_a_body_becomes_a_store(client: httpx.Client, model: bytes) -> None:
    answer = client.post("/v1/stores?filename=model.onnx&tag=first&min_chunk=1MiB", content=model)
    assert answer.status_code == 201
    store = answer.json()
    assert answer.headers["location"] == f"/v1/stores/{store['id']}"
    assert store["type"] == "onnx.ModelProto"
    assert store["root"] == "model.onnx"
    assert store["size"] == len(model)
    assert store["chunks"] == 3
    assert store["tags"] == ["first"]
    assert store["files"] == [{"path": "model.onnx", "size": len(model), "sha256": hashlib.sha256(model).hexdigest()}]
    again = client.put("/v1/stores?filename=model.onnx", content=model)
    assert again.status_code == 200
    assert again.json() == store
    assert client.get(answer.headers["location"]).json() == store


def test_a_chunked_body(client: httpx.Client, model: bytes) -> None:
    def pieces() -> Iterator[bytes]:
        for start in range(0, len(model), 100_000):
            yield model[start : start + 100_000]

    answer = client.post(
        "/v1/stores?min_chunk=65537", content=pieces(), headers={"content-type": "application/protobuf"}
    )
    assert answer.status_code == 201
    assert answer.json()["root"] == "model.pb"
    assert client.get(f"/v1/stores/{answer.json()['id']}/files/model.pb").content == model


def test_the_name_from_content_disposition(client: httpx.Client) -> None:
    headers = {"content-disposition": "attachment; filename=\"a.bin\"; filename*=UTF-8''m%C3%B6del.pb"}
    answer = client.post("/v1/stores", content=b"\x0a\x01a", headers=headers)
    assert answer.json()["root"] == "mödel.pb"
    assert client.get(f"/v1/stores/{answer.json()['id']}/files/mödel.pb").content == b"\x0a\x01a"


def test_a_form_of_several_files(client: httpx.Client, model: bytes) -> None:
    files = [("file", ("saved/model.onnx", model)), ("file", ("saved/weights.bin", b"w" * 1000))]
    answer = client.post("/v1/stores", files=files)
    assert answer.status_code == 201
    assert [file["path"] for file in answer.json()["files"]] == ["saved/model.onnx", "saved/weights.bin"]
    assert client.get(f"/v1/stores/{answer.json()['id']}/files/saved/weights.bin").content == b"w" * 1000


def test_a_tar(client: httpx.Client, model: bytes) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, data in (("m/model.onnx", model), ("m/notes.txt", b"notes")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    body = archive.getvalue()
    headers = {"content-type": "application/x-tar"}
    wrong = client.post("/v1/stores", content=body, headers={**headers, "content-digest": digest(b"other")})
    assert_problem(wrong.status_code, wrong.headers, wrong.content, expected=400)
    answer = client.post("/v1/stores", content=body, headers={**headers, "content-digest": digest(body)})
    assert answer.status_code == 201
    assert answer.json()["root"] == "m/model.onnx"
    plain = client.post("/v1/stores?format=tar", content=body, headers={"content-type": "application/octet-stream"})
    assert (plain.status_code, plain.json()["id"]) == (200, answer.json()["id"])
    assert client.post("/v1/stores?format=tar", content=body, headers=headers).json()["id"] == answer.json()["id"]
    other = client.post("/v1/stores?format=recipe", content=body, headers=headers)
    assert_problem(other.status_code, other.headers, other.content, expected=415)
    unknown = client.post("/v1/stores?format=zip", content=body)
    assert_problem(unknown.status_code, unknown.headers, unknown.content, expected=400)


def test_a_large_file_that_is_there_and_told_is_not_written_again(client: httpx.Client) -> None:
    body, written = b"told\n" * (1 << 18), 'protoslice_storage_call_seconds_count{operation="commit"}'

    def send(name: str) -> httpx.Response:
        return client.post(f"/v1/stores?filename={name}", content=body, headers={"repr-digest": digest(body)})

    assert send("one.bin").status_code == 201
    before = metric(client, written)
    made = send("two.bin")
    assert made.status_code == 201
    assert metric(client, written) == before
    assert client.get(f"/v1/stores/{made.json()['id']}/files/two.bin").content == body


def test_digests_are_verified(client: httpx.Client) -> None:
    body = b"\x0a\x07digests"
    for name in ("repr-digest", "content-digest"):
        wrong = client.post("/v1/stores", content=body, headers={name: digest(b"other")})
        assert_problem(wrong.status_code, wrong.headers, wrong.content, expected=400, slug="digest-mismatch")
    malformed = client.post("/v1/stores", content=body, headers={"repr-digest": "sha-256=:no:"})
    assert_problem(malformed.status_code, malformed.headers, malformed.content, expected=400)
    assert digest(body) not in client.get("/v1/stores").text
    other = client.post("/v1/stores", content=body, headers={"repr-digest": f"md5=:AAAA:, {digest(body)}"})
    assert other.status_code == 201


@pytest.mark.parametrize(
    ("query", "body", "headers", "expected", "slug"),
    [
        ("type=no.Such", b"\x0a\x01a", {}, 422, "unsupported"),
        ("min_chunk=0", b"\x0a\x01a", {}, 400, "invalid-input"),
        ("min_chunk=lots", b"\x0a\x01a", {}, 400, "invalid-input"),
        ("tag=bad%20tag", b"\x0a\x01a", {}, 400, "invalid-input"),
        ("filename=../x", b"\x0a\x01a", {}, 400, "invalid-input"),
        ("type=onnx.ModelProto", b"\x3a\xff\xff\xff\xff\x0fabc", {}, 400, "corrupt-model"),
        ("", b"x", {"content-type": "image/png"}, 415, "unsupported-media-type"),
        ("", b"no form", {"content-type": "multipart/form-data; boundary=x"}, 400, "invalid-input"),
        ("root=b.pb", b"\x0a\x01a", {}, 400, "invalid-input"),
    ],
)
def test_what_is_refused(
    client: httpx.Client, query: str, body: bytes, headers: dict[str, str], expected: int, slug: str
) -> None:
    before = client.get("/v1/stores?limit=1000").json()
    answer = client.post(f"/v1/stores?{query}", content=body, headers=headers)
    assert_problem(answer.status_code, answer.headers, answer.content, expected=expected, slug=slug)
    assert client.get("/v1/stores?limit=1000").json() == before


def test_a_corrupt_body_says_where(client: httpx.Client) -> None:
    answer = client.post("/v1/stores?type=onnx.ModelProto", content=b"\x08\x08\x3a\xff\xff\xff\xff\x0fabc")
    problem = assert_problem(answer.status_code, answer.headers, answer.content, expected=400)
    assert problem["offset"] == 2


REFUSED = [
    (b"content-length: 99999999999\r\n", 413, "limit-exceeded"),
    (b"content-length: 99\r\ncontent-type: image/png\r\n", 415, "unsupported-media-type"),
    (b"content-length: 99\r\nrepr-digest: sha-256=:no:\r\n", 400, "invalid-input"),
]


@pytest.mark.parametrize(("headers", "expected", "slug"), REFUSED)
def test_continue_is_not_said_to_what_is_refused(service: LiveServer, headers: bytes, expected: int, slug: str) -> None:
    answer = exchange(
        service, b"PUT /v1/stores HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n" + headers + b"\r\n"
    )
    problem = assert_problem(answer.status, answer.headers, answer.body, expected=expected, slug=slug)
    assert answer.headers["connection"] == "close"
    assert expected != 413 or problem["limit"] == 64 << 20


def test_continue_is_said_to_what_is_wanted(service: LiveServer) -> None:
    with service.connect() as connection:
        connection.sendall(
            b"PUT /v1/stores HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n"
        )
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"\x0a\x01z")
        assert read_answer(connection).status == 201


def test_a_body_without_a_length_is_cut_at_the_limit(serving: Any) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(200):
            yield b"\x0a\x80\x80\x04" + bytes(65536)

    with serving(max_upload_bytes=1 << 20) as live, httpx.Client(base_url=live.url) as client:
        answer = client.post("/v1/stores", content=endless())
        assert_problem(answer.status_code, answer.headers, answer.content, expected=413, slug="limit-exceeded")
        assert client.get("/v1/stores").json()["items"] == []


def test_a_refused_body_does_not_flow_for_ever(serving: Any) -> None:
    with serving(max_upload_bytes=1 << 20) as live, live.connect(5) as connection:
        connection.sendall(b"PUT /v1/stores HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999999999999\r\n\r\n")
        assert read_answer(connection).status == 413
        sent = 0
        with suppress(ConnectionResetError, BrokenPipeError):
            while sent < 1 << 30:
                sent += connection.send(bytes(1 << 20))
        assert sent < 256 << 20, "it took everything"


def test_too_many_uploads_at_once(serving: Any, tmp_path: Path) -> None:
    data = field_of_padding(100_000)
    head = b"PUT /v1/stores HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(data)
    (tmp_path / "m").write_bytes(b"\x0a\x01a")
    registered = {"files": {"m": (tmp_path / "m").as_uri()}}
    with (
        serving(max_uploads=1, upload_wait_seconds=0, register_allow=(tmp_path.as_uri(),)) as live,
        live.connect() as first,
        httpx.Client(base_url=live.url) as client,
    ):
        first.sendall(head + data[:1])
        deadline = time.monotonic() + 5
        while metric(client, "protoslice_open_uploads") < 1:
            assert time.monotonic() < deadline
        answer = client.put("/v1/stores", content=data)
        problem = assert_problem(answer.status_code, answer.headers, answer.content, expected=503, slug="too-busy")
        assert problem["limit"] == 1
        assert int(answer.headers["retry-after"]) > 0
        assert client.post("/v1/stores/register", json=registered).status_code == 201, "small bodies have other places"
        first.sendall(data[1:])
        assert read_answer(first).status == 201
        assert client.put("/v1/stores", content=data + data).status_code == 201


def test_a_body_that_stalls_is_refused(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "PAUSE_SECONDS", 0.3)
    with serving() as live:
        answer = exchange(live, b"PUT /v1/stores HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n\x0a")
        assert_problem(answer.status, answer.headers, answer.body, expected=408, slug="request-timeout")
        assert answer.headers["connection"] == "close"


def test_an_abandoned_upload_leaves_nothing(service: LiveServer, client: httpx.Client) -> None:
    before = client.get("/v1/stores?limit=1000").json()
    with service.connect() as connection:
        connection.sendall(
            b"PUT /v1/stores HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n" + bytes(70_000)
        )
        await_uploads(client, 1)
    await_uploads(client, 0)
    assert client.get("/v1/stores?limit=1000").json() == before


def await_uploads(client: httpx.Client, count: int) -> None:
    deadline = time.monotonic() + 5
    while metric(client, "protoslice_open_uploads") != count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_json_bodies_have_a_limit(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "MAX_JSON_BYTES", 1000)
    with serving() as live, httpx.Client(base_url=live.url) as client:
        for content in (b'{"store": "' + b"a" * 2000 + b'"}', iter([b'{"store": "', b"a" * 2000, b'"}'])):
            answer = client.put("/v1/tags/x", content=content, headers={"content-type": "application/json"})
            assert_problem(answer.status_code, answer.headers, answer.content, expected=413, slug="limit-exceeded")


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"store": 1}', b"{}", b'{"store": "a", "more": 1}', b"\xff"])
def test_json_bodies_that_do_not_parse(client: httpx.Client, content: bytes) -> None:
    answer = client.put("/v1/tags/x", content=content, headers={"content-type": "application/json"})
    assert_problem(answer.status_code, answer.headers, answer.content, expected=400)


@pytest.mark.parametrize("asked", ["PUT /v1/stores", "PUT /v1/tags/x", "PUT /v1/schemas/x", "POST /v1/uploads"])
def test_a_coded_body_is_refused(client: httpx.Client, asked: str) -> None:
    """The service would store the encoded bytes, and serve them as if they were the model."""
    body, headers = gzip.compress(b"\x0a\x01a"), {"content-encoding": "gzip", "tus-resumable": "1.0.0"}
    answer = client.request(*asked.split(), content=body, headers=headers)
    assert_problem(answer.status_code, answer.headers, answer.content, expected=415, slug="unsupported-media-type")
    assert answer.headers["accept-encoding"] == "identity"
    assert client.put("/v1/stores", content=b"\x0a\x01a", headers={"content-encoding": "Identity"}).is_success


def test_registering_needs_an_operator_who_allows_it(client: httpx.Client) -> None:
    answer = client.post("/v1/stores/register", json={"files": {"m.pb": "file:///etc/passwd"}})
    assert_problem(answer.status_code, answer.headers, answer.content, expected=422)


def test_registering_in_place(serving: Any, tmp_path: Path, model: bytes) -> None:
    (tmp_path / "model.onnx").write_bytes(model)
    with serving(register_allow=(tmp_path.as_uri(),)) as live, httpx.Client(base_url=live.url) as client:
        files = {"model.onnx": (tmp_path / "model.onnx").as_uri()}
        answer = client.post("/v1/stores/register", json={"files": files, "type": None, "tags": ["here"]})
        assert answer.status_code == 201, answer.text
        assert answer.json()["tags"] == ["here"]
        assert client.get("/v1/stores/here/merge").content == model
        (tmp_path / "model.onnx").write_bytes(model[:-1] + b"!")
        changed = client.get("/v1/stores/here/files/model.onnx")
        assert_problem(changed.status_code, changed.headers, changed.content, expected=409, slug="conflict")


def test_an_empty_body_has_to_be_meant(client: httpx.Client) -> None:
    before = client.get("/v1/stores?limit=1000").json()
    for body in (b"", iter(())):  # with a length, and in chunks
        answer = client.put("/v1/stores", content=body)
        problem = assert_problem(answer.status_code, answer.headers, answer.content, expected=400, slug="invalid-input")
        assert "The body is empty" in problem["detail"]
    assert client.get("/v1/stores?limit=1000").json() == before
    made = client.put("/v1/stores?type=onnx.ModelProto")
    assert made.status_code == 201
    assert (made.json()["type"], made.json()["size"]) == ("onnx.ModelProto", 0)
    assert client.put("/v1/stores?filename=notes").status_code == 201


def test_a_corrupt_object_is_not_registered(serving: Any, tmp_path: Path, model: bytes) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x3a\xff\xff\xff\xff\x0fabc")
    files = {"model.onnx": (tmp_path / "model.onnx").as_uri()}
    with serving(register_allow=(tmp_path.as_uri(),)) as live, httpx.Client(base_url=live.url) as client:
        before = client.get("/v1/stores").json()
        answer = client.post("/v1/stores/register", json={"files": files, "type": "onnx.ModelProto"})
        assert_problem(answer.status_code, answer.headers, answer.content, expected=400, slug="corrupt-model")
        assert client.get("/v1/stores").json() == before


def test_an_object_is_one_store_however_its_uri_is_spelled(serving: Any, tmp_path: Path, model: bytes) -> None:
    (tmp_path / "a b.onnx").write_bytes(model)
    path = f"{tmp_path}/a%20b.onnx"
    with serving(register_allow=(tmp_path.as_uri(),)) as live, httpx.Client(base_url=live.url) as client:
        made = [
            client.post("/v1/stores/register", json={"files": {"a.onnx": uri}})
            for uri in (
                f"file://{path}",
                f"file://localhost{path}",
                f"FILE://LocalHost{path}",
                f"file://{path.replace('a%20b', '%61 b')}",
            )
        ]
        assert [answer.status_code for answer in made] == [201, 200, 200, 200], [answer.text for answer in made]
        assert len({answer.json()["id"] for answer in made}) == 1


def test_registering_from_a_network_that_is_not_public_needs_it_listed(serving: Any, model: bytes) -> None:
    with web_server() as web:
        web.objects["model.onnx"] = model
        root = f"http://127.0.0.1:{web.port}/files"
        asked = {"files": {"model.onnx": f"{root}/model.onnx"}}
        with serving(register_allow=(root,)) as live, httpx.Client(base_url=live.url) as client:
            answer = client.post("/v1/stores/register", json=asked)
            assert_problem(answer.status_code, answer.headers, answer.content, expected=422)
        networks = ("10.0.0.0/8", "127.0.0.1")
        listed = serving(register_allow=(root,), register_networks=networks)
        with listed as live, httpx.Client(base_url=live.url) as client:
            answer = client.post("/v1/stores/register", json=asked)
            assert answer.status_code == 201, answer.text
            assert client.get(f"/v1/stores/{answer.json()['id']}/merge").content == model


def test_curl_puts_a_file(service: LiveServer, client: httpx.Client, tmp_path: Path, model: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model + field_of_padding(3 << 20))
    done = subprocess.run(
        ["curl", "-sS", "-T", str(path), f"{service.url}/v1/stores?filename=model.onnx&tag=curl"],
        capture_output=True,
        check=True,
    )
    assert b'"tags":["curl"]' in done.stdout
    half = tmp_path / "half"
    half.write_bytes(path.read_bytes()[:1_000_000])
    url = f"{service.url}/v1/stores/curl/files/model.onnx"
    subprocess.run(["curl", "-sS", "-C", "-", "-o", str(half), url], check=True, capture_output=True)
    assert half.read_bytes() == path.read_bytes()


def field_of_padding(size: int) -> bytes:
    return b"\x32" + bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21]) + bytes(size)


def test_uploads_and_reads_go_side_by_side(service: LiveServer, client: httpx.Client, model: bytes) -> None:
    """A slow upload delays no other request."""
    client.put("/v1/stores?tag=beside&filename=model.onnx", content=model)
    with service.connect() as slow:
        slow.sendall(b"PUT /v1/stores HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n\x0a")
        results: list[int] = []
        threads = [
            threading.Thread(
                target=lambda: results.append(httpx.get(f"{service.url}/v1/stores/beside/merge").status_code)
            )
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert results == [200] * 8
        slow.shutdown(socket.SHUT_RDWR)
