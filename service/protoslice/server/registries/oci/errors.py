"""Errors as the OCI distribution specification has them."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from protoslice.artifacts import ArtifactFault
from protoslice.server.problems import BUSY, HttpProblem
from protoslice.server.registries.protocol_route import ProtocolRoute

_CODES: Final = {
    401: "UNAUTHORIZED",
    403: "DENIED",
    404: "NAME_UNKNOWN",
    413: "SIZE_INVALID",
    429: "TOOMANYREQUESTS",
}
"""Codes by status, of errors that are not about an artifact."""


class OciRoute(ProtocolRoute):
    """A route with failures in the form of the specification, which has no word for a busy service."""

    statuses: ClassVar = {BUSY: 429}

    @staticmethod
    def told(error: Exception, failure: HttpProblem) -> dict[str, Any]:
        """A list of one error: its code and its message."""
        status = OciRoute.statuses.get(failure.problem, failure.problem.status)
        code = error.code if isinstance(error, ArtifactFault) else _CODES.get(status, "UNSUPPORTED")
        return {"errors": [{"code": code, "message": failure.detail}]}
