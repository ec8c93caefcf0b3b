"""CORS: pages of other origins may use the service if the operator says so, also through caches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from protoslice.errors import InvalidInput
from protoslice.server.settings import read_settings

VIEWER = "https://viewer.example"
OTHER = "https://other.example"
PREFLIGHT = {"origin": VIEWER, "access-control-request-method": "PUT", "access-control-request-headers": "range,x-own"}


@pytest.fixture(scope="module", params=["*", VIEWER])
def clients(request: pytest.FixtureRequest, serving: Any) -> Iterator[tuple[httpx.Client, str]]:
    """A client of a service that allows some origin, and which."""
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
    for _ in range(3):  # the shortest way is taken from the second time on
        answer = client.get(path, headers={**headers, "origin": VIEWER})
        assert answer.status_code == expected
        assert answer.headers.get_list("access-control-allow-origin") == [allowed]
        assert answer.headers.get_list("access-control-expose-headers") == ["*"]
        assert "access-control-allow-credentials" not in answer.headers
    for origin in ({"origin": OTHER}, {}):
        answer = client.get(path, headers={**headers, **origin})
        assert answer.status_code == expected
        if allowed == "*":
            # A cache may give this answer to a page that asks later.
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
