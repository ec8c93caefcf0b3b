"""Hostile requests through every protocol, over plain sockets and over TLS: all are refused."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import Final
from urllib.parse import urlsplit

import pytest
from tests.server.auth.hostile import (
    CREDENTIALS,
    FACADES,
    HEADERS,
    MLFLOW,
    OWN,
    OWN_LISTS,
    SECRET,
    SMUGGLED,
    Site,
    exchanged,
    running_site,
    spellings,
)
from tests.server.auth.oidc.test_verification import HOSTILE, part
from tests.support.issuer import rsa

from protoslice.server.auth.oidc import keys

TRANSPORTS: Final = ("plain", "TLS")
REFUSED: Final = tuple(b"HTTP/1.1 %d" % status for status in (400, 401, 403, 404, 405, 421, 431))
DATA: Final = b"to be sent to a signed URL " * 100
OID: Final = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(scope="module", params=TRANSPORTS)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("hostile"), tls=request.param == "TLS") as made:
        yield made


def said_to(
    site: Site, method: str, target: str, *lines: str | bytes, body: bytes = b"", version: str = "1.1"
) -> bytes:
    """Return the answer to a request with these header lines."""
    head = f"{method} {target} HTTP/{version}\r\nHost: localhost\r\nConnection: close\r\n".encode()
    head += b"Content-Length: %d\r\n" % len(body)
    more = b"".join((line if isinstance(line, bytes) else line.encode()) + b"\r\n" for line in lines)
    try:
        return exchanged(site, head + more + b"\r\n" + body)
    except (ConnectionError, OSError):
        return b"HTTP/1.1 431"  # the service closes the connection on a head without end


def token_line(token: str) -> str:
    return f"Authorization: Bearer {token}"


@pytest.mark.parametrize("facade", FACADES)
def test_no_spelling_reaches_another_space(site: Site, facade: str) -> None:
    through = []
    for name, target in spellings(FACADES[facade]).items():
        for lines, version in product(((), (token_line(site.reader),)), ("1.0", "1.1")):
            said = said_to(site, "GET", target, *lines, version=version)
            own = name in OWN_LISTS and lines
            if SECRET[:20] in said or not (own or said.startswith(REFUSED)):
                through.append((name, target, said[:200]))
    assert through == []
    assert b"HTTP/1.1 200" in said_to(site, "GET", FACADES[facade], token_line(site.admin)), "there is something"


@pytest.mark.parametrize("facade", FACADES)
def test_no_other_header_and_no_bent_credential_gives_a_right(site: Site, facade: str) -> None:
    through, before = [], site.state()
    words = {b"admin": site.admin, b"short": site.admin[:-1], b"upper": site.admin.upper(), b"reader": site.reader}
    for name, header in HEADERS.items():
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE") if site.trusted is None else ("GET",):
            for lines in ((), (token_line(site.reader),)):
                more = header.replace("{admin}", site.admin)
                said = said_to(site, method, FACADES[facade], more, *lines)
                if not said.startswith(REFUSED) or SECRET[:20] in said or site.admin.encode() in said:
                    through.append((name, method, said[:200]))
    for name, value in CREDENTIALS.items():
        for word, text in words.items():
            value = value.replace(b"{%b}" % word, text.encode())
        said = said_to(site, "GET", FACADES[facade], b"Authorization: " + value)
        if not said.startswith((b"HTTP/1.1 400", b"HTTP/1.1 401")) or SECRET[:20] in said:
            through.append((name, "GET", said[:200]))
    assert through == []
    assert site.state() == before


def test_no_other_header_changes_what_is_readable(site: Site) -> None:
    through, before = [], site.state()
    for name, method in product(HEADERS, ("GET", "POST", "DELETE")):
        for lines in ((), (token_line(site.reader),)):
            more = HEADERS[name].replace("{admin}", site.admin)
            said = said_to(site, method, f"/spaces/own/v1/stores/{site.store}", more, *lines)
            allowed = bool(lines) and method == "GET"
            if said.startswith(b"HTTP/1.1 2") != allowed or site.admin.encode() in said:
                through.append((name, method, said[:200]))
    assert through == []
    assert site.state() == before


@pytest.mark.parametrize("facade", FACADES)
def test_no_jwt_of_the_table_enters(site: Site, facade: str) -> None:
    target = FACADES[facade].replace("/other/", "/own/").replace("hidden", "own")
    entered = []
    for name, made in HOSTILE.items():
        said = said_to(site, "GET", target, token_line(made(site.issuer)))
        if not said.startswith((b"HTTP/1.1 401", b"HTTP/1.1 400", b"HTTP/1.1 431")):
            entered.append((name, said[:200]))
    assert entered == []
    if "blobs" not in facade:  # blobs of the two spaces have different digests
        assert said_to(site, "GET", target, token_line(site.issuer.token())).startswith(b"HTTP/1.1 200")


def test_unknown_keys_fetch_at_most_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "AGAIN_SECONDS", 3600.0)  # on a slow machine too
    fetched, rest = len(site.issuer.fetches), site.issuer.token(rsa("mine")).partition(".")[2]
    facades = list(FACADES.values())
    with site.http() as http:
        for number in range(100):
            kid = part({"alg": "RS256", "kid": f"unknown-{number}"})
            got = http.get(facades[number % len(facades)], headers={"authorization": f"Bearer {kid}.{rest}"})
            assert got.status_code == 401, got
    assert len(site.issuer.fetches) - fetched <= 2, "one document of the issuer and one of its keys"


@pytest.mark.parametrize("name", SMUGGLED)
def test_no_request_hides_in_another(site: Site, name: str) -> None:
    before, through = site.state(), []
    deleted = (f"/spaces/own/v1/stores/{site.store}", f"/spaces/own{MLFLOW}/artifacts/own/m.onnx")
    inner = "".join(
        f"DELETE {path} HTTP/1.1\r\nHost: localhost\r\n{token_line(site.writer)}\r\n\r\n" for path in deleted
    )
    for target in ("/spaces/own/v1/chunks/missing",
                   "/spaces/own/team/own.git/info/lfs/objects/batch", "/spaces/own/v2/team/own/blobs/uploads/",
                   f"/spaces/own{MLFLOW}/mpu/abort/own"):  # fmt: skip
        head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n".encode()
        head += f"{token_line(site.reader)}\r\n".encode()
        said = exchanged(site, head + SMUGGLED[name] + b"\r\n0\r\n\r\n" + inner.encode())
        if not said.startswith(REFUSED):
            through.append((target, said[:200]))
    assert through == []
    assert site.state() == before


def lfs(site: Site, oid: str = OID) -> str:
    """Return a signed URL to which git-lfs sends a file."""
    wanted = {"operation": "upload", "objects": [{"oid": oid, "size": len(DATA)}]}
    kind = {"content-type": "application/vnd.git-lfs+json", "accept": "application/vnd.git-lfs+json"}
    with site.http(site.writer) as http:
        told = http.post("/spaces/own/team/own.git/info/lfs/objects/batch", content=json.dumps(wanted), headers=kind)
    return path_of(told.json()["objects"][0]["actions"]["upload"]["href"])


def in_parts(site: Site) -> str:
    """Return a signed URL to which MLflow sends a part."""
    with site.http(site.writer) as http:
        told = http.post(f"/spaces/own{MLFLOW}/mpu/create/own", json={"path": "big", "num_parts": 2}).json()
    return path_of(told["credentials"][0]["url"])


def planned(site: Site) -> str:
    """Return a signed URL from which MLflow reads a file."""
    with site.http(site.reader) as http:
        return path_of(http.get(f"/spaces/own{MLFLOW}/presigned/own/m.onnx").json()["url"])


def path_of(url: str) -> str:
    """Return the path and query."""
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}"


SIGNED: Final[dict[str, tuple[str, Callable[[Site], str]]]] = {
    "git-lfs": ("PUT", lfs),
    "MLflow's parts": ("PUT", in_parts),
    "MLflow's downloads": ("GET", planned),
}
BENT: Final[dict[str, Callable[[str], str]]] = {
    "another proof": lambda url: url[:-1] + ("0" if url[-1] != "0" else "1"),
    "no proof": lambda url: url.partition("&psl-signature")[0],
    "no signature": lambda url: url.partition("?")[0] + "?number=1",
    "an empty proof": lambda url: url[:-64],
    "a longer proof": lambda url: url + "0",
    "a later end": lambda url: url.replace("psl-expires=", "psl-expires=9"),
    "another token": lambda url: url.replace("psl-token=", "psl-token=x").replace("&psl-signature", "", 1),
    "another part": lambda url: url.replace("?", "?number=2&"),
    "a parameter behind": lambda url: url + "&number=2",
    "another space": lambda url: url.replace("/own/", "/other/", 1),
    "the default space": lambda url: url.replace("/spaces/own", ""),
    "another file": lambda url: url.replace("?", "x?", 1),
    "another repository": lambda url: re.sub("(.*/)own", r"\1hidden", url),
    "double slash": lambda url: url.replace("/api/", "//api/"),
    "dots": lambda url: url.replace("/spaces/own/", "/spaces/other/../own/"),
    "an encoded dot": lambda url: url.replace("/api/", "/%2e/api/"),
    "an encoded slash": lambda url: url.replace("/api/", "%2Fapi/"),
    "NUL": lambda url: url.replace("?", "%00?", 1),
    "a line": lambda url: url.replace("?", "%0d%0aauthorization:x?", 1),
}


@pytest.mark.parametrize("facade", SIGNED)
def test_no_altered_url_and_no_other_method_is_taken(site: Site, facade: str) -> None:
    method, url_of = SIGNED[facade]
    target, through = url_of(site), []
    body = DATA if method == "PUT" else b""
    before = site.state()
    for name, bend in BENT.items():
        bent = bend(target)
        assert bent != target, name
        for _ in range(2):
            said = said_to(site, method, bent, body=body)
            if not said.startswith(REFUSED) or OWN[:17] in said:
                through.append((name, bent, said[:200]))
    for other in (
        {"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"} - {method} - ({"HEAD"} if method == "GET" else set())
    ):
        said = said_to(site, other, target, "X-HTTP-Method-Override: PUT")
        if not said.startswith(REFUSED):
            through.append((other, target, said[:200]))
    assert through == []
    assert site.state() == before
    assert said_to(site, method, target, body=body).startswith(b"HTTP/1.1 200"), "it was no bad URL"


def test_a_signed_url_reads_again_and_changes_nothing(site: Site) -> None:
    before = site.state()
    for method, status in (("GET", 200), ("GET", 200), ("HEAD", 200), ("DELETE", 401), ("PUT", 401), ("POST", 401)):
        said = said_to(site, method, site.signed)
        assert said.startswith((b"HTTP/1.1 %d" % status, b"HTTP/1.1 405")), (method, said[:200])
    assert site.state() == before


def test_a_replayed_upload_changes_nothing(site: Site) -> None:
    wanted = lfs(site, hashlib.sha256(b"of other bytes").hexdigest())
    assert said_to(site, "PUT", wanted, body=DATA).startswith(b"HTTP/1.1 4")
    target = in_parts(site)
    before = site.state()
    tags = set()
    for _ in range(2):
        said = said_to(site, "PUT", target, body=DATA)
        assert said.startswith(b"HTTP/1.1 200")
        tags.add(said.partition(b"etag: ")[2].partition(b"\r\n")[0])
    assert len(tags) == 2, "each is a part of its own, until one is named"
    assert site.state() == before
