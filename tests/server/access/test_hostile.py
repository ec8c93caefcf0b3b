"""Hostile requests over a real socket: none gets through, and none changes anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest
from tests.server.access.closed import bearer
from tests.server.access.oidc.test_verification import HOSTILE, part
from tests.server.access.oidc.trusting import trust_file
from tests.server.access.test_signatures import BENT
from tests.support.issuer import FakeIssuer, rsa, running_issuer
from tests.support.live import LiveServer, live_server

from protoslice.server.app import create_app
from protoslice.server.settings import Settings
from protoslice.server.transport.uvicorn_config import uvicorn_config

SECRET: Final = b"of the other space alone " * 400
OWN: Final = b"of the own space " * 400
HIDDEN: Final = "/spaces/other/v1/stores/hidden-tag/files/m.onnx"


@dataclass(frozen=True)
class Site:
    """A service with a store in each of two spaces, callers of the one, and the admin of all."""

    live: LiveServer
    issuer: FakeIssuer
    admin: str
    reader: str
    store: str
    signed: str

    def state(self) -> list[object]:
        """Stores and tags of both spaces."""
        with httpx.Client(base_url=self.live.url, headers=bearer(self.admin)) as http:
            paths = [f"/spaces/{space}/v1/{what}" for space in ("own", "other") for what in ("stores", "tags")]
            return [http.get(path).json() for path in paths]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("hostile")
    with running_issuer() as issuer:
        trust = trust_file(folder, issuer)
        settings = Settings(storage=folder.as_uri(), space_watermark_bytes=0, auth="tokens", issuers=trust)
        app = create_app(settings)
        with live_server(uvicorn_config(app, settings)) as live, httpx.Client(base_url=live.url) as http:
            assert app.services.first_token is not None
            admin = app.services.first_token.text
            inside = bearer(admin)
            stores = {}
            for space, data, tag in (("own", OWN, "own-tag"), ("other", SECRET, "hidden-tag")):
                http.put(f"/v1/spaces/{space}", headers=inside)
                put = f"/spaces/{space}/v1/stores?filename=m.onnx&tag={tag}"
                stores[space] = http.put(put, content=data, headers=inside).json()["id"]
            terms = {"name": "r", "scopes": ["read"]}
            reader = http.post("/spaces/own/v1/tokens", json=terms, headers=inside).json()["token"]
            wanted = {"path": "/v1/stores/own-tag/files/m.onnx", "expires_seconds": 600}
            url = urlsplit(http.post("/spaces/own/v1/sign", json=wanted, headers=bearer(reader)).json()["url"])
            yield Site(live, issuer, admin, reader, stores["own"], f"{url.path}?{url.query}")


def exchanged(site: Site, sent: bytes) -> bytes:
    """All that the service says to these bytes, which ask it to hang up."""
    with site.live.connect() as connection:
        connection.sendall(sent)
        found = bytearray()
        while piece := connection.recv(1 << 16):
            found += piece
        return bytes(found)


TARGETS: Final = {
    "as it is": HIDDEN,
    "two slashes in front": f"/{HIDDEN}",
    "two slashes within": HIDDEN.replace("/other/", "//other/"),
    "two slashes behind": HIDDEN.replace("/other/", "/other//"),
    "dots": HIDDEN.replace("/other/", "/own/../other/"),
    "dots behind": "/spaces/own/v1/../../other/v1/stores/hidden-tag/files/m.onnx",
    "encoded dots": HIDDEN.replace("/other/", "/own/%2e%2e/other/"),
    "encoded twice": HIDDEN.replace("/other/", "/own/%252e%252e/other/"),
    "encoded slashes": HIDDEN.replace("/other/", "/own%2f..%2fother/"),
    "one dot": HIDDEN.replace("/other/", "/./other/"),
    "an encoded letter": HIDDEN.replace("/other/", "/%6fther/"),
    "a backslash": HIDDEN.replace("/other/", "/own\\..\\other/"),
    "a semicolon": HIDDEN.replace("/other/", "/other;own/"),
    "a NUL": HIDDEN.replace("/other/", "/own%00/../other/"),
    "upper case": HIDDEN.replace("/spaces/other/", "/SPACES/OTHER/"),
    "a fragment": f"/spaces/own/v1/stores#{HIDDEN}",
    "a space of a space": f"/spaces/own{HIDDEN}",
    "the store's tag in the own space": HIDDEN.replace("/other/", "/own/"),
    "a path in a reference": "/spaces/own/v1/stores/..%2f..%2f..%2fspaces%2fother%2fv1%2fstores%2fhidden-tag/files/x",
    "a path in a file's name": "/spaces/own/v1/stores/own-tag/files/..%2f..%2f..%2fother",
    "absolute": "http://localhost" + HIDDEN,
    "absolute, of another host": "http://evil.example" + HIDDEN,
    "absolute, with a user": "http://admin:admin@localhost" + HIDDEN,
    "an asterisk": "*",
    "a query that overrides": f"/spaces/own/v1/stores?space=other&path={HIDDEN}",
    "a signature of another path": HIDDEN + "?psl-expires=99999999999&psl-token=aaaaaaaaaa&psl-signature=" + "0" * 64,
}


OWN_LISTS: Final = {"a query that overrides", "a fragment"}
"""Targets that name the list of the own space: unknown parameters and fragments are passed over."""


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("name", TARGETS)
def test_no_spelling_of_a_path_reaches_another_space(site: Site, name: str, named: bool, version: str) -> None:
    token = f"Authorization: Bearer {site.reader}\r\n" if named else ""
    head = f"GET {TARGETS[name]} HTTP/{version}\r\nHost: localhost\r\nConnection: close\r\n{token}\r\n"
    said = exchanged(site, head.encode())
    assert said.startswith(b"HTTP/1.1 ")
    assert SECRET[:20] not in said
    if name not in OWN_LISTS or not named:
        assert not said.startswith(b"HTTP/1.1 2"), said[:300]


HEADERS: Final = {
    "a method overridden": "X-HTTP-Method-Override: DELETE",
    "a method": "X-HTTP-Method: DELETE",
    "a method of METHOD": "X-Method-Override: DELETE",
    "an original URL": f"X-Original-URL: {HIDDEN}",
    "a rewritten URL": f"X-Rewrite-URL: {HIDDEN}",
    "a prefix": "X-Forwarded-Prefix: /spaces/other",
    "a script name": "Script-Name: /spaces/other",
    "a user of a proxy": "X-Forwarded-User: admin",
    "a remote user": "Remote-User: admin",
    "a client certificate of a proxy": "X-Client-Cert: admin",
    "an address of the loopback": "X-Forwarded-For: 127.0.0.1",
    "a proxy's credential": "Proxy-Authorization: Bearer {admin}",
    "a cookie": "Cookie: token={admin}; session={admin}; authorization={admin}",
    "an underscore": "Authorization_: Bearer {admin}",
}


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("path", [HIDDEN, "/spaces/own/v1/stores/{store}"])
def test_no_other_header_gives_a_right(site: Site, name: str, path: str) -> None:
    before = site.state()
    more = HEADERS[name].replace("{admin}", site.admin)
    target = path.replace("{store}", site.store)
    for method in ("GET", "POST", "DELETE"):
        for token in ("", f"Authorization: Bearer {site.reader}\r\n"):
            head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{token}{more}\r\n"
            said = exchanged(site, f"{head}Content-Length: 0\r\n\r\n".encode())
            allowed = token and method == "GET" and path != HIDDEN
            assert said.startswith(b"HTTP/1.1 2") == bool(allowed), said[:300]
            assert SECRET[:20] not in said
            assert site.admin.encode() not in said
    assert site.state() == before


CREDENTIALS: Final = {
    "a NUL behind": b"Bearer {admin}\0",
    "a NUL within": b"Bearer \0{admin}",
    "a NUL for the blank": b"Bearer\0{admin}",
    "a line feed": b"Bearer x\nAuthorization: Bearer {admin}",
    "a carriage return": b"Bearer x\rAuthorization: Bearer {admin}",
    "a folded line": b"Bearer\r\n {admin}x",
    "a character less": b"Bearer {short}",
    "a character more": b"Bearer {admin}x",
    "another case": b"Bearer {upper}",
    "no scheme": b"{admin}",
    "another scheme": b"Token {admin}",
    "two in one": b"Bearer {reader}, Bearer {admin}",
    "two headers": b"Bearer {reader}\r\nAuthorization: Bearer {admin}",
    "a pattern": b"Bearer psl_*",
    "empty": b"Bearer ",
    "bytes that are no text": b"Bearer \xff\xfe",
    "Basic without base64": b"Basic {admin}",
    "Basic without a colon": b"Basic cHNsXw==",
    "Basic with a NUL": b"Basic AAAAOgAA",
    "Negotiate": b"Negotiate YII=",
}


@pytest.mark.parametrize("name", CREDENTIALS)
def test_no_bent_credential_opens_anything(site: Site, name: str) -> None:
    value = CREDENTIALS[name]
    for word, text in {"admin": site.admin, "short": site.admin[:-1], "upper": site.admin.upper()}.items():
        value = value.replace(b"{%b}" % word.encode(), text.encode())
    value = value.replace(b"{reader}", site.reader.encode())
    said = exchanged(
        site,
        b"GET %b HTTP/1.1\r\nHost: localhost\r\nAuthorization: %b\r\nConnection: close\r\n\r\n"
        % (HIDDEN.encode(), value),
    )
    assert said.startswith((b"HTTP/1.1 400", b"HTTP/1.1 401")), said[:300]
    assert SECRET[:20] not in said
    assert site.admin.encode() not in said


SMUGGLED: Final = {
    "two lengths": b"Content-Length: 0\r\nContent-Length: 300\r\n",
    "a length and chunks": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
    "chunks spelled otherwise": b"Transfer-Encoding: xchunked\r\n",
    "a blank before the colon": b"Content-Length : 300\r\n",
}


@pytest.mark.parametrize("name", SMUGGLED)
def test_no_request_hides_in_another(site: Site, name: str) -> None:
    before = site.state()
    inner = b"DELETE /spaces/own/v1/stores/%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % site.store.encode()
    head = b"POST /spaces/own/v1/chunks/missing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += b"Authorization: Bearer %b\r\n%b\r\n0\r\n\r\n"
    said = exchanged(site, head % (site.reader.encode(), SMUGGLED[name]) + inner)
    assert not said.startswith(b"HTTP/1.1 2"), said[:300]
    assert site.state() == before


def test_jwts_of_the_table_are_refused_over_a_socket(site: Site) -> None:
    path, entered = "/spaces/own/v1/stores", []
    for name, made in HOSTILE.items():
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer "
        try:
            said = exchanged(site, f"{head}{made(site.issuer)}\r\n\r\n".encode())
        except (ConnectionError, BrokenPipeError):
            said = b"HTTP/1.1 431"  # hung up on a head without end
        if not said.startswith((b"HTTP/1.1 401", b"HTTP/1.1 400", b"HTTP/1.1 431")):
            entered.append((name, said[:100]))
    assert entered == []
    good = httpx.get(site.live.url + path, headers=bearer(site.issuer.token()))
    assert good.status_code == 200, good.text


def test_a_thousand_unknown_keys_fetch_at_most_once(site: Site) -> None:
    fetched = len(site.issuer.fetches)
    rest = site.issuer.token(rsa("mine")).partition(".")[2]
    with httpx.Client(base_url=site.live.url) as http:
        for number in range(1000):
            token = f"{part({'alg': 'RS256', 'kid': f'unknown-{number}'})}.{rest}"
            assert http.get("/spaces/own/v1/stores", headers=bearer(token)).status_code == 401
    assert len(site.issuer.fetches) - fetched <= 2, "one document of the issuer and one of its keys"


@pytest.mark.parametrize("name", BENT)
def test_bent_urls_open_nothing_over_a_socket(site: Site, name: str) -> None:
    bent = BENT[name](site.signed)
    for _ in range(2):
        said = exchanged(site, f"GET {bent} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        assert said.startswith((b"HTTP/1.1 401", b"HTTP/1.1 404", b"HTTP/1.1 400")), said[:200]
        assert OWN[:17] not in said


def test_a_signed_url_reads_again_and_changes_nothing(site: Site) -> None:
    before = site.state()
    for method, status in (("GET", 200), ("GET", 200), ("HEAD", 200), ("DELETE", 401), ("PUT", 401), ("POST", 401)):
        got = httpx.request(method, site.live.url + site.signed)
        assert got.status_code in {status, 405}, (method, got.text)
    assert json.dumps(site.state()) == json.dumps(before)
