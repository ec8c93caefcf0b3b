"""Manifests of excessive size, and uploads that are begun and never end: both are bounded."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from http.client import HTTPConnection
from typing import Any

import httpx
import pytest
from tests.support.serve import LiveServer

from protoslice.artifacts import MAX_MANIFEST_BYTES
from protoslice.server.registries.hub import lfs

Serving = Callable[..., AbstractContextManager[LiveServer]]
Begun = Callable[[LiveServer, httpx.Client, str], int]

BASE = "/v2/team/endless"
PART = 1000
MANIFEST = {"content-type": "application/vnd.oci.image.manifest.v1+json"}


def code_of(answer: httpx.Response) -> str:
    code: str = answer.json()["errors"][0]["code"]
    return code


def in_pieces(size: int) -> Iterator[bytes]:
    for _ in range(size >> 16):
        yield b" " * (1 << 16)


@pytest.mark.parametrize("told", [True, False])
def test_a_manifest_over_its_limit_is_refused(client: httpx.Client, told: bool) -> None:
    size = 5 << 20
    assert size > MAX_MANIFEST_BYTES
    content = b" " * size if told else in_pieces(size)
    answer = client.put(f"{BASE}/manifests/v1", content=content, headers=MANIFEST)
    assert (answer.status_code, code_of(answer)) == (413, "SIZE_INVALID")
    assert client.get(f"{BASE}/manifests/v1").status_code == 404


def cut_off(live: LiveServer, url: str) -> None:
    """Send the beginning of a body, and no more."""
    with closing(HTTPConnection(live.host, live.port, timeout=30)) as connection:
        connection.putrequest("PUT", url.removeprefix(live.url))
        connection.putheader("content-length", str(PART))
        connection.endheaders(b"the beginning")


def by_chunks(live: LiveServer, client: httpx.Client, mark: str) -> int:
    """Begin a registry's blob, and send one chunk of it."""
    begun = client.post(f"{BASE}/blobs/uploads/")
    if begun.status_code == 202:
        assert client.patch(begun.headers["location"], content=mark.encode()).status_code == 202
    return begun.status_code


def by_lfs(live: LiveServer, client: httpx.Client, mark: str) -> int:
    """Begin a file of the hub, and send its beginning."""
    told = batch(client, mark, PART)
    if told.status_code == 200:
        cut_off(live, told.json()["objects"][0]["actions"]["upload"]["href"])
    return told.status_code


def by_parts(live: LiveServer, client: httpx.Client, mark: str) -> int:
    """Begin a large file of the hub; send one part whole, and the beginning of another."""
    parts = action(client, mark)["header"]
    cut_off(live, parts["1"])
    return client.put(parts["2"], content=bytes(PART)).status_code


def action(client: httpx.Client, mark: str) -> dict[str, Any]:
    """Return the action of a file that is uploaded in parts."""
    found: dict[str, Any] = batch(client, mark, 3 * PART).json()["objects"][0]["actions"]["upload"]
    return found


def batch(client: httpx.Client, mark: str, size: int) -> httpx.Response:
    """Return the answer about one file."""
    oid = hashlib.sha256(mark.encode()).hexdigest()
    body = {"operation": "upload", "transfers": ["basic", "multipart"], "objects": [{"oid": oid, "size": size}]}
    return client.post("/ann/m.git/info/lfs/objects/batch", json=body)


def until(condition: Callable[[int], bool]) -> None:
    """Try until the condition holds for the number of a try."""
    for number in range(400):
        if condition(number):
            return
        time.sleep(0.05)
    raise TimeoutError("it did not come to pass")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lfs, "_PART_BYTES", PART)


def by_xet(live: LiveServer, client: httpx.Client, mark: str) -> int:
    """Begin a session without sending a xorb."""
    return client.get("/api/models/ann/m/xet-write-token/main").status_code


@pytest.mark.parametrize("begun", [by_chunks, by_lfs, by_parts, by_xet])
def test_uploads_that_never_end_are_few_and_expire(serving: Serving, begun: Begun) -> None:
    settings = {"max_open_uploads_per_client": 2, "upload_lifetime_seconds": 3}
    with serving(**settings) as live, httpx.Client(base_url=live.url, timeout=30) as client:
        client.post("/api/repos/create", json={"organization": "ann", "name": "m"}).raise_for_status()
        assert begun(live, client, "first") < 300
        until(lambda number: begun(live, client, f"{number}") == 429)
        until(lambda number: begun(live, client, f"later {number}") < 300)


def test_a_space_has_as_many_open_uploads_as_its_quota_says(serving: Serving) -> None:
    with serving() as live, httpx.Client(base_url=live.url, timeout=30) as client:
        client.put("/v1/spaces/red", json={"quota_open_uploads": 1}).raise_for_status()
        begun = [client.post(f"/spaces/red{BASE}/blobs/uploads/") for _ in range(2)]
        assert [answer.status_code for answer in begun] == [202, 429]
        assert code_of(begun[1]) == "TOOMANYREQUESTS"
        assert client.post(f"{BASE}/blobs/uploads/").status_code == 202


def test_a_blob_that_goes_on_and_on_ends_at_the_limit(serving: Serving) -> None:
    with serving(max_upload_bytes=1 << 20) as live, httpx.Client(base_url=live.url, timeout=30) as client:
        location = client.post(f"{BASE}/blobs/uploads/").headers["location"]
        for _ in range(4):
            assert client.patch(location, content=bytes(1 << 18)).status_code == 202
        answer = client.patch(location, content=b"x")
        assert (answer.status_code, code_of(answer)) == (413, "SIZE_INVALID")


def test_parts_that_are_sent_time_and_again_fill_no_more_than_their_space(serving: Serving) -> None:
    with serving() as live, httpx.Client(base_url=live.url, timeout=30) as client:
        client.put("/v1/spaces/red", json={"quota_bytes": 100 * PART}).raise_for_status()
        client.base_url = f"{live.url}/spaces/red"
        client.post("/api/repos/create", json={"organization": "ann", "name": "m"}).raise_for_status()
        part = action(client, "again")["header"]["1"]
        statuses = [client.put(part, content=bytes(PART)).status_code for _ in range(110)]
        assert statuses[0] == 200
        assert statuses[-1] == 403


def test_parts_expire(serving: Serving) -> None:
    with serving(upload_lifetime_seconds=1) as live, httpx.Client(base_url=live.url, timeout=30) as client:
        client.post("/api/repos/create", json={"organization": "ann", "name": "m"}).raise_for_status()
        told, parts = action(client, "expiring"), []
        for number in (1, 2, 3):
            answer = client.put(told["header"][f"{number}"], content=bytes(PART))
            parts.append({"partNumber": number, "etag": answer.headers["etag"]})
        time.sleep(1.1)
        assert client.post(told["href"], json={"parts": parts}).status_code == 410
