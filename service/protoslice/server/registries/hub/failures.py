"""Problems as the hub's clients read them: by two headers, whatever the body says."""

from __future__ import annotations

from typing import Any, Final

from protoslice.errors import ProtosliceError
from protoslice.repositories import NoCommit, NoFile, NoRepository, Outrun
from protoslice.server.api.problems import PRECONDITION, HttpProblem, problem_of_error
from protoslice.server.http.failures import failing_as
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
    if failure.problem.status < 500:
        failure.headers["x-error-message"] = error.message.encode("ascii", "backslashreplace").decode()[:1000]
    return failure


answering = failing_as(failure_of)
"""Decorator of handlers whose errors become problems of the hub."""


class LfsRoute(ProtocolRoute):
    """A route of git-lfs, which shows people the `message` of an answer alone."""

    @staticmethod
    def told(error: Exception, failure: HttpProblem) -> dict[str, Any]:
        """Words of the failure, under the name that git-lfs shows."""
        return {"message": failure.detail}
