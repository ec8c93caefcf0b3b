"""Rows of calls: what each declares once reaches the routes, the gate and the document."""

from __future__ import annotations

import pytest
from fastapi import Request
from starlette.responses import Response

from protoslice.facts import Tag
from protoslice.server.access.rules import OPEN, READ, RULES, add_rule
from protoslice.server.api.endpoints import endpoint
from protoslice.server.api.routes import tags
from protoslice.server.middleware.guarded_route import GuardedRouter, routes_of


def test_endpoint_declares_route_rule_and_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    router = GuardedRouter()
    monkeypatch.delitem(RULES, "POST /v1/new/{name}", raising=False)

    @endpoint(router, "POST /v1/new/{name}", READ, answer=Tag, status=201, fails=(404,), cached=True)
    async def make_new(request: Request, name: str) -> Response:
        """Make one."""
        return Response()

    ((row, route),) = routes_of(router.routes)
    assert (row, RULES.pop(row)) == ("POST /v1/new/{name}", READ)
    assert (route.operation_id, route.description, dict(route.answers)) == ("make_new", "Make one.", {201: Tag})
    assert {304, 404, 500} <= set(route.responses)


def test_endpoint_refuses_a_second_rule_of_a_route() -> None:
    with pytest.raises(RuntimeError, match="two rules"):
        endpoint(GuardedRouter(), "GET /v1/tags", OPEN)(tags.list_tags)
    assert RULES["GET /v1/tags"] == READ
    add_rule("GET /v1/tags", READ)
