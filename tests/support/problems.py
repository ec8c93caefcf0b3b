"""The shape that every failure over HTTP has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MEMBERS = {"type": str, "title": str, "status": int, "detail": str, "request_id": str}


def assert_problem(
    status: int, headers: Mapping[str, str], body: bytes, *, expected: int, slug: str | None = None
) -> Any:
    """The problem's members, after checking that the answer is an RFC 9457 problem with status `expected`."""
    assert status == expected, body
    assert headers["content-type"] == "application/problem+json"
    assert headers["cache-control"] == "no-store"
    problem = json.loads(body)
    for name, kind in MEMBERS.items():
        assert isinstance(problem.get(name), kind), f"{name} is missing or no {kind.__name__}: {problem}"
    assert problem["status"] == expected
    assert problem["type"].startswith("/problems/")
    assert slug is None or problem["type"] == f"/problems/{slug}"
    assert headers.get("x-request-id", problem["request_id"]) == problem["request_id"]
    return problem
