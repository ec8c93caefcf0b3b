"""The hub's paths with repository names and encoded slashes, and failures in the form that its clients read."""

from __future__ import annotations

import re
from typing import Annotated, Final
from urllib.parse import quote, unquote

from fastapi import Depends, Query
from pydantic import AfterValidator, Field
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from protoslice.errors import InvalidInput, NotFound, Unsupported
from protoslice.repositories import NoCommit, NoFile, NoRepository, RepositoryMoved
from protoslice.server.auth.spaces import absolute_url, url_of
from protoslice.server.problems import METHOD, HttpProblem
from protoslice.server.request.failures import render_body, render_problem

_OURS: Final = re.compile(rb"/(?:api/|(?:datasets/)?[^/]+(?:/[^/]+)?/(?:resolve|raw|tree|blob|commit)/)")
USER: Final = "default"
"""The name of the user, who also owns repositories that clients create without an owner."""
_KINDS: Final = {"models": "", "datasets": "datasets/"}
TAKEN: Final = frozenset({"api", "datasets", "kernels", "models", "spaces", "v1", "v2"})
"""First segments of the service's other paths. The name of a model repository may not begin with such a segment."""

Encoded = Annotated[str, AfterValidator(unquote)]
"""A path parameter. The path is matched while it is still encoded."""
Text = Annotated[str, Field(max_length=1000)]
"""A short text in a body."""
NO_DISCUSSIONS: Final = (
    "Pull requests are not supported here, and nothing was stored: create a branch and upload to it, with "
    "`--revision BRANCH` or `revision=`"
)
_CODES: Final[dict[type[Exception], str]] = {
    NoRepository: "RepoNotFound",
    RepositoryMoved: "RepoNotFound",
    NoCommit: "RevisionNotFound",
    NoFile: "EntryNotFound",
}


class _RepositoryConvertor(Convertor[str]):
    """A convertor that matches `name` or `owner/name`."""

    regex = "[^/]+(?:/[^/]+)?"

    def convert(self, value: str) -> str:
        """Return the value unchanged."""
        return value

    def to_string(self, value: str) -> str:
        """Return the value unchanged."""
        return value


class _KindConvertor(_RepositoryConvertor):
    """A convertor that matches `name`, `owner/name`, `datasets/name` and `datasets/owner/name`."""

    regex = "(?:datasets/)?[^/]+(?:/[^/]+)?"


class _OwnedConvertor(_RepositoryConvertor):
    """A convertor that matches `owner/name` and `datasets/owner/name`, unless `owner` is in `TAKEN`."""

    regex = rf"(?:datasets/)?(?!(?:{'|'.join(sorted(TAKEN))})/)[^/]+/[^/]+"


register_url_convertor("repository", _RepositoryConvertor())
register_url_convertor("repository_of_kind", _KindConvertor())
register_url_convertor("owned", _OwnedConvertor())


def spelled(scope: Scope) -> Scope:
    """Return `scope` with the path exactly as it was sent, if it is a path of the hub. Return other scopes unchanged.

    A branch such as `feat/x` is then one segment of the path, `feat%2Fx`.
    """
    raw: bytes = scope.get("raw_path") or b""
    root: str = scope.get("root_path", "")
    rest = raw.removeprefix(root.encode("latin-1", "replace"))
    if rest.startswith(b"/v1/") or not _OURS.match(rest):
        return scope
    return {**scope, "path": root + rest.decode("latin-1")}


def split_kind(name: str) -> tuple[str, str]:
    """Return kind and name of a repository at the beginning of a path. Only datasets have their kind in the path."""
    return ("datasets", name.removeprefix("datasets/")) if name.startswith("datasets/") else ("models", name)


def repository_url(scope: Scope, name: str) -> str:
    """Return the URL of a repository, as clients show it."""
    return absolute_url(scope, f"/{quote(name)}")


def repository_of(kind: str, name: str) -> str:
    """Return the full name of a repository for a kind, `models` or `datasets`, and a name in a path.

    Raise `NotFound` for other kinds, and for names whose first segment is in `TAKEN`.
    """
    plain = unquote(name)
    if kind not in _KINDS or plain.partition("/")[0] in TAKEN:
        raise NotFound(
            f"{kind[:80]}/{plain[:200]} cannot be a repository: use models or datasets, and a name such as OWNER/NAME"
        )
    if plain.count("/") > 1:
        raise InvalidInput(f"Invalid repository name {plain[:200]!r}: use OWNER/NAME")
    return _KINDS[kind] + plain


async def _refuse(create_pr: Annotated[bool, Query()] = False) -> None:
    if create_pr:
        raise Unsupported(NO_DISCUSSIONS)


NO_PULL_REQUESTS: Final = Depends(_refuse)
"""A dependency that refuses `create_pr` before the body of a commit is read."""


def render_hub(scope: Scope, error: Exception, failure: HttpProblem) -> Response:
    """Return the answer to a failed request as a problem, with the headers that hub clients read."""
    _describe(error, failure)
    return _current_name(scope, error) or render_problem(scope, error, failure)


def render_lfs(scope: Scope, error: Exception, failure: HttpProblem) -> Response:
    """Return the answer to a failed request, with the `message` that git-lfs shows."""
    _describe(error, failure)
    return _current_name(scope, error) or render_body(failure, {"message": failure.detail})


def render_git(scope: Scope, error: Exception, failure: HttpProblem) -> Response:
    """Return the answer to a failed request in plain text, which git shows."""
    _describe(error, failure)
    return _current_name(scope, error) or render_body(failure, f"{failure.detail}\n")


def _describe(error: Exception, failure: HttpProblem) -> None:
    """Add the headers from which clients of the hub read the error's code and message."""
    said = "This call is not supported by this service" if failure.problem is METHOD else failure.detail
    failure.headers["x-error-message"] = said.encode("unicode_escape").decode()[:1000]
    if type(error) in _CODES:
        failure.headers["x-error-code"] = _CODES[type(error)]
    if isinstance(error, NoFile) and error.commit is not None:  # clients remember that this commit lacks the file
        failure.headers["x-repo-commit"] = error.commit


def _current_name(scope: Scope, error: Exception) -> Response | None:
    """Return a redirect if a request names a repository by a former name, or with different upper or lower case.

    The redirect keeps the method. Permissions are then checked for the current name. Return None for other errors, and
    for a signed URL, because its signature covers the former name.
    """
    if not isinstance(error, RepositoryMoved):
        return None
    route = scope["route"]
    path = scope["raw_path"].decode("latin-1").removeprefix(scope["root_path"])
    found = route.path_regex.match(path)
    if found is None or route.rule.signed:
        return None
    start, end = found.span("name")
    spelled = unquote(found["name"])  # lacks `datasets/` after a kind; may end in `.git` for git
    kind = "" if spelled.startswith(error.name) else "datasets/"
    name = error.current.removeprefix(kind) + spelled[len(error.name) - len(kind) :]
    query = scope["query_string"].decode("latin-1")
    location = url_of(scope, path[:start] + quote(name) + path[end:]) + (f"?{query}" if query else "")
    return RedirectResponse(location, 307)
