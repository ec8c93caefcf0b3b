"""Failures as clients of the hub, git-lfs and git read them."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from protoslice.repositories import NoCommit, NoFile, NoRepository, RepositoryMoved
from protoslice.server.auth.places import url_of
from protoslice.server.problems import METHOD, HttpProblem
from protoslice.server.request.errors import render_body, render_problem

_CODES: Final[dict[type[Exception], str]] = {
    NoRepository: "RepoNotFound",
    RepositoryMoved: "RepoNotFound",
    NoCommit: "RevisionNotFound",
    NoFile: "EntryNotFound",
}


def render_hub(scope: Scope, error: Exception, failure: HttpProblem) -> Response:
    """Return the answer with the code and the message that clients read in headers, whatever the body says."""
    said = "This call is not supported by this service" if failure.problem is METHOD else failure.detail
    failure.headers["x-error-message"] = said.encode("unicode_escape").decode()[:1000]
    if type(error) in _CODES:
        failure.headers["x-error-code"] = _CODES[type(error)]
    if isinstance(error, NoFile) and error.commit is not None:  # clients remember that the file is missing there
        failure.headers["x-repo-commit"] = error.commit
    return _current_name(scope, error) or render_problem(scope, error, failure)


def render_lfs(scope: Scope, error: Exception, failure: HttpProblem) -> Response:
    """Return the answer with the `message` that git-lfs shows."""
    return _current_name(scope, error) or render_body(failure, {"message": failure.detail})


def render_git(scope: Scope, error: Exception, failure: HttpProblem) -> Response:
    """Return the answer in plain text, which git shows."""
    return _current_name(scope, error) or render_body(failure, f"{failure.detail}\n")


def _current_name(scope: Scope, error: Exception) -> Response | None:
    """Return the redirect of a request for a repository by a former name, or by its name in another case.

    The redirect keeps the method, so that its request is admitted by the current name. None for other errors, and for a
    signed URL, whose signature is for the former name.
    """
    if not isinstance(error, RepositoryMoved):
        return None
    route = scope["route"]
    path = scope["raw_path"].decode("latin-1").removeprefix(scope["root_path"])
    found = route.path_regex.match(path)
    if found is None or route.rule.signed:
        return None
    start, end = found.span("name")
    spelled = unquote(found["name"])  # without `datasets/` behind a kind; of git perhaps with `.git`
    kind = "" if spelled.startswith(error.name) else "datasets/"
    name = error.current.removeprefix(kind) + spelled[len(error.name) - len(kind) :]
    query = scope["query_string"].decode("latin-1")
    location = url_of(scope, path[:start] + quote(name) + path[end:]) + (f"?{query}" if query else "")
    return RedirectResponse(location, 307)
