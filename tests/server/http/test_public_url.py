"""A service below a path of a proxy: all URLs in answers begin with the public URL.

The scheme that proxies report: the service trusts only the nearest proxy, and only a trusted one.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Final

import httpx
import pytest
from tests.isolation.runs import answers_of_own
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.support.calls import RULES
from tests.support.receiver import running_receiver
from tests.support.serve import ask, exchange, open_app, serve
from tests.support.things import lines

from protoslice.server.app import create_app
from protoslice.server.auth.permissions import EVERY_SPACE, Scope
from protoslice.server.http.headers import Headers
from protoslice.server.request.clients import scheme_of
from protoslice.server.settings import Settings

PUBLIC: Final = "https://models.example/hub"
URLS: Final = ("location", "content-location", "link", "x-xet-cas-url", "x-linked-location")
OWN: Final = re.compile(r"https?://localhost\b|\blocalhost(?::80)?/")
LINKS: Final = re.compile(r'\b(?:href|src|action)="(/[^"]*)"')
TUS: Final = {"tus-resumable": "1.0.0", "content-type": "application/offset+octet-stream"}
LFS: Final = {"content-type": "application/vnd.git-lfs+json", "accept": "application/vnd.git-lfs+json"}


class Below(httpx.AsyncBaseTransport):
    """A proxy that forwards requests below a path, without the path."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert str(request.url).startswith(f"{PUBLIC}/"), f"{request.url} is not below {PUBLIC}"
        request.url = httpx.URL(str(request.url).replace(PUBLIC, "http://localhost", 1))
        request.headers["host"] = "localhost"
        answer = await self._inner.handle_async_request(request)
        assert not list(_wrong(answer.headers, (await answer.aread()).decode("latin-1")))
        return answer


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with closed_service(public_url=PUBLIC) as app:
        key = bearer(await token_for(app, *Scope, space=EVERY_SPACE))
        through = Below(httpx.ASGITransport(app))
        async with httpx.AsyncClient(transport=through, base_url=f"{PUBLIC}/spaces/own/", headers=key) as client:
            yield client


def ok(answer: httpx.Response) -> httpx.Response:
    assert answer.status_code < 400, f"{answer.request.method} {answer.request.url}: {answer.text}"
    return answer


async def test_a_tus_upload_goes_on_at_its_url(client: httpx.AsyncClient) -> None:
    begun = ok(await client.post("v1/uploads?filename=f", headers={**TUS, "upload-length": "5"}))
    place = httpx.URL(PUBLIC).join(begun.headers["location"])
    ok(await client.patch(place, content=b"12345", headers={**TUS, "upload-offset": "0"}))
    assert ok(await client.head(place, headers=TUS)).headers["protoslice-store"]


async def test_a_push_to_a_registry_goes_on_at_its_urls(client: httpx.AsyncClient) -> None:
    for name in ("a/x", "a/y"):
        begun = ok(await client.post(f"v2/{name}/blobs/uploads/"))
        sent = ok(await client.patch(httpx.URL(PUBLIC).join(begun.headers["location"]), content=b"{}"))
        digest = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        end = httpx.URL(PUBLIC).join(sent.headers["location"]).copy_merge_params({"digest": digest})
        ok(await client.put(end))
        blob = {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest, "size": 2}
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": blob,
                    "layers": [blob]}  # fmt: skip
        kind = {"content-type": manifest["mediaType"]}
        ok(await client.put(f"v2/{name}/manifests/v1", content=json.dumps(manifest), headers=kind))  # type: ignore[arg-type]


async def test_files_for_lfs_go_to_their_urls(client: httpx.AsyncClient) -> None:
    ok(await client.post("api/repos/create", json={"name": "m", "organization": "team"}))
    oid = "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5"  # of 12345
    batch = {"operation": "upload", "transfers": ["basic"], "objects": [{"oid": oid, "size": 5}]}
    answer = ok(await client.post("team/m.git/info/lfs/objects/batch", content=json.dumps(batch), headers=LFS))
    actions = answer.json()["objects"][0]["actions"]
    ok(await client.put(actions["upload"]["href"], content=b"12345"))
    body = lines(("header", {"summary": "f"}), ("lfsFile", {"path": "f", "algo": "sha256", "oid": oid, "size": 5}))
    kind = {"content-type": "application/x-ndjson"}
    ok(await client.post("api/models/team/m/commit/main", content=body, headers=kind))
    found = ok(await client.get("team/m/resolve/main/f"))
    if found.is_redirect:
        found = ok(await client.get(httpx.URL(PUBLIC).join(found.headers["location"])))
    assert found.content == b"12345"


