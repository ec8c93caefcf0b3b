"""Answers that the routes share, in the form that MLflow's client reads."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import unquote

from pydantic import AfterValidator
from starlette.responses import Response
from starlette.types import Scope

from protoslice.server.http.responses import JsonAnswer
from protoslice.server.problems import HttpProblem
from protoslice.server.request.errors import render_body

BASE: Final = "/api/2.0/mlflow-artifacts"
ArtifactPath = Annotated[str, AfterValidator(lambda path: unquote(path).rstrip("/"))]
"""Path of an artifact or a folder; clients end that of a whole run with a slash."""
_CODES: Final = {
    400: "INVALID_PARAMETER_VALUE",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "RESOURCE_DOES_NOT_EXIST",
    409: "RESOURCE_CONFLICT",
    429: "REQUEST_LIMIT_EXCEEDED",
    503: "TEMPORARILY_UNAVAILABLE",
}


def done() -> Response:
    """Answer that tells nothing but success."""
    return JsonAnswer({})


def render_mlflow(scope: Scope, error: Exception, failure: HttpProblem) -> Response:
    """Return the answer with the code and message that MLflow shows."""
    status = failure.problem.status
    code = _CODES.get(status, "BAD_REQUEST" if status < 500 else "INTERNAL_ERROR")
    return render_body(failure, {"error_code": code, "message": failure.detail})
