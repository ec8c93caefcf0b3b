"""Errors as the OCI distribution specification has them."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response
from starlette.types import Scope

from protoslice.artifacts import ArtifactFault
from protoslice.server.problems import BUSY, HttpProblem
from protoslice.server.request.errors import render_body

_CODES: Final = {
    401: "UNAUTHORIZED",
    403: "DENIED",
    404: "NAME_UNKNOWN",
    413: "SIZE_INVALID",
    429: "TOOMANYREQUESTS",
}
"""Codes by status, of errors that are not about an artifact."""


def render_oci(scope: Scope, error: Exception, failure: HttpProblem) -> Response:
    """Return the list of one error, its code and its message; the specification has no word for a busy service."""
    status = 429 if failure.problem is BUSY else failure.problem.status
    code = error.code if isinstance(error, ArtifactFault) else _CODES.get(status, "UNSUPPORTED")
    return render_body(failure, {"errors": [{"code": code, "message": failure.detail}]}, status=status)
