"""Errors as the OCI distribution specification has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from protoslice.artifacts import ArtifactFault
from protoslice.server.api.problems import HttpProblem
from protoslice.server.http.disconnect import ClientGone
from protoslice.server.http.failures import problem_of
from protoslice.server.middleware.context import context_of
from protoslice.server.middleware.guarded_route import GuardedRoute

_CODES: Final = {401: "UNAUTHORIZED", 403: "DENIED", 404: "NAME_UNKNOWN", 429: "TOOMANYREQUESTS"}
"""Codes by status, of errors that are not about an artifact."""


class OciRoute(GuardedRoute):
    """A route whose failures are told in the form of the specification."""

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
    code = error.code if isinstance(error, ArtifactFault) else _CODES.get(status, "UNSUPPORTED")
    told = {"errors": [{"code": code, "message": failure.detail}]}
    headers = {"cache-control": "no-store", **failure.headers}
    return Response(json.dumps(told), status, headers, media_type="application/json")
