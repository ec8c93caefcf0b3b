"""Problems as the hub's clients read them: by two headers, whatever the body says."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from protoslice.errors import ProtosliceError
from protoslice.repositories import NoCommit, NoFile, NoRepository, Outrun
from protoslice.server.api.problems import PRECONDITION, HttpProblem, problem_of_error
from protoslice.server.http.failures import failing_as, problem_of
from protoslice.server.middleware.guarded_route import GuardedRoute
from protoslice.server.registries.protocol_route import ProtocolRoute

_CODES: Final[dict[type[ProtosliceError], str]] = {
    NoRepository: "RepoNotFound",
    NoCommit: "RevisionNotFound",
    NoFile: "EntryNotFound",
}


def failure_of(error: ProtosliceError, commit: str | None = None) -> HttpProblem:
    """Problem of a failed request, with the code and the message that clients look for.

    `commit` lets a client remember that a file is missing there.
    """
    failure = HttpProblem(PRECONDITION, error.message) if isinstance(error, Outrun) else problem_of_error(error)
    code = _CODES.get(type(error))
    if code is not None:
        failure.headers["x-error-code"] = code
    if commit is not None:
        failure.headers["x-repo-commit"] = commit
    return _worded(failure)


def _worded(failure: HttpProblem) -> HttpProblem:
    """The problem, with its words in the header that clients show; they do not look into the body."""
    failure.headers["x-error-message"] = failure.detail.encode("unicode_escape").decode()[:1000]
    return failure


answering = failing_as(failure_of)
"""Decorator of handlers whose errors become problems of the hub."""


@contextmanager
def _refusals_worded() -> Iterator[None]:
    try:
        yield
    except HttpProblem as failure:
        raise _worded(failure) from failure.__cause__
    except ProtosliceError as error:
        raise failure_of(error) from error
    except RequestValidationError as error:
        raise _worded(problem_of(error)) from error


class HubRoute(GuardedRoute):
    """A route of the hub, all of whose refusals bear a message, those of the gate too."""

    checks_query = False

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with messages for its failures."""
        handler = super().get_route_handler()

        async def answering(request: Request) -> Response:
            with _refusals_worded():
                return await handler(request)

        return answering

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; what the gate refuses, and a body refused unread, bears a message too."""
        with _refusals_worded():
            await super().handle(scope, receive, send)


class LfsRoute(ProtocolRoute):
    """A route of git-lfs, which shows people the `message` of an answer alone."""

    @staticmethod
    def told(error: Exception, failure: HttpProblem) -> dict[str, Any]:
        """Words of the failure, under the name that git-lfs shows."""
        return {"message": failure.detail}
