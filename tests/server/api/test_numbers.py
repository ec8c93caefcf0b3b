"""Numbers of any length, anywhere in a request: refused or clamped, never a failure of the service."""

from __future__ import annotations

import json

import httpx
import pytest
from tests.support.serve import LiveServer, exchange

LONG = ("9" * 20, "9" * 31, "9" * 5000, "0" * 5000 + "1", "-" + "9" * 31)
"""Python itself reads no more than 4300 digits."""


@pytest.mark.parametrize("digits", LONG, ids=lambda text: f"{text[0]}x{len(text)}")
@pytest.mark.parametrize("name", ["Content-Length", "Upload-Offset", "Upload-Length", "Range", "Want-Content-Digest"])
def test_in_headers(service: LiveServer, client: httpx.Client, name: str, digits: str) -> None:
    store = client.put("/v1/stores", content=b"\x0a\x04many").json()["id"]
    value = {"Range": f"bytes={digits}-", "Want-Content-Digest": f"sha-256={digits}"}.get(name, digits)
    head = "host: localhost\r\ntus-resumable: 1.0.0\r\ncontent-type: application/offset+octet-stream\r\n"
    head += f"{name}: {value}\r\n\r\n"
    for line in (f"GET /v1/stores/{store}/files/model.pb", "POST /v1/uploads", "PATCH /v1/uploads/x", "PUT /v1/stores"):
        assert exchange(service, f"{line} HTTP/1.1\r\n{head}".encode()).status < 500


@pytest.mark.parametrize("digits", LONG, ids=lambda text: f"{text[0]}x{len(text)}")
def test_in_queries_and_paths(client: httpx.Client, model: bytes, digits: str) -> None:
    store = client.put("/v1/stores?filename=m.onnx", content=model).json()["id"]
    for target in (
        f"/v1/stores?limit={digits}",
        f"/v1/stores/{store}/chunks?limit={digits}",
        f"/v1/stores/{store}/chunks/{digits}",
        f"/v1/stores/{store}/tree?depth={digits}",
        f"/v1/stores/{store}/tensors?limit={digits}",
        f"/v1/stores/{store}/tensors/big?slice={digits}",
        f"/v1/stores/{store}/tensors/big?slice=0:{digits}:{digits}",
        f"/v1/stores/{store}/merge?path=graph.initializer[{digits}]",
        f"/v1/stores/{store}/merge?fields=graph.initializer[{digits}:]",
        f"/v1/stores/{store}/merge?omit_larger_than={digits}KiB",
    ):
        assert client.get(target).status_code < 500, target
    assert client.put(f"/v1/stores?min_chunk={digits}", content=model).status_code < 500


@pytest.mark.parametrize("digits", LONG, ids=lambda text: f"{text[0]}x{len(text)}")
def test_in_json(client: httpx.Client, digits: str) -> None:
    for path, body in {
        "/v1/stores/assemble": f'{{"uploads": {{"a": "x"}}, "min_chunk": {digits}}}',
        "/v1/chunks/missing": f'{{"chunks": [{{"sha256": "{"a" * 64}", "size": {digits}}}]}}',
        "/v1/stores/register": f'{{"files": {{"a": {{"uri": "file:///x", "offset": {digits}}}}}}}',
    }.items():
        assert client.post(path, content=body, headers={"content-type": "application/json"}).status_code < 500
    recipe = b'{"file": "a"}\n{"bytes": %b}\n' % digits.encode()
    headers = {"content-type": "application/vnd.protoslice.recipe"}
    assert client.put("/v1/stores", content=recipe, headers=headers).status_code < 500
    copy = json.dumps({"copy": {"store": "a" * 64, "file": "b", "offset": 0, "length": 1}}).replace("0", digits)
    answer = client.put("/v1/stores", content=b'{"file": "a"}\n' + copy.encode() + b"\n", headers=headers)
    assert answer.status_code < 500
