"""Translation of exceptions, raised in a route, the framework or the library, to problems."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Any, ParamSpec

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from protoslice.errors import ProtosliceError
from protoslice.server.context import context_of, public_path, request_id_of
from protoslice.server.http.disconnect import ClientGone
from protoslice.server.problems import (
    BAD_REQUEST,
    INTERNAL,
    INVALID,
    STATUSES,
    HttpProblem,
    problem_of_error,
    problem_response,
)

P = ParamSpec("P")

HANDLED: tuple[type[Exception], ...] = (HttpProblem, ProtosliceError, HTTPException, RequestValidationError, Exception)


def problem_of(error: Exception) -> HttpProblem:
    """The problem that answers `error`."""
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
    """Place, name and message of each mistake, without values: they may be secrets, or megabytes."""
    for mistake in found:
        where, *name = [str(step) for step in mistake["loc"]]
        yield {"in": where, "name": ".".join(name), "detail": str(mistake["msg"])}


async def answer_exception(request: Request, error: Exception) -> Response:
    """Answer an exception for the framework; re-raises `ClientGone`, which `RequestMiddleware` records."""
    if isinstance(error, ClientGone):
        raise error
    if isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        error.headers = {"allow": ", ".join(_allowed(request.scope))}
    path = request.scope["path"].removeprefix(request.scope["root_path"])
    if type(error) is HTTPException and path.startswith("/api/"):  # of the framework: no route takes the call
        # Clients of Hugging Face print this header, and nothing of the body.
        error.headers = {"x-error-message": "This call is not supported by this service", **(error.headers or {})}
    return _response(request.scope, error)


def _allowed(scope: Scope) -> Iterable[str]:
    """The methods that any route takes at this path; the framework tells of the first route alone."""
    routes: Iterable[BaseRoute] = scope["app"].router.routes
    for method in ("GET", "PUT", "POST", "PATCH", "DELETE"):
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes):
            yield method
            if method == "GET":
                yield "HEAD"


def failing_as(
    failure_of: Callable[[ProtosliceError], HttpProblem],
) -> Callable[[Callable[P, Awaitable[Response]]], Callable[P, Awaitable[Response]]]:
    """Decorator of handlers whose errors become the problems that `failure_of` makes of them."""

    def decorated(handler: Callable[P, Awaitable[Response]]) -> Callable[P, Awaitable[Response]]:
        @functools.wraps(handler)
        async def answer(*args: P.args, **kwargs: P.kwargs) -> Response:
            try:
                return await handler(*args, **kwargs)
            except ProtosliceError as error:
                raise failure_of(error) from error

        return answer

    return decorated


def note_failure(scope: Scope, failure: HttpProblem, error: Exception) -> None:
    """Note the problem of a request in its context, and the cause if the service is at fault."""
    context, problem = context_of(scope), failure.problem
    context.problem = problem.slug
    if problem.refuses:
        context.refused = True
    elif problem.status >= 500:
        # Protocols of registries make the problem themselves, of the error that says what is wrong.
        context.cause = error if error.__cause__ is None or not isinstance(error, HttpProblem) else error.__cause__


async def send_failure(scope: Scope, receive: Receive, send: Send, error: Exception) -> None:
    """Answer with the problem that `error` is, outside of the framework."""
    await _response(scope, error)(scope, receive, send)


def _response(scope: Scope, error: Exception) -> Response:
    failure = problem_of(error)
    note_failure(scope, failure, error)
    path: bytes = scope.get("raw_path") or scope["path"].encode("ascii", "replace")
    base = public_path(scope)
    instance = base + path.decode("ascii", "replace")[:2048]
    return problem_response(failure, request_id=request_id_of(scope), instance=instance, base=base)
