"""Safe headers on every response of all routes, successes and failures, over real sockets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import httpx
import pytest
from starlette.responses import RedirectResponse, Response
from tests.server.auth.hostile import filled, running_site
from tests.server.transport.test_connections import busy
from tests.support.serve import LiveServer, exchange, serve

from protoslice.server.app import Application, create_app
from protoslice.server.auth.permissions import Rule, Scope
from protoslice.server.http.security import POLICY, secured
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.settings import Settings

OWN_PAGES: Final = {
    "GET /", "GET /docs", "GET /m/{rest:path}", "GET /diff/{rest:path}", "GET /operations", "GET /problems/{slug}",
    "GET /assets/{name}", "GET /session/login", "GET /session/callback",
}  # fmt: skip
"""The rows whose responses may be pages of the service, with another policy."""
FOUND: Final = {
    "ref": "{store}", "store": "{store}", "id": "{store}", "path": "m.onnx", "n": "0", "tag": "own-tag", "slug": "gone",
    "kind": "models", "revision": "main", "name": "own", "digest": "{digest}", "folder": "", "rest": "{store}",
    "space": "own", "upload": "0", "session": "0" * 32, "oid": "0" * 64, "size": "1", "chunk": "1", "number": "1",
    "hash": "0" * 64, "branch": "b", "file": "model.onnx", "shard": "model.safetensors",
    "revisions": "a..b", "start": "00",
}  # fmt: skip
"""The path parameter values with which most reads succeed; `name` depends on the protocol."""
HTML: Final = "<script>steal()</script>"
FORMS: Final[list[dict[str, str]]] = [
    {},
    {"range": "bytes=0-9"},
    {"range": "bytes=0-1,5-6"},
    {"range": "bytes=99999999-"},
    {"if-none-match": "*"},
    {"if-match": '"other"'},
    {"accept": "text/html"},
    {"host": "evil.example"},
    {"x-http-method-override": "DELETE"},
]


def all_rows(app: Application) -> list[str]:
    """Return every route of the application, including views, reads first."""
    return sorted(app.rules, key=lambda row: (not row.startswith("GET "), row))


def targets(row: str, store: str) -> tuple[str, str]:
    """Return an existing and a missing target of a route."""
    template = row.partition(" ")[2]
    digest = "sha256:" + "0" * 64
    name = (
        "team/own"
        if any(part in template for part in ("/v2/", "/resolve/", "/api/", "repositories", ":owned"))
        else "own-tag"
    )
    values = {**FOUND, "name": name, "ref": "v1" if "/v2/" in template else store}

    def fill(found: re.Match[str]) -> str:
        return values[found[1]].replace("{store}", store).replace("{digest}", digest)

    parameter = r"\{(\w+)(?::\w+)?\}"
    there = re.sub(parameter, fill, template).replace("/artifacts/team/own", "/artifacts/own/m.onnx")
    return there, re.sub(parameter, "nowhere", template)


def faults_of(row: str, answer: httpx.Response, *, closed: bool) -> list[str]:
    """Return the faults of a response's headers."""
    found = []
    said = {name: answer.headers.get_list(name) for name in answer.headers}
    if said.get("x-content-type-options") != ["nosniff"]:
        found.append(f"nosniff: {said.get('x-content-type-options')}")
    policies = said.get("content-security-policy", [])
    own = row in OWN_PAGES and policies != [POLICY.decode()]
    if len(policies) != 1 or (not own and policies != [POLICY.decode()]) or "frame-ancestors 'none'" not in policies[0]:
        found.append(f"policy: {policies}")
    kind = answer.headers.get("content-type", "").partition(";")[0]
    plain = kind in {"", "text/plain", "application/json", "application/x-ndjson"} or kind.endswith("+json")
    if not own and not plain and not answer.headers.get("content-disposition", "").startswith("attachment"):
        found.append(f"disposition of {kind}: {said.get('content-disposition')}")
    referrer = said.get("referrer-policy")
    if referrer != ["no-referrer" if policies == [POLICY.decode()] else "same-origin"]:
        found.append(f"referrer-policy: {referrer}")
    caching = ", ".join(said.get("cache-control", []))
    if not caching or (closed and not re.search(r"\b(private|no-store)\b", caching)):
        found.append(f"cache-control: {caching}")
    if closed and "public" in caching:
        found.append(f"cache-control: {caching}")
    return found


def walked(
    http: httpx.Client, app: Application, store: str, prefix: str, *, closed: bool, most: int = 99
) -> tuple[list[str], set[int]]:
    """Return the faults of the responses of all routes in the first `most` forms, and all statuses."""
    wrong, seen = [], set()
    for row in all_rows(app):
        method = row.partition(" ")[0]
        there, nowhere = targets(row, store)
        for target in dict.fromkeys((there, nowhere)):
            for headers in FORMS[:most] if method == "GET" else FORMS[:1]:
                for asked in ("GET", "HEAD", "PROPFIND", "OPTIONS") if method == "GET" and not headers else (method,):
                    answer = http.request(asked, prefix + target, headers=headers)
                    seen.add(answer.status_code)
                    wrong += [f"{asked} {target} {headers}: {fault}" for fault in faults_of(row, answer, closed=closed)]
    return wrong, seen


