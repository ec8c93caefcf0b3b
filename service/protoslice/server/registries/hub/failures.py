"""Problems as the hub's clients read them: by two headers, whatever the body says."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Final, ParamSpec

from starlette.responses import Response

from protoslice.errors import ProtosliceError
from protoslice.repositories import NoCommit, NoFile, NoRepository, Outrun
from protoslice.server.api.problems import PRECONDITION, HttpProblem, problem_of_error

__all__ = ["answering", "failure_of"]

P = ParamSpec("P")

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
    if failure.problem.status < 500:
        failure.headers["x-error-message"] = error.message.encode("ascii", "backslashreplace").decode()[:1000]
    return failure


def answering(handler: Callable[P, Awaitable[Response]]) -> Callable[P, Awaitable[Response]]:
    """Let errors of a handler become problems of the hub."""

    @functools.wraps(handler)
    async def answer(*args: P.args, **kwargs: P.kwargs) -> Response:
        try:
            return await handler(*args, **kwargs)
        except ProtosliceError as error:
            raise failure_of(error) from error

    return answer
