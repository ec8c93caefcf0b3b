"""The cache that asks the service first: it returns bytes only to callers who may read them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.deployment.nginx.front import Answer, ask, nginx

DATA = random.Random(15).randbytes(9_000_000)
ORIGIN = "https://viewer.example"


@dataclass(frozen=True)
class Site:
    """nginx in front of a service with two spaces, an admin's token, and a store in the space `own`."""

    port: int
    direct: int
    admin: str
    path: str

    def get(self, token: str | None, path: str | None = None, **headers: str) -> Answer:
        """Return nginx's answer to a caller with or without a token."""
        named = {} if token is None else {"Authorization": f"Bearer {token}"}
        return ask(self.port, path or self.path, **named, **headers)

    def token(self, space: str, *scopes: str) -> str:
        """Return a new token of a space."""
        told = sent(self.direct, "POST", f"/spaces/{space}/v1/tokens", self.admin, {"name": "t", "scopes": scopes})
        return str(told["token"])


def sent(port: int, method: str, path: str, token: str, body: Mapping[str, Any] | bytes = b"") -> dict[str, Any]:
    """Return the JSON of the service's answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(method, path, data, {"Authorization": f"Bearer {token}", "Content-Type": kind})
        answer = connection.getresponse()
        told: dict[str, Any] = json.loads(answer.read())
        assert answer.status < 300, told
        return told


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("private")
    given = {"PROTOSLICE_STORAGE": folder.as_uri(), "PROTOSLICE_AUTH": "tokens", "PROTOSLICE_CORS_ORIGINS": ORIGIN}
    command = [sys.executable, "-m", "protoslice.cli", "serve", "--port", "0"]
    process = subprocess.Popen(
        command, env=os.environ | given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline().strip() for _ in range(2)]
        direct = int(next(line for line in lines if line.startswith("http")).rpartition(":")[2])
        admin = next(word for line in lines for word in line.split() if word.startswith("psl_"))
        for space in ("own", "other"):
            sent(direct, "PUT", f"/v1/spaces/{space}", admin)
        store = sent(direct, "PUT", "/spaces/own/v1/stores?filename=m.bin&tag=m", admin, DATA)["id"]
        path = f"/spaces/own/v1/stores/{store}/files/m.bin"
        cache = tmp_path_factory.mktemp("nginx")
        with nginx("nginx-private-cache.conf", cache, direct) as port:
            yield Site(port, direct, admin, path)
    finally:
        process.terminate()
        process.stdout.close()
        assert process.wait(timeout=60) in {0, -signal.SIGTERM}


def test_bytes_in_the_cache_are_for_those_who_may_read_them(site: Site) -> None:
    reader, second = site.token("own", "read"), site.token("own", "read")
    writer, stranger = site.token("own", "write"), site.token("other", "read")
    part = {"Range": "bytes=100-199"}
    states = [site.get(token, **part) for token in (reader, reader, second)]
    assert [(each.status, each.body) for each in states] == [(206, DATA[100:200])] * 3
    assert [each.headers["cache-status"] for each in states[1:]] == ["nginx; hit"] * 2
    assert all("private" in each.headers["cache-control"] for each in states)
    for token, status in ((None, 401), (writer, 403), (stranger, 404), (reader[:-1] + "!", 401)):
        refused = site.get(token, **part)
        assert refused.status == status, refused
        assert DATA[100:200] not in refused.body
        assert refused.headers["content-type"] == "application/problem+json"
        assert ("www-authenticate" in refused.headers) == (status == 401)


def test_a_range_over_slices_is_asked_about_once_and_is_right(site: Site) -> None:
    reader = site.token("own", "read")
    for _ in range(2):
        whole = site.get(reader)
        assert (whole.status, whole.body) == (200, DATA)
    assert site.get(reader, Range="bytes=8388600-8388620").body == DATA[8388600:8388621]


def test_signed_urls_share_what_is_cached_and_bent_ones_get_nothing(site: Site) -> None:
    reader = site.token("own", "read")
    path = site.path.removeprefix("/spaces/own")
    urls = []
    for seconds in (600, 700):
        told = sent(site.direct, "POST", "/spaces/own/v1/sign", reader, {"path": path, "expires_seconds": seconds})
        parts = urlsplit(told["url"])
        urls.append(f"{parts.path}?{parts.query}")
    first, second = (site.get(None, url, Range="bytes=0-9") for url in urls)
    assert (first.status, second.status, second.body) == (206, 206, DATA[:10])
    assert second.headers["cache-status"] == "nginx; hit", "two signatures of one file are one entry"
    for bent in (urls[0][:-1] + ("0" if urls[0][-1] != "0" else "1"), urls[0].replace("psl-expires=", "psl-expires=9")):
        refused = site.get(None, bent, Range="bytes=0-9")
        assert (refused.status, DATA[:10] in refused.body) == (401, False)


def test_the_key_knows_the_origin(site: Site) -> None:
    reader = site.token("own", "read")
    for origin in (ORIGIN, None, ORIGIN):
        got = site.get(reader, Range="bytes=0-9", **({"Origin": origin} if origin else {}))
        assert got.headers.get("access-control-allow-origin") == origin


def test_a_revoked_token_and_a_removed_store_end_what_the_cache_gives(site: Site) -> None:
    store = sent(site.direct, "PUT", "/spaces/own/v1/stores?filename=m.bin", site.admin, DATA[:5000])["id"]
    path, reader = f"/spaces/own/v1/stores/{store}/files/m.bin", site.token("own", "read")
    assert [site.get(reader, path).status for _ in range(2)] == [200, 200]
    sent(site.direct, "DELETE", f"/spaces/own/v1/stores/{store}", site.admin)
    assert site.get(reader, path).status == 404
