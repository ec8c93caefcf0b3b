"""Rows of calls: what each declares once reaches the routes, the gate and the document."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fastapi import Request
from starlette.responses import Response
from tests.support.serve import ask, open_app

from protoslice.facts import Tag
from protoslice.server.app import create_app
from protoslice.server.auth.permissions import READ, READ_SIGNED, Rule
from protoslice.server.routing import RouteGroup, endpoint, routes_of
from protoslice.server.settings import Settings


def test_endpoint_declares_route_rule_and_answers() -> None:
    router = RouteGroup()

    @endpoint(router, "POST /v1/new/{name}", READ, answer=Tag, status=201, fails=(404,), cached=True)
    async def make_new(request: Request, name: str) -> Response:
        """Make one."""
        return Response()

    ((row, route),) = routes_of(router.routes)
    assert (row, route.rule) == ("POST /v1/new/{name}", READ)
    assert (route.operation_id, route.description, dict(route.answers)) == ("make_new", "Make one.", {201: Tag})
    assert (sorted(route.fails), route.cached) == ([404], True)


def test_routes_of_one_call_have_one_rule() -> None:
    rules = defaultdict[str, list[Rule]](list)
    for row, route in routes_of(create_app(Settings(storage="memory://")).router.routes):
        rules[row].append(route.rule)
    shared = {row: found for row, found in rules.items() if len(found) > 1}
    assert shared == {"GET /v1/stores/{ref}/files/{path:path}": [READ_SIGNED, READ_SIGNED]}, (
        "a file, and the index of a folder"
    )


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, found in document["paths"].items():
        for method, said in found.items():
            yield method.upper(), path, said


@pytest.mark.anyio
async def test_answers_of_deprecated_operations_name_the_date_and_a_successor() -> None:
    async with open_app() as app:
        document = app.openapi()
        deprecated = [(method, path) for method, path, said in operations(document) if said.get("deprecated")]
        assert deprecated == [("PUT", "/v1/stores")]
        assert all("x-deprecated" in document["paths"][path][method.lower()] for method, path in deprecated)
        for space in ("", "/spaces/default"):
            for method, target in (("PUT", "/v1/stores?filename=m"), ("POST", "/v1/stores?filename=m")):
                got = await ask(app, method, space + target, b"content")
                assert got.status in {200, 201}, got
                assert got.headers.get("deprecation") == ("@1795910400" if method == "PUT" else None)
                link = f'<{space}/v1/stores>; rel="successor-version"' if method == "PUT" else None
                assert got.headers.get("link") == link
                assert document["paths"]["/v1/stores"]["post"].get("deprecated") is None


def test_operations_are_promised_experimental_or_deprecated() -> None:
    """The page on versions lists each operation once, and the document has the mark of those that may change."""
    page = Path(__file__).parents[3].joinpath("docs/versions.md").read_text()
    parts = dict(re.findall(r"## What (is promised|may change|is deprecated)\n(.*?)(?=\n## )", page, re.DOTALL))
    listed = {kind: set(re.findall(r"^\| `(\w+ /v1/[^`]+)`", text, re.MULTILINE)) for kind, text in parts.items()}
    for method, path, said in operations(create_app(Settings(storage="memory://")).openapi()):
        if path.startswith("/v1/") and method != "HEAD":
            stability = said.get("x-stability")
            assert stability in {None, "experimental"}
            kind = "is deprecated" if said.get("deprecated") else "may change" if stability else "is promised"
            assert [each for each in listed if f"{method} {path}" in listed[each]] == [kind], path
            listed[kind].remove(f"{method} {path}")
    assert not any(listed.values()), listed
