"""Hostile requests over a real socket: none gets through, and none changes anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import httpx
import pytest
from tests.server.auth.closed import bearer
from tests.server.auth.hostile import (
    CREDENTIALS,
    HEADERS,
    HIDDEN,
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
from tests.server.auth.test_signatures import BENT
from tests.support.issuer import rsa

from protoslice.server.auth.oidc import keys

TARGETS: Final = spellings(HIDDEN)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("hostile")) as made:
        yield made


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


def test_a_thousand_unknown_keys_fetch_at_most_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "AGAIN_SECONDS", 3600.0)  # on a slow machine too
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
