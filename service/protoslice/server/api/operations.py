"""Routes for operators and readers: liveness, readiness, metrics, problem pages, and HTML pages."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from fastapi import Request
from starlette.responses import HTMLResponse, Response

from protoslice.server.api.json_answers import json_answer
from protoslice.server.auth.permissions import OPEN, Rule, Scope
from protoslice.server.auth.spaces import absolute_url, url_of
from protoslice.server.http.responses import JsonAnswer
from protoslice.server.pages.html import PAGE_HEADERS, problem_page
from protoslice.server.problems import DRAINING, NOT_FOUND, PROBLEMS, RETRY_AFTER_SECONDS, HttpProblem
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Services
from protoslice.server.telemetry.metrics import CONTENT_TYPE

router = RouteGroup(tags=["operations"])

_NO_STORE = {"cache-control": "no-store"}


@dataclass(frozen=True, slots=True)
class Status:
    """The health of the service."""

    status: Literal["ok"]


@endpoint(
    router, "GET /livez", OPEN, answer=Status, operation="get_liveness", summary="Check whether the process is alive"
)
async def livez() -> Response:
    """Return ok as long as the process responds."""
    return JsonAnswer({"status": "ok"}, headers=_NO_STORE)


@endpoint(
    router,
    "GET /readyz",
    OPEN,
    answer=Status,
    fails=(507,),
    operation="get_readiness",
    summary="Check whether the service is ready",
)
async def readyz(services: Services) -> Response:
    """Return ok if storage and database respond, the storage has free space, and the service is not shutting down."""
    if services.state.draining:
        raise HttpProblem(DRAINING, "The service is shutting down", headers={"retry-after": str(RETRY_AFTER_SECONDS)})
    await services.state.ready()
    return JsonAnswer({"status": "ok"}, headers=_NO_STORE)


@endpoint(
    router,
    "GET /metrics",
    Rule(Scope.READ, everywhere=True),
    responses={200: {"content": {CONTENT_TYPE: {"schema": {"type": "string"}}}}},
    operation="get_metrics",
    response_class=Response,
    summary="Prometheus metrics",
    any_query=True,
)
async def metrics(services: Services) -> Response:
    """Return metrics for Prometheus.

    They include counts, durations and bytes of requests by route, durations of ingestion stages, and the event loop's
    lag.
    """
    return Response(await services.state.render_metrics(), headers={**_NO_STORE, "content-type": CONTENT_TYPE})


@endpoint(
    router,
    "GET /problems/{slug}",
    OPEN,
    fails=(404,),
    operation="get_problem_page",
    response_class=HTMLResponse,
    summary="Explain a problem",
)
async def problem(request: Request, slug: str) -> Response:
    """Return the page that explains a type of problem."""
    slug = "storage-unavailable" if slug == "storage-circuit-open" else slug  # releases before 0.2 sent this slug
    found = next((each for each in PROBLEMS if each.slug == slug), None)
    if found is None:
        raise HttpProblem(NOT_FOUND, "This problem type does not exist")
    return HTMLResponse(problem_page(found, url_of(request.scope, "")), headers=PAGE_HEADERS)


@endpoint(
    router,
    "GET /openapi.json",
    OPEN,
    cached=True,
    responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}},
    operation="get_openapi",
    summary="This document",
)
async def document(request: Request) -> Response:
    """Return the OpenAPI document."""
    # The first request makes the document. Making it takes a third of a second, and therefore runs in a thread.
    shown = await asyncio.to_thread(lambda: request.app.document)
    return json_answer(request, shown)


@endpoint(
    router, "GET /docs", OPEN, cached=True, operation="get_docs", response_class=HTMLResponse, summary="API reference"
)
async def docs(request: Request) -> Response:
    """Return the page with all operations of the OpenAPI document."""
    shown = await asyncio.to_thread(lambda: request.app.api_page)
    text = shown.show(absolute_url(request.scope, ""), url_of(request.scope, "")).encode()
    return json_answer(request, text, headers=PAGE_HEADERS, media_type="text/html")