@contextmanager
def open_app(app: Application) -> Iterator[tuple[LiveServer, httpx.Client, str]]:
    """Open a service without tokens; yield it, its client and the id of a store in the space `own`."""
    with serve(app=app) as live, httpx.Client(base_url=live.url, timeout=60) as http:
        yield live, http, filled(http, "own", b"content " * 4000, "own")


def new_app(**more: Any) -> Application:
    return create_app(Settings(storage="memory://", space_watermark_bytes=0, **more))


def test_every_response_of_an_open_service_is_safe() -> None:
    app = new_app()
    with open_app(app) as (_, http, store):
        wrong, seen = walked(http, app, store, "/spaces/own", closed=False)
    assert wrong == []
    assert {200, 204, 206, 304, 400, 404, 405, 412, 416, 421} <= seen


def test_every_response_of_a_closed_service_is_safe_and_private(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running_site(tmp_path_factory.mktemp("safe")) as site:
        callers = ((None, 1, {401}), (site.reader, 9, {200, 206, 304, 403, 416}), (site.admin, 1, {200, 204, 404}))
        for token, most, some in callers:
            with site.http(token) as http:
                wrong, seen = walked(http, new_app(), site.store, "/spaces/own", closed=True, most=most)
            assert wrong == []
            assert some <= seen
        signed = httpx.get(site.live.url + site.signed)
        assert faults_of("GET /v1/stores/{ref}/files/{path:path}", signed, closed=True) == []


REFUSED: Final = {
    "bytes that are no HTTP": b"\x16\x03\x01\x02\x00\r\n\r\n",
    "a version of later": b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "a head without end": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * (80 << 10) + b"\r\n\r\n",
    "two lengths": b"PUT /v1/stores HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "an asterisk": b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a path that is none": b"GET \\\\evil HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


def test_refusals_of_the_transport_are_safe() -> None:
    with serve(app=new_app()) as live:
        answers = {name: exchange(live, sent) for name, sent in REFUSED.items()}
    with serve(app=new_app(max_connections=1)) as live, ExitStack() as held:
        busy(live, held, 1)
        answers["one too many"] = exchange(live, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answers["one too many"].status == 503
    for name, raw in answers.items():
        assert faults_of("", httpx.Response(raw.status, headers=raw.headers), closed=False) == [], name


CARELESS: Final[dict[str, Response]] = {
    "HTML": Response(HTML, media_type="text/html"),
    "HTML shown inline": Response(
        HTML, media_type="text/html", headers={"content-disposition": 'inline; filename="x"'}
    ),
    "SVG": Response(HTML, media_type="image/svg+xml"),
    "XHTML": Response(HTML, media_type="application/xhtml+xml; charset=utf-8"),
    "XML": Response(HTML, media_type="text/xml"),
    "PDF": Response(HTML, media_type="application/pdf"),
    "capitals": Response(HTML, headers={"Content-Type": "TEXT/HTML"}),
    "MHTML": Response(HTML, media_type="multipart/related"),
    "a stream of replacements": Response(HTML, media_type="multipart/x-mixed-replace; boundary=x"),
    "an invented type": Response(HTML, media_type="unknown/unknown"),
    "a sniffable type": Response(HTML, media_type="*/*"),
    "public": Response(HTML, media_type="text/html", headers={"cache-control": "public, max-age=9, s-maxage=9"}),
    "nothing": Response(HTML),
    "a redirect": RedirectResponse("/elsewhere"),
    "a failure": Response(HTML, 500, media_type="text/html"),
}
ROW: Final = "GET /v1/careless"


@pytest.mark.parametrize("closed", [False, True])
def test_a_careless_route_is_safe_by_default(closed: bool) -> None:
    router = RouteGroup()

    @endpoint(router, ROW, Rule(Scope.READ))
    async def careless(name: str) -> Response:
        return CARELESS[name]

    app = new_app(auth="tokens" if closed else "open")
    app.router.routes.append(router)
    wrong = []
    with serve(app=app) as live:
        token = app.services.initial_admin_token
        headers = {} if token is None else {"authorization": f"Bearer {token.text}"}
        for name, sent in CARELESS.items():
            answer = httpx.get(f"{live.url}/v1/careless", params={"name": name}, headers=headers)
            assert answer.status_code == sent.status_code
            wrong += [f"{name}: {fault}" for fault in faults_of(ROW, answer, closed=closed)]
    assert wrong == []


def test_faults_are_seen() -> None:
    bare = httpx.Response(200, headers={"content-type": "text/html"})
    assert len(faults_of(ROW, bare, closed=True)) == 5
    public = dict(secured([(b"content-type", b"text/html"), (b"cache-control", b"public")], private=False))
    assert faults_of(ROW, httpx.Response(200, headers=list(public.items())), closed=False) == []
    assert len(faults_of(ROW, httpx.Response(200, headers=list(public.items())), closed=True)) == 2
