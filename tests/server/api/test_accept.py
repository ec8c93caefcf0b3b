"""Media types of every operation below `/v1`: others than it offers or takes are refused with those."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest
from tests.server.api.test_preconditions import filled, rows
from tests.support.calls import CALLS
from tests.support.serve import ask, open_app

from protoslice.server.routing import routes_of

BROWSER: Final = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


def documented(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Responses of each operation below `/v1`, by method and path."""
    return {
        f"{method.upper()} {path}": operation["responses"]
        for path, operations in document["paths"].items()
        if path.startswith("/v1/")
        for method, operation in operations.items()
    }


@pytest.mark.anyio
async def test_a_type_that_is_not_offered_is_refused_with_those_that_are() -> None:
    asked = set()
    async with filled() as (app, caller, things):
        said = documented(app.openapi())
        before = None
        for call in CALLS:
            row = call.route.replace(":path}", "}")
            method, target, body, headers = call.filled(things, "")
            if method == "HEAD" or call.refused or row not in said:
                continue
            if method == "GET":  # what is computed upon the first read is there then
                plain = await ask(app, method, target, body, {**headers, **caller})
                assert plain.status == 200, (target, plain)
                if "content-type" in plain.headers:
                    for accept in (BROWSER, "*/*", "", plain.headers["content-type"], "image/png, */*;q=0.1"):
                        got = await ask(app, method, target, body, {**headers, **caller, "accept": accept})
                        assert got.status == 200, (target, accept, got)
                before = await rows(app)
            offered = any("content" in each for status, each in said[row].items() if status < "3")
            assert ("406" in said[row]) == offered, row
            if offered:
                got = await ask(app, method, target, body, {**headers, **caller, "accept": "image/png, text/x;q=0.5"})
                problem = json.loads(got.body)
                assert (got.status, problem["type"]) == (406, "/problems/not-acceptable"), (target, got)
                assert problem["offers"], target
                assert got.headers["content-type"] == "application/problem+json"
                assert before is None or await rows(app) == before, target
            asked.add(row)
        for row in said.keys() - asked:  # refused before anything else is looked at
            method, _, path = row.partition(" ")
            if method != "HEAD" and "406" in said[row]:
                got = await ask(app, method, re.sub("[{}]", "", path), b"", {**caller, "accept": "image/png"})
                assert got.status == 406, (row, got)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/octet-stream", ""])
async def test_a_body_that_is_not_said_to_be_json_is_refused_in_our_words(kind: str) -> None:
    taken = 0
    async with open_app() as app:
        for row, route in routes_of(app.router.routes):
            method, _, path = row.partition(" ")
            if route.body_field is None or not path.startswith(("/v1/", "/session")):
                continue
            given = {"content-type": kind} if kind else {}
            for sized in (True, False):
                chunked = {} if sized else {"transfer-encoding": "chunked"}
                got = await ask(app, method, re.sub("[{}]", "", path), b"{}", {**given, **chunked}, sized=sized)
                problem = json.loads(got.body)
                assert (got.status, problem.get("offers")) == (415, ["application/json"]), (row, got)
                assert "Content-Type: application/json" in problem["detail"]
            got = await ask(app, method, re.sub("[{}]", "", path), b"{}", {"content-type": "application/json; x=y"})
            assert got.status != 415, (row, got)
            taken += 1
    assert taken > 10


@pytest.mark.anyio
async def test_an_open_service_says_that_it_has_no_tokens() -> None:
    async with open_app() as app:
        made = b'{"name": "t", "scopes": ["read"]}'
        for method, path, body in (("GET", "", b""), ("POST", "", made), ("DELETE", "/x", b"")):
            got = await ask(
                app, method, f"/v1/tokens{path}", body, {"content-type": "application/json"} if body else {}
            )
            assert (got.status, "tokens exist only on a closed" in got.text) == (404, True), got
