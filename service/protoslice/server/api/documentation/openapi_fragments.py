"""Fragments of the OpenAPI document that routes share: problems, headers and bodies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from protoslice.server.problems import MEDIA_TYPE, PROBLEMS

PROBLEM_SCHEMA: Final = {"$ref": "#/components/schemas/ProblemModel"}
SEEN: Final = {"description": "The client has it already."}
EXPERIMENTAL: Final = {"x-stability": "experimental"}
"""Mark of an operation that may change within `/v1`."""
BINARY: Final = {"type": "string", "format": "binary"}
_ALWAYS: Final = (400, 408, 421, 431, 500, 503)
_RETRY: Final = {503}


def header(description: str, kind: str = "string") -> dict[str, Any]:
    """A response header."""
    return {"description": description, "schema": {"type": kind}}


REQUEST_ID: Final = {"x-request-id": header("Request id, as in logs and problems; the client may choose it.")}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The failures of an operation: these, and those that any may have."""
    return {status: _problem(status) for status in sorted({*statuses, *_ALWAYS})}


def _problem(status: int) -> dict[str, Any]:
    found = [problem for problem in PROBLEMS if problem.status == status]
    headers = dict(REQUEST_ID)
    if status in _RETRY:
        headers["retry-after"] = header("Seconds to wait.", "integer")
    examples = {problem.slug: {"value": _example(problem)} for problem in found}
    return {
        "description": _join(problem.title for problem in found),
        "headers": headers,
        "content": {MEDIA_TYPE: {"schema": PROBLEM_SCHEMA, "examples": examples}},
    }


def _example(problem: Any) -> dict[str, Any]:
    return {
        "type": problem.type,
        "title": problem.title,
        "status": problem.status,
        "detail": problem.advice,
        "request_id": "5f2b9c0d1e3a47788899aabb",
    }


def _join(titles: Iterable[str]) -> str:
    return "; ".join(titles)
