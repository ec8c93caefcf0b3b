"""Rows of calls: each declares path, access, answer and failures once, for routing, the gate and OpenAPI."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from fastapi import APIRouter

from protoslice.server.access.rules import Rule, add_rule
from protoslice.server.api.documentation.openapi_fragments import SEEN, problems

Handler = TypeVar("Handler", bound=Callable[..., Any])


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
    **options: Any,
) -> Callable[[Handler], Handler]:
    """Make the decorated function answer the calls of `row`, which is a method and a path, such as `GET /v1/tags`.

    `answer` is the class of the JSON, `fails` are the statuses of problems besides those of every call, `cached` says
    that the answer has an entity tag for conditions, and `options` are those of the framework's route. The function's
    docstring is the description; its name is that of the operation, unless `operation` is.
    """
    method, _, path = row.partition(" ")
    failures = sorted({*fails, 412}) if cached else fails

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
            **options,
        )
        return handler

    return add
