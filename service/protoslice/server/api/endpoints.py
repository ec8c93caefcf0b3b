"""Rows of calls: each declares path, access, answer and failures once, for routing, the gate and OpenAPI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Header, Request

from protoslice.errors import NotFound
from protoslice.server.api.documentation.openapi_fragments import EXPERIMENTAL, SEEN, problems
from protoslice.server.auth.permissions import Scope
from protoslice.server.auth.rules import Rule, add_rule
from protoslice.server.http.conditions import EntityTag, Preconditions, Verdict, evaluate, failure
from protoslice.server.http.headers import read_fields
from protoslice.server.problems import PRECONDITION, HttpProblem
from protoslice.server.services import Given, Services

Handler = TypeVar("Handler", bound=Callable[..., Any])
IfMatch = Annotated[
    str | None, Header(description="Only if the resource has one of these entity tags; `*`: only if it exists.")
]
IfNoneMatch = Annotated[
    str | None,
    Header(description="`*`: only if the resource does not exist. Otherwise only if it has none of these entity tags."),
]


def endpoint(  # noqa: PLR0913 - the columns of a row
    router: APIRouter,
    row: str,
    rule: Rule,
    *,
    answer: Any = None,
    status: int = 200,
    fails: Iterable[int] = (),
    cached: bool = False,
    responses: Mapping[int | str, dict[str, Any]] | None = None,
    operation: str | None = None,
    experimental: bool = False,
    deprecated: tuple[str, str] | None = None,
    **options: Any,
) -> Callable[[Handler], Handler]:
    """Make the decorated function answer the calls of `row`, which is a method and a path, such as `GET /v1/tags`.

    `answer` is the class of the JSON, `fails` are the statuses of further problems, `cached` says
    that the answer has an entity tag for conditions, `experimental` that it may change within `/v1`, `deprecated` since
    when it is and the row of its successor, and `options` are those of the framework's route. The function's
    docstring is the description; its name is that of the operation, unless `operation` is.
    """
    method, _, path = row.partition(" ")
    failures = sorted({*fails, 412}) if cached else fails

    extra = dict(options.pop("openapi_extra", {})) | (EXPERIMENTAL if experimental else {})
    if deprecated is not None:
        extra |= {"deprecated": True, "x-deprecated": dict(zip(("since", "successor"), deprecated, strict=True))}

    def add(handler: Handler) -> Handler:
        add_rule(row, rule)
        router.add_api_route(
            path,
            handler,
            methods=[method],
            operation_id=operation or handler.__name__,
            response_model=answer,
            status_code=None if status == 200 else status,
            responses={**({304: SEEN} if cached else {}), **(responses or {}), **problems(*failures)},
            openapi_extra=extra or None,
            **options,
        )
        return handler

    return add


@dataclass(frozen=True, slots=True)
class Current:
    """A resource that a request is about to change, as it is now."""

    etag: EntityTag
    version: Any
    """What the write compares in its transaction; read before the rest."""
    shown: Mapping[str, Any] = field(default_factory=dict)
    """Further members of the problem for a caller who may read."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What a write has to find in its transaction: a `version`, or nothing if it is `absent`; by default anything."""

    version: Any = None
    absent: bool = False


def conditional(find: Callable[[Request, Services], Awaitable[Current]]) -> Any:
    """Return the dependency of a route that evaluates If-Match and If-None-Match, and gives a `Condition`.

    `find` returns the resource, or raises `NotFound`. Routes without this dependency refuse the two headers.
    """

    async def condition(
        request: Request, services: Given, if_match: IfMatch = None, if_none_match: IfNoneMatch = None
    ) -> Condition:
        if if_match is None and if_none_match is None:
            return Condition()
        found: Current | None = None
        with suppress(NotFound):
            found = await find(request, services)
        asked = Preconditions.of(read_fields(request.scope))  # of several lines, the parameters hold the first
        if evaluate(asked, None if found is None else found.etag, reads=False) is not Verdict.PROCEED:
            shown = {}
            if found is not None and services.may(Scope.READ):
                shown = {"etag": str(found.etag), **found.shown}
            raise HttpProblem(PRECONDITION, failure(asked), **shown)
        return Condition(absent=True) if found is None else Condition(found.version)

    return Depends(condition)
