"""Answers that the routes share, in the form that MLflow's client reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from protoslice.server.api.problems import HttpProblem
from protoslice.server.http.disconnect import ClientGone
from protoslice.server.http.failures import problem_of
from protoslice.server.middleware.context import context_of
from protoslice.server.middleware.guarded_route import GuardedRoute

BASE: Final = "/api/2.0/mlflow-artifacts"
_CODES: Final = {
    400: "INVALID_PARAMETER_VALUE",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "RESOURCE_DOES_NOT_EXIST",
    429: "REQUEST_LIMIT_EXCEEDED",
    503: "TEMPORARILY_UNAVAILABLE",
}


def done() -> Response:
    """Answer that tells nothing but success."""
    return JSONResponse({})


class MlflowRoute(GuardedRoute):
    """A route whose failures have the code and message that MLflow shows."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with its failures answered."""
        handler = super().get_route_handler()

        async def answering(request: Request) -> Response:
            try:
                return await handler(request)
            except ClientGone:
                raise
            except Exception as error:
                return _told(request.scope, error)

        return answering

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; a body that is refused unread is told of likewise."""
        try:
            await super().handle(scope, receive, send)
        except HttpProblem as error:
            await _told(scope, error)(scope, receive, send)


def _told(scope: Scope, error: Exception) -> Response:
    failure = problem_of(error)
    status = failure.problem.status
    if status >= 500:
        context_of(scope).cause = error
    told = {"error_code": _CODES.get(status, "BAD_REQUEST" if status < 500 else "INTERNAL_ERROR")}
    headers = {"cache-control": "no-store", **failure.headers}
    body = json.dumps(told | {"message": failure.detail})
    return Response(body, status, headers, media_type="application/json")
