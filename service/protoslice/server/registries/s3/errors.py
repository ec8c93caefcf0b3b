"""The errors of S3: their codes and statuses, and the XML that clients read."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response
from starlette.types import Scope

from protoslice.server.auth.signatures import SIGNATURE
from protoslice.server.context import request_id_of
from protoslice.server.problems import FORBIDDEN, INVALID, NOT_FOUND, PRECONDITION, RANGE, UNSUPPORTED, HttpProblem
from protoslice.server.registries.s3.documents import element, xml_response

_STATUSES: Final = {
    "AccessDenied": 403, "AuthorizationHeaderMalformed": 400, "AuthorizationQueryParametersError": 400,
    "InternalError": 500, "InvalidAccessKeyId": 403, "InvalidArgument": 400, "InvalidRange": 416,
    "InvalidRequest": 400, "InvalidURI": 400, "MethodNotAllowed": 405, "NotImplemented": 501,
    "PreconditionFailed": 412, "RequestTimeTooSkewed": 403, "SignatureDoesNotMatch": 403, "SlowDown": 503,
    "XAmzContentSHA256Mismatch": 400,
}  # fmt: skip
"""The statuses of codes. Codes that are missing here say that something does not exist, and their status is 404."""
_PROBLEMS: Final = {403: FORBIDDEN, 404: NOT_FOUND, 412: PRECONDITION, 416: RANGE, 501: UNSUPPORTED}
_CODES: Final = {
    401: "AccessDenied", 403: "AccessDenied", 404: "NoSuchKey", 405: "MethodNotAllowed", 410: "NoSuchKey",
    412: "PreconditionFailed", 416: "InvalidRange", **dict.fromkeys((408, 429, 503, 507), "SlowDown"),
}  # fmt: skip
"""The codes of other problems, keyed by the problem's status. Clients of S3 try again after `SlowDown`."""


class S3Error(HttpProblem):
    """A failure with a code of S3."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(_PROBLEMS.get(_STATUSES.get(code, 404), INVALID), detail)
        self.code = code


def render_s3(scope: Scope, error: Exception, failure: HttpProblem) -> Response:
    """Return the response to a failed request. Clients distinguish failures by the code."""
    code = failure.code if isinstance(failure, S3Error) else _code_of(scope, failure)
    document = element("Error", {"Code": code, "Message": failure.detail, "RequestId": request_id_of(scope)})
    headers = {name: value for name, value in failure.headers.items() if name in {"content-range", "retry-after"}}
    return xml_response(scope, document, _STATUSES.get(code, 404), {"cache-control": "no-store", **headers})


def _code_of(scope: Scope, failure: HttpProblem) -> str:
    status, signature = failure.problem.status, scope.get(SIGNATURE)
    if status == 401 and signature is not None:
        return "SignatureDoesNotMatch" if signature.known else "InvalidAccessKeyId"
    if status == 404 and "s3" in scope and not scope["s3"].admitted:  # the space does not exist or is not visible
        return "AccessDenied" if scope["app"].services.authenticator.closed else "NoSuchBucket"
    return _CODES.get(status, "InvalidRequest" if status < 500 else "InternalError")