async def test_a_path_is_signed_as_answers_spell_it(client: httpx.AsyncClient) -> None:
    made = ok(await client.put("v1/stores?filename=f", content=b"12345"))
    spelled = made.headers["location"]
    assert spelled.startswith("/hub/spaces/own/v1/stores/")
    signed = ok(await client.post("v1/sign", json={"path": f"{spelled}/files/f"})).json()["url"]
    for wrong in ("/v1/stores/x", "/spaces/other/v1/stores/x", "/hub/spaces/own/v1/stores/x", "/v1/tags"):
        assert (await client.post("v1/sign", json={"path": f"/hub{wrong}"})).status_code == 400
    del client.headers["authorization"]
    assert ok(await client.get(signed)).content == b"12345"


def test_every_url_in_an_answer_begins_with_the_public_one() -> None:
    """The test covers every route that reads, in headers and bodies; tests above follow the URLs of writes."""
    with running_receiver() as receiver:
        answers = answers_of_own(receiver.url, writing=(), public_url=PUBLIC)
    wrong = [f"{call.method} {call.target}: {each}" for call, got in answers for each in _wrong(got.headers, got.text)]
    assert not wrong


def _wrong(headers: Mapping[str, str], text: str) -> Iterator[str]:
    yield from (text[max(0, found.start() - 60) : found.end() + 60] for found in OWN.finditer(text))
    for name in URLS:
        for url in re.findall(r"<([^>]*)>", headers.get(name, "")) or [headers.get(name, "")]:
            if url.startswith(("/", "http:", "https:")) and not url.startswith((f"{PUBLIC}/", "/hub/")):
                yield f"{name}: {url}"
    kind = headers.get("content-type", "").partition(";")[0]
    links = LINKS.findall(text) if kind == "text/html" else []
    if kind == "application/problem+json":
        problem = json.loads(text)
        links = [each for each in (problem["type"], problem.get("instance", "")) if each.startswith("/")]
    yield from (f"{kind}: {url}" for url in links if not url.startswith("/hub/"))


async def test_every_url_in_a_problem_begins_with_the_public_one() -> None:
    """Every route is called without a token; routes that need no token get a query that they refuse."""
    problems = 0
    async with closed_service(public_url=PUBLIC) as app:
        for row in RULES:
            method, _, path = row.partition(" ")
            got = await ask(app, method, f"/spaces/own{re.sub('{[^}]*}', 'x', path)}?unknown=1")
            wrong = list(_wrong(got.headers, got.text))
            assert not wrong, row
            problems += got.headers.get("content-type") == "application/problem+json"
    assert problems > 50


def test_refusals_of_the_transport_begin_with_the_public_one() -> None:
    app = create_app(Settings(storage="memory://", space_watermark_bytes=0, auth="tokens", public_url=PUBLIC))
    with serve(app=app) as live:
        raw = exchange(live, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * (80 << 10) + b"\r\n\r\n")
    assert json.loads(raw.body)["type"].startswith("/hub/problems/")


def test_a_public_url_that_is_none_is_refused() -> None:
    for url in (
        "models.example",
        "ftp://models.example",
        "https://models.example/?a=b",
        "https://a b/",
        "https://a/#b",
    ):
        with pytest.raises(ValueError, match="public_url"):
            Settings(storage="memory://", public_url=url)
    assert Settings(storage="memory://", public_url=f"{PUBLIC}/").public_url == PUBLIC


async def test_the_host_of_the_public_url_is_ours() -> None:
    async with closed_service(public_url=PUBLIC) as app:
        for host, status in (("models.example", 401), ("localhost", 401), ("other.example", 421)):
            assert (await ask(app, "GET", "/spaces/own/v1/stores", headers={"host": host})).status == status


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
