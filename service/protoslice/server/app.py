"""The application, which `create_app` makes. Importing this module does no work."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property, partial
from threading import Lock
from typing import Any, Final
from urllib.parse import unquote

import anyio
from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from protoslice.database.transactions import ACTOR
from protoslice.errors import NotFound
from protoslice.server.api import (
    admin,
    batch,
    create,
    diff,
    graph,
    operations,
    pages,
    schemas,
    sessions,
    stores,
    structure,
    tags,
    tensors,
    tokens,
    uploads,
)
from protoslice.server.api.encoding import prepare_encoding
from protoslice.server.api.openapi import openapi_document
from protoslice.server.api.view_router import ViewRoutes
from protoslice.server.api.views import VIEWS
from protoslice.server.auth.explain import Asked
from protoslice.server.auth.permissions import Rule
from protoslice.server.auth.spaces import resolve_space
from protoslice.server.context import context_of
from protoslice.server.http.headers import read_fields
from protoslice.server.http.security import OriginPolicy, answer_preflight
from protoslice.server.pages.api_reference import ApiPage
from protoslice.server.registries import hub, mlflow, oci, s3
from protoslice.server.request.body import check_framing
from protoslice.server.request.failures import render_problem
from protoslice.server.request.middleware import RequestMiddleware
from protoslice.server.routing import routes_of
from protoslice.server.services import ServerState
from protoslice.server.settings import Settings
from protoslice.server.telemetry.logs import Recorder
from protoslice.server.telemetry.tracing import FRAMEWORK_SPANS_OFF, Traced

_METHODS: Final = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
"""The methods that at least one route has."""

_ROUTERS: Final = (
    create.router, stores.router, uploads.router, structure.pieces, batch.router, structure.router,
    tensors.router, graph.router, diff.router, tags.router, stores.repositories, schemas.router, admin.spaces_router,
    tokens.router, admin.audit_router, admin.webhooks_router, sessions.router, operations.router, pages.router,
    # The hub is last because its repositories may have any name that no other route takes.
    s3.keys_router, s3.router, oci.router, mlflow.router, *hub.ROUTERS,
)  # fmt: skip


def create_app(settings: Settings) -> Application:
    """Return the service. Its storage and database are opened at start-up."""
    return Application(ServerState(settings))


class Application(FastAPI):
    """The FastAPI application, wrapped in the service's own middleware."""

    def __init__(self, services: ServerState) -> None:
        super().__init__(
            lifespan=_lifespan(services),
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
            redirect_slashes=False,
            telemetry=FRAMEWORK_SPANS_OFF,
        )
        self.state.services = self.services = services
        self._documenting = Lock()
        self.traced = services.settings.otel_endpoint is not None
        self.views = ViewRoutes(VIEWS)
        self.policy = services.policy
        self.recorder = Recorder(services.metrics)
        self.router.routes[:] = (self.views, *_ROUTERS)
        self.rules: Final[dict[str, Rule]] = {row: route.rule for row, route in routes_of(self.router.routes)}
        """The rules of all routes, keyed by method and path, such as `GET /v1/tags`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request without the framework's check for tracing."""
        if scope["type"] != "http" or self.middleware_stack is None:
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        caller = ACTOR.set(None)
        try:
            await self.middleware_stack(scope, receive, send)
        finally:  # later work in this task does not belong to the caller
            ACTOR.reset(caller)

    def build_middleware_stack(self) -> ASGIApp:
        """Return the service's middleware around the router.

        The service's middleware answers exceptions, so the framework's middleware for exceptions is left out.
        """
        front = _Front(self.views, AsyncExitStackMiddleware(self.router), self.policy)
        clients, authenticator = self.services.clients, self.services.authenticator
        stack = RequestMiddleware(front, self.recorder, clients, self.policy, is_closed=lambda: authenticator.closed)
        return Traced(stack) if self.traced else stack

    def asked(self, method: str, target: str) -> Asked:
        """Describe a request without headers in the form that rules read. Raise `NotFound` if no route matches."""
        path, _, query = target.partition("?")
        scope: dict[str, Any] = {
            "type": "http", "method": "GET" if method == "HEAD" else method, "path": unquote(path), "headers": [],
            "raw_path": path.encode(), "query_string": query.encode(), "root_path": "", "scheme": "http",
        }  # fmt: skip
        s3.enter_s3(scope, {}, self.services)
        place = resolve_space(scope)
        scope = dict(hub.spelled(scope))
        for row, route in routes_of(self.router.routes):
            matched, found = route.matches(scope)
            if matched is Match.FULL and row.startswith(f"{scope['method']} "):
                return Asked(row, route.rule, place.space, route.rule.tags(scope, {}, found["path_params"]))
        raise NotFound(f"No route for {method} {path}")

    @cached_property
    def api_page(self) -> ApiPage:
        """The page that lists all operations."""
        return ApiPage(self.openapi())

    @cached_property
    def document(self) -> bytes:
        """The OpenAPI document as the bytes that are sent."""
        return json.dumps(self.openapi(), ensure_ascii=False, separators=(",", ":")).encode()

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, which is made once.

        A lock lets only one thread make it, because CPython 3.11 cannot parse docstrings in two threads.
        """
        with self._documenting:
            if self.openapi_schema is None:
                self.openapi_schema = openapi_document(self.router.routes, self.rules)
            return self.openapi_schema


class _Front:
    """The steps before routing. They find the space in the path and check Host, Origin and the body's framing.

    Requests for views are answered here, without FastAPI. FastAPI would add a fifth to the time of a small response.
    """

    def __init__(self, views: ViewRoutes, framework: ASGIApp, policy: OriginPolicy) -> None:
        self._views, self._framework, self._policy = views, framework, policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._framework(scope, receive, send)
            return
        fields = read_fields(scope)
        if not s3.enter_s3(scope, fields, scope["app"].services):
            self._policy.check(scope["method"], fields, scope["http_version"])
        resolve_space(scope)
        match, child = self._views.matches(scope)
        if match is Match.FULL:
            scope.update(child)
            await self._views.handle(scope, receive, send)
            return
        check_framing(fields)
        if self._policy.is_preflight(scope["method"], fields):
            await answer_preflight(scope, send)
        else:
            await self._in_framework(scope, receive, send)

    async def _in_framework(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS" and scope["path"] == "*":  # asks about the whole server (RFC 9110, 9.3.7)
            await Response(status_code=204, headers={"allow": _METHODS})(scope, receive, send)
            return
        # HEAD is handled as GET, so that it has the same headers on every route. The server omits the body.
        asked = hub.spelled({**scope, "method": "GET"} if scope["method"] == "HEAD" else scope)
        context_of(scope).render = partial(render_problem, asked)
        await self._framework(asked, receive, send)


def _prepare_routes(app: FastAPI) -> None:
    """Make the encoders of responses now. Otherwise the first request would take 90 ms longer."""
    for _, route in routes_of(app.router.routes):
        for kind in route.answers.values():
            prepare_encoding(kind)


def _lifespan(services: ServerState) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await services.open()
        _prepare_routes(app)
        await anyio.sleep(0)  # loads anyio's backend; otherwise the first streamed answer would wait for it
        try:
            yield
        finally:
            await services.close()

    return lifespan
