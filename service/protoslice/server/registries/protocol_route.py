"""Route whose failures have the form that clients of a protocol read."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from protoslice.errors import ProtosliceError
from protoslice.server.http.disconnect import ClientGone
from protoslice.server.http.failures import note_failure, problem_of
from protoslice.server.problems import HttpProblem, Problem
from protoslice.server.routing import Route


class ProtocolRoute(Route, ABC):
    """A guarded route; subclasses say what the body of a failure is."""

    is_strict = False
    statuses: ClassVar[Mapping[Problem, int]] = {}
    """Statuses of problems that have another one in the protocol."""

    @staticmethod
    @abstractmethod
    def told(error: Exception, failure: HttpProblem) -> dict[str, Any]:
        """JSON of a failure; `error` is its cause, or `failure` itself."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with its failures answered."""
        handler = super().get_route_handler()

        async def answering(request: Request) -> Response:
            try:
                return await handler(request)
            except ClientGone:
                raise
            except Exception as error:
                return self._answer(request.scope, error)

        return answering

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; a body that is refused unread is answered likewise."""
        try:
            await super().handle(scope, receive, send)
        except (HttpProblem, ProtosliceError) as error:
            await self._answer(scope, error)(scope, receive, send)

    def _answer(self, scope: Scope, error: Exception) -> Response:
        failure = problem_of(error)
        note_failure(scope, failure, error)
        headers = {"cache-control": "no-store", **failure.headers}
        body = json.dumps(self.told(error, failure))
        return Response(
            body, self.statuses.get(failure.problem, failure.problem.status), headers, media_type="application/json"
        )
