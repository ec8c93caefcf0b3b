"""Problems as the hub's clients read them: by two headers, whatever the body says."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote, unquote

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from protoslice.errors import ProtosliceError
from protoslice.repositories import BranchMoved, NoCommit, NoFile, NoRepository, RepositoryMoved
from protoslice.server.auth.places import url_of
from protoslice.server.http.failures import failing_as, problem_of
from protoslice.server.problems import PRECONDITION, HttpProblem, problem_of_error
from protoslice.server.registries.protocol_route import ProtocolRoute
from protoslice.server.routing import Route

_CODES: Final[dict[type[ProtosliceError], str]] = {
    NoRepository: "RepoNotFound",
    RepositoryMoved: "RepoNotFound",
    NoCommit: "RevisionNotFound",
    NoFile: "EntryNotFound",
}


def failure_of(error: ProtosliceError, commit: str | None = None) -> HttpProblem:
    """Problem of a failed request, with the code and the message that clients look for.

    `commit` lets a client remember that a file is missing there.
    """
    failure = HttpProblem(PRECONDITION, error.message) if isinstance(error, BranchMoved) else problem_of_error(error)
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


class RepositoryRoute(Route):
    """A route of a repository, which redirects from a former name of it, or its name in another case."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler; the redirect keeps the method, so that its request is admitted by the current name."""
        handler = super().get_route_handler()

        async def redirecting(request: Request) -> Response:
            try:
                return await handler(request)
            except HttpProblem as failure:
                moved = failure.__cause__
                location = self._location(request.scope, moved) if isinstance(moved, RepositoryMoved) else None
                if location is None:
                    raise
                return RedirectResponse(location, 307)

        return redirecting

    def _location(self, scope: Scope, moved: RepositoryMoved) -> str | None:
        """The URL of a request with the current name; None for a signed URL, whose signature is for the former one."""
        path = scope["raw_path"].decode("latin-1").removeprefix(scope["root_path"])
        found = self.path_regex.match(path)
        if found is None or self.rule.signed:
            return None
        start, end = found.span("name")
        spelled = unquote(found["name"])  # without `datasets/` behind a kind; of git perhaps with `.git`
        kind = "" if spelled.startswith(moved.name) else "datasets/"
        name = moved.current.removeprefix(kind) + spelled[len(moved.name) - len(kind) :]
        query = scope["query_string"].decode("latin-1")
        return url_of(scope, path[:start] + quote(name) + path[end:]) + (f"?{query}" if query else "")


class HubRoute(RepositoryRoute):
    """A route of the hub, all of whose refusals bear a message, those of the gate too."""

    is_strict = False

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


class LfsRoute(ProtocolRoute, RepositoryRoute):
    """A route of git-lfs, which shows people the `message` of an answer alone."""

    @staticmethod
    def told(error: Exception, failure: HttpProblem) -> dict[str, Any]:
        """Words of the failure, under the name that git-lfs shows."""
        return {"message": failure.detail}
