"""Pages of other sites change nothing here, and reach nothing through their own host names.

CORS: pages of other origins may use the service if the operator allows it, also through caches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.support.calls import CALLS, READING, RULES
from tests.support.serve import LiveServer, ask, assert_problem, exchange, open_app
from tests.support.things import Filling

from protoslice.database import snapshots
from protoslice.errors import InvalidInput
from protoslice.server.app import Application
from protoslice.server.auth.permissions import Scope
from protoslice.server.http.security import OriginPolicy
from protoslice.server.problems import CROSS_SITE
from protoslice.server.settings import Settings, read_settings

VIEWER = "https://viewer.example"
IMAGE = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
"""The headers of a browser when a page of another site shows a URL as an image."""
FORM = {"file": ("model.pb", b"\x0a\x04form")}


def assert_refused(answer: httpx.Response) -> None:
    assert_problem(answer.status_code, answer.headers, answer.content, expected=403, slug="cross-site")


@pytest.mark.parametrize(
    "told",
    [
        {"sec-fetch-site": "cross-site", "origin": VIEWER},
        {"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:1"},
        *({"sec-fetch-site": site} for site in ("cross-site", "new-kind")),
        *({"origin": origin} for origin in (VIEWER, "http://127.0.0.1:1", "null", "")),
        {"origin": VIEWER, "x-forwarded-host": "other.example, viewer.example"},
    ],
)
def test_what_another_site_asks_for_changes_nothing(client: httpx.Client, told: dict[str, str]) -> None:
    before = client.get("/v1/stores").json()
    assert_refused(client.post("/v1/stores?tag=crossed", files=FORM, headers=told))
    assert_refused(client.put("/nowhere", headers=told))
    assert client.get("/v1/stores", headers=told).json() == before
    assert client.head("/v1/stores", headers=told).status_code == 200


async def test_every_route_is_judged_by_its_rule() -> None:
    """Another site may only read: its requests use a reading method, and need no scope beyond `read`."""
    wrong = []
    async with open_app() as app:
        for call in CALLS:
            if call.route:
                got = await ask(app, call.method, call.anonymous, headers={**call.headers, **IMAGE})
                reads = RULES[call.route].scope in {None, Scope.READ} and call.method in {"GET", "HEAD", "OPTIONS"}
                if (got.status == 403 and CROSS_SITE.advice in f"{got.headers} {got.text}") == reads:
                    wrong.append(f"{call.method} {call.target}: {got.status} {got.text[:100]}")
    assert not wrong, "\n".join(wrong)


async def test_reads_of_other_sites_change_no_rows() -> None:
    tables = sorted({table for table, _ in snapshots.tables()} - {"derived", "kept_files", "pieces"})  # computed
    async with closed_service() as app:
        caller = bearer(await token_for(app, *Scope))  # as a proxy may add it to all requests
        things = await Filling(app, "own", caller).fill("mine", None)
        for call in READING:
            method, target, body, headers = call.filled(things, "/spaces/own")
            if call.route and RULES[call.route].scope is not Scope.WRITE:  # the first read stores its results
                await ask(app, method, f"/spaces/own{target}", body, {**headers, **caller})
            before = await _rows(app, tables)
            await ask(app, method, f"/spaces/own{target}", body, {**headers, **caller, **IMAGE})
            assert await _rows(app, tables) == before, f"{method} {target}"


async def _rows(app: Application, tables: Sequence[str]) -> list[list[Any]]:
    assert app.services.opened is not None
    return await app.services.opened.database.read(
        lambda tx: [sorted(map(repr, tx.all(f"SELECT * FROM {table}"))) for table in tables]
    )


def test_what_is_of_our_own_site_or_of_no_page_passes(client: httpx.Client) -> None:
    own = f"http://127.0.0.1:{client.base_url.port}"
    for told in (
        {},
        {"sec-fetch-site": "same-origin", "origin": own},
        {"sec-fetch-site": "none"},
        {"origin": own},
        # A proxy that forwards requests with another host name than it received.
        {"sec-fetch-site": "same-origin", "origin": VIEWER},
        {"origin": VIEWER, "x-forwarded-host": "viewer.example"},
        {"origin": VIEWER, "x-forwarded-host": "viewer.example, inner.example"},
    ):
        assert client.post("/v1/stores", files=FORM, headers=told).status_code in {200, 201}, told


def test_pages_that_the_operator_names_may(serving: Any) -> None:
    told = {"sec-fetch-site": "cross-site", "origin": VIEWER}
    with serving(cors_origins=VIEWER) as live, httpx.Client(base_url=live.url) as client:
        assert client.post("/v1/stores", files=FORM, headers=told).status_code == 201
        answer = client.post("/v1/stores", files=FORM, headers={**told, "origin": "https://other.example"})
        assert_refused(answer)
    with serving(cors_origins="*") as live, httpx.Client(base_url=live.url) as client:
        assert client.post("/v1/stores", files=FORM, headers={**told, "origin": "null"}).status_code == 201


@pytest.mark.parametrize(
    ("hosts", "ours"),
    [
        (["localhost", "LocalHost:8000", "localhost.:8000", "viewer.localhost:8000", "127.0.0.1:8000"], True),
        (["192.168.7.7", "[::1]:8000", "[fd00::7]"], True),
        (["attacker.example:8000", "notlocalhost", "localhost.attacker.example", "127.0.0.1.attacker.example"], False),
    ],
)
def test_names_of_a_service_on_the_loopback(hosts: list[str], ours: bool) -> None:
    for listening in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        assert {OriginPolicy(Settings(host=listening)).is_ours(host) for host in hosts} == {ours}
    for listening in ("0.0.0.0", "::", "192.168.7.7", "models.example"):
        one_name = OriginPolicy(Settings(host=listening, allowed_hosts=("models.example",)))
        assert {one_name.is_ours(host) for host in hosts} == {ours}
        assert all(OriginPolicy(Settings(host=listening)).is_ours(host) for host in hosts)
    assert OriginPolicy(Settings(allowed_hosts=("Models.Example",))).is_ours("models.example:8000")
    assert all(OriginPolicy(Settings(allowed_hosts=("*",))).is_ours(host) for host in hosts)


def test_a_name_that_is_not_ours_gets_nothing(service: LiveServer, client: httpx.Client) -> None:
    store = client.put("/v1/stores", content=b"\x0a\x05named").json()["id"]
    paths = [f"/v1/stores/{store}/files/model.pb", "/v1/stores", "/livez", "/", "/docs", "/nowhere", "/v1/uploads"]
    for path in paths:
        for _ in range(2):  # the fastest path, once it is known
            assert client.get(path).status_code in {200, 404, 405}
            answer = client.get(path, headers={"host": f"attacker.example:{service.port}"})
            assert_problem(answer.status_code, answer.headers, answer.content, expected=421, slug="misdirected-request")
    twice = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nhost: attacker.example\r\n\r\n"
    assert exchange(service, twice).status == 400
    assert exchange(service, b"GET /livez HTTP/1.0\r\n\r\n").status == 200


ONE = b"host: localhost\r\n"
LONE = [b"", ONE * 2, ONE + b"host: other.example\r\n", b"host: \r\n", b"host: a b\r\n", b"host: local/host\r\n",
    b"host: user@localhost\r\n", b"host: localhost:80x\r\n", b"host: [::1\r\n", b"host: a,b c\r\n", b"host: \xff\r\n",
    b"host: http://localhost/\r\n", b"host: localhost:1:2\r\n"]  # fmt: skip


@pytest.mark.parametrize("listening", ["127.0.0.1", "0.0.0.0"])
def test_a_request_has_one_sound_host(serving: Any, listening: str) -> None:
    """RFC 9112, section 3.2, holds on every path to an answer, including a preflight."""
    with serving(host=listening, auth="open", cors_origins=VIEWER) as live:
        store = httpx.put(f"{live.url}/v1/stores", content=b"\x0a\x04host").json()["id"]
        quick = b"GET /v1/stores/%b/files/model.pb HTTP/1.1\r\n" % store.encode()
        question = (
            b"OPTIONS /v1/stores HTTP/1.1\r\norigin: https://viewer.example\r\naccess-control-request-method: PUT\r\n"
        )
        others = [b"%b HTTP/1.1\r\n" % each for each in (b"GET /livez", b"GET /nowhere", b"DELETE /v1/tags/x")]
        for head in (quick, question, *others):
            assert exchange(live, head + ONE + b"\r\n").status < 500
            for hosts in LONE:
                answer = exchange(live, head + hosts + b"\r\n")
                assert_problem(answer.status, answer.headers, answer.body, expected=400, slug="bad-request")
                assert answer.headers["connection"] == "close"
        assert exchange(live, b"GET /livez HTTP/1.0\r\n" + ONE * 2 + b"\r\n").status == 400


def test_a_target_that_names_its_host_counts_before_the_header(service: LiveServer) -> None:
    for target, expected in (
        (b"http://localhost/livez", 200),
        (b"http://attacker.example/livez", 421),
        (b"http://me@attacker.example:80/livez?x", 421),
        (b"http:///livez", 400),
    ):
        assert exchange(service, b"GET " + target + b" HTTP/1.1\r\n" + ONE + b"\r\n").status == expected


@pytest.mark.parametrize("names", ["models.example:8000", "https://models.example", "a b/c", "[::1]"])
def test_a_name_is_a_name_alone(names: str) -> None:
    with pytest.raises(InvalidInput, match="PROTOSLICE_ALLOWED_HOSTS"):
        read_settings({"allowed_hosts": names})
    assert read_settings({"allowed_hosts": "models.example, other"}).allowed_hosts == ("models.example", "other")


OTHER = "https://other.example"
PREFLIGHT = {"origin": VIEWER, "access-control-request-method": "PUT", "access-control-request-headers": "range,x-own"}


@pytest.fixture(scope="module", params=["*", VIEWER])
def clients(request: pytest.FixtureRequest, serving: Any) -> Iterator[tuple[httpx.Client, str]]:
    """Return a client of a service that allows some origin, and the origin."""
    with serving(cors_origins=request.param) as live, httpx.Client(base_url=live.url) as client:
        client.put("/v1/stores?tag=shown", content=b"\x0a\x05shown")
        yield client, request.param


def test_by_default_nobody_may(client: httpx.Client) -> None:
    answers = [client.get("/v1/stores", headers={"origin": VIEWER}), client.options("/v1/stores", headers=PREFLIGHT)]
    for answer in answers:
        assert "origin" not in answer.headers.get("vary", "")
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answers[1].status_code == 405


@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        ("/v1/stores", {}, 200),
        ("/v1/stores/shown/files/model.pb", {}, 200),
        ("/v1/stores/shown/chunks/0", {"range": "bytes=2-4"}, 206),
        ("/v1/stores/shown/chunks/0", {"range": "bytes=99-"}, 416),
        ("/v1/stores/shown/chunks/0", {"if-none-match": "*"}, 304),
        ("/v1/stores/shown/chunks/7", {}, 404),
        ("/no/such/path", {}, 404),
    ],
)
def test_every_answer_says_who_may_see_it(
    clients: tuple[httpx.Client, str], path: str, headers: dict[str, str], expected: int
) -> None:
    client, allowed = clients
    for _ in range(3):  # the fastest path is used from the second time on
        answer = client.get(path, headers={**headers, "origin": VIEWER})
        assert answer.status_code == expected
        assert answer.headers.get_list("access-control-allow-origin") == [allowed]
        assert answer.headers.get_list("access-control-expose-headers") == ["*"]
        assert "access-control-allow-credentials" not in answer.headers
    for origin in ({"origin": OTHER}, {}):
        answer = client.get(path, headers={**headers, **origin})
        assert answer.status_code == expected
        if allowed == "*":
            # A cache may return this answer to a page that requests it later.
            assert answer.headers["access-control-allow-origin"] == "*"
        else:
            assert "access-control-allow-origin" not in answer.headers
            assert "origin" in answer.headers["vary"].split(", ")


def test_a_preflight(clients: tuple[httpx.Client, str]) -> None:
    client, allowed = clients
    answer = client.options("/v1/stores/shown/chunks/0", headers=PREFLIGHT)
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == allowed
    assert answer.headers["access-control-allow-headers"] == "*, authorization"
    assert "PUT" in answer.headers["access-control-allow-methods"].split(", ")
    assert int(answer.headers["access-control-max-age"]) > 0
    refused = client.options("/v1/stores/shown/chunks/0", headers={**PREFLIGHT, "origin": OTHER})
    assert refused.headers.get("access-control-allow-origin") == ("*" if allowed == "*" else None)
    assert 'method="OPTIONS",route="preflight",status="204"' in client.get("/metrics").text


@pytest.mark.parametrize(
    "origins", ["https://viewer.example/", "viewer.example", "https://a b", "https://", "https://ü.example", "**"]
)
def test_what_no_browser_says_is_no_origin(origins: str) -> None:
    with pytest.raises(InvalidInput, match="PROTOSLICE_CORS_ORIGINS"):
        read_settings({"cors_origins": origins})
    both = read_settings({"cors_origins": f"{VIEWER},http://127.0.0.1:8080 null"})
    assert both.cors_origins == (VIEWER, "http://127.0.0.1:8080", "null")
