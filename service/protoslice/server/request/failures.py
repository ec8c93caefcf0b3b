"""Turns exceptions into responses. A route, the framework or the library may have raised them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from protoslice.errors import ProtosliceError
from protoslice.server.context import context_of, public_path, request_id_of
from protoslice.server.problems import (
    BAD_REQUEST,
    INTERNAL,
    INVALID,
    STATUSES,
    HttpProblem,
    no_view,
    problem_of_error,
    problem_response,
)

Render = Callable[[Scope, Exception, HttpProblem], Response]
"""A function that makes the answer to a failed request, in the form that clients of a protocol read."""


def problem_of(error: Exception) -> HttpProblem:
    """Return the problem that answers `error`."""
    if isinstance(error, HttpProblem):
        return error
    if isinstance(error, ProtosliceError):
        return problem_of_error(error)
    if isinstance(error, RequestValidationError):
        return HttpProblem(INVALID, "Invalid parameters or body: see `errors`", errors=list(_mistakes(error.errors())))
    if isinstance(error, HTTPException):
        return _of_status(error)
    return HttpProblem(INTERNAL, INTERNAL.advice)


def _of_status(error: HTTPException) -> HttpProblem:
    problem = STATUSES.get(error.status_code) or (BAD_REQUEST if error.status_code < 500 else INTERNAL)
    said = str(error.detail)
    plain = said == _phrase(error.status_code) or problem.status >= 500
    return HttpProblem(problem, problem.advice if plain else said, headers=error.headers)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _mistakes(found: Iterable[Any]) -> Iterable[dict[str, str]]:
    """Yield place, name and message of each mistake. Values are left out, because they may be secret or very long."""
    for mistake in found:
        where, *name = [str(step) for step in mistake["loc"]]
        yield {"in": where, "name": ".".join(name), "detail": str(mistake["msg"])}


@contextmanager
def body_at_fault() -> Iterator[None]:
    """Report errors that are raised in the `with` block as mistakes in the request's body.

    An error's `upload_slug` replaces its slug.
    """
    try:
        yield
    except ProtosliceError as error:
        error.slug = error.upload_slug
        raise


async def send_failure(scope: Scope, receive: Receive, send: Send, error: Exception) -> None:
    """Send the problem of `error` in the form of the route's protocol."""
    context, failure = context_of(scope), problem_of(error)
    context.problem = failure.problem.slug
    if failure.problem.refuses:
        context.refused = True
    elif failure.problem.status >= 500:
        context.cause = error
    render = context.render or partial(render_problem, scope)
    await render(error, failure)(scope, receive, send)


def render_problem(scope: Scope, error: Exception, failure: HttpProblem) -> Response:
    """Return the answer of the API to a failed request, as `application/problem+json`."""
    if type(error) is HTTPException and error.status_code == HTTPStatus.NOT_FOUND:  # no route has the path
        asked = scope["path"].removeprefix(scope["root_path"])
        if asked.startswith("/api/"):
            # Clients of Hugging Face print only this header and nothing from the body.
            failure.headers["x-error-message"] = "This call is not supported by this service"
        elif asked.startswith("/v1/stores/") and (view := asked.split("/", 4)[4:]):
            failure.detail = no_view(view[0])
    path: bytes = scope.get("raw_path") or scope["path"].encode("ascii", "replace")
    base = public_path(scope)
    instance = base + path.decode("ascii", "replace")[:2048]
    return problem_response(failure, request_id=request_id_of(scope), instance=instance, base=base)


def render_body(failure: HttpProblem, body: object, *, status: int | None = None) -> Response:
    """Return the response of another protocol to a failed request. The body is a text or JSON."""
    headers = {"cache-control": "no-store", **failure.headers}
    if isinstance(body, str):
        return PlainTextResponse(body, status or failure.problem.status, headers)
    return Response(json.dumps(body), status or failure.problem.status, headers, media_type="application/json")
