"""Scheme that proxies tell: of the nearest one alone, and of trusted ones alone."""

from __future__ import annotations

import json

import pytest
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.support.serve import ask, open_app

from protoslice.server.auth.permissions import Scope
from protoslice.server.http.headers import Headers
from protoslice.server.request.clients import scheme_of


@pytest.mark.parametrize(
    ("headers", "scheme"),
    [
        ([], None),
        ([(b"x-forwarded-proto", b"https")], "https"),
        ([(b"x-forwarded-proto", b"HTTP")], "http"),
        ([(b"x-forwarded-proto", b"https, http")], "http"),
        ([(b"x-forwarded-proto", b"wss")], None),
        ([(b"x-forwarded-proto", b"https\r\nx: y")], None),
        ([(b"forwarded", b"for=1.2.3.4;proto=https")], "https"),
        ([(b"forwarded", b'proto=http, for=x;proto="https"')], "https"),
        ([(b"forwarded", b"for=x;proto=gopher")], None),
        ([(b"forwarded", b"proto=https"), (b"x-forwarded-proto", b"http")], None),
        ([(b"x-forwarded-proto", b"https"), (b"x-forwarded-proto", b"http")], None),
    ],
)
def test_the_nearest_proxy_tells_the_scheme(headers: Headers, scheme: str | None) -> None:
    assert scheme_of(headers) == scheme


@pytest.mark.parametrize(("proxies", "scheme"), [(("192.0.2.1",), "https"), ((), "http"), (("192.0.2.2",), "http")])
async def test_signed_urls_have_the_scheme_that_a_trusted_proxy_was_asked_by(
    proxies: tuple[str, ...], scheme: str
) -> None:
    async with closed_service(trusted_proxies=proxies) as app:
        headers = bearer(await token_for(app, Scope.READ)) | {"content-type": "application/json"}
        body = json.dumps({"path": "/v1/stores/m"}).encode()
        told = await ask(app, "POST", "/spaces/own/v1/sign", body, headers | {"x-forwarded-proto": "https"})
        assert json.loads(told.body)["url"].startswith(f"{scheme}://localhost/")


@pytest.mark.parametrize(
    ("proxies", "headers", "expected"),
    [
        ((), {}, ("http", "192.0.2.1", None)),
        ((), {"x-forwarded-for": "198.51.100.7", "x-forwarded-proto": "https"}, ("http", "192.0.2.1", "untrusted")),
        (("192.0.2.1",), {}, ("http", "192.0.2.1", "silent")),
        (("192.0.2.1",), {"x-forwarded-proto": "https"}, ("https", "192.0.2.1", "silent")),
        (
            ("192.0.2.1",),
            {"x-forwarded-for": "198.51.100.7", "x-forwarded-proto": "https"},
            ("https", "198.51.100.7", "trusted"),
        ),
        (
            ("192.0.2.1",),
            {"x-forwarded-for": "198.51.100.7", "forwarded": "for=198.51.100.8"},
            ("http", "192.0.2.1", "silent"),
        ),
    ],
)
async def test_session_returns_how_the_service_was_reached(
    proxies: tuple[str, ...], headers: dict[str, str], expected: tuple[str, str, str | None]
) -> None:
    async with open_app(trusted_proxies=proxies, auth="open") as app:
        said = json.loads((await ask(app, "GET", "/session", headers=headers)).body)
    scheme, client, proxy = expected
    assert (said["url"], said["client"], said["proxy"]) == (f"{scheme}://localhost", client, proxy)
