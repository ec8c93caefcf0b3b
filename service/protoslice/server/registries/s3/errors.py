"""Errors of S3: their codes and statuses, and the XML that clients read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

from starlette.responses import Response
from starlette.types import Scope

from protoslice.server.auth.signatures import SIGNATURE
from protoslice.server.context import context_of, request_id_of
from protoslice.server.http.headers import Headers
from protoslice.server.problems import FORBIDDEN, INVALID, NOT_FOUND, PRECONDITION, RANGE, UNSUPPORTED, HttpProblem

_CODES: Final = {
    400: ("AuthorizationHeaderMalformed", "AuthorizationQueryParametersError", "InvalidArgument", "InvalidRequest",
          "InvalidURI", "XAmzContentSHA256Mismatch"),
    403: ("AccessDenied", "InvalidAccessKeyId", "RequestTimeTooSkewed", "SignatureDoesNotMatch"),
    405: ("MethodNotAllowed",),
    412: ("PreconditionFailed",),
    416: ("InvalidRange",),
    500: ("InternalError",),
    501: ("NotImplemented",),
    503: ("SlowDown",),
}  # fmt: skip
_STATUSES: Final = {code: status for status, codes in _CODES.items() for code in codes}
"""Status of each code; that of others, which name what does not exist, is 404."""
_PROBLEMS: Final = {403: FORBIDDEN, 404: NOT_FOUND, 412: PRECONDITION, 416: RANGE, 501: UNSUPPORTED}
_BY_SLUG: Final[Mapping[str, str]] = {
    "cross-site": "AccessDenied",
    "forbidden": "AccessDenied",
    "method-not-allowed": "MethodNotAllowed",
    "misdirected-request": "InvalidRequest",
    "not-found": "NoSuchKey",
    "precondition-failed": "PreconditionFailed",
    "quota-exceeded": "AccessDenied",
    "range-not-satisfiable": "InvalidRange",
    "unauthorized": "AccessDenied",
}
"""Codes by the slug of a problem; others follow from its status."""
_UNSAFE: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_NOW_AND_THEN: Final = frozenset({408, 429, 503, 507})
"""Statuses that pass: clients of S3 try again upon `SlowDown`."""


class S3Error(HttpProblem):
    """A failure with a code of S3."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(_PROBLEMS.get(_STATUSES.get(code, 404), INVALID), detail)
        self.code = code


def render_s3(scope: Scope, error: Exception, failure: HttpProblem) -> Response:
    """Return the answer to a failed request; clients tell failures apart by the code."""
    code = failure.code if isinstance(failure, S3Error) else _code_of(scope, failure)
    root = Element("Error")
    resource = scope["s3"].resource if "s3" in scope else scope["path"]
    texts = {"Code": code, "Message": failure.detail, "Resource": resource, "RequestId": request_id_of(scope)}
    add_texts(root, **texts)
    headers = {"cache-control": "no-store"}
    headers |= {name: value for name, value in failure.headers.items() if name in {"content-range", "retry-after"}}
    return xml_response(root, scope, status=_STATUSES.get(code, 404), headers=headers)


def add_texts(parent: Element, **texts: str) -> None:
    """Add an element for each text; characters that XML cannot hold are replaced."""
    for name, text in texts.items():
        SubElement(parent, name).text = _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)


def xml_response(
    root: Element, scope: Scope, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a document as an answer."""
    body = b'<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode").encode("utf-8", "replace")
    every = {name.decode(): value.decode() for name, value in headers_of(scope)}
    return Response(body, status, {**every, **(headers or {})}, media_type="application/xml")


def headers_of(scope: Scope) -> Headers:
    """Return the headers of every answer."""
    return amz_headers(context_of(scope).id, scope["s3"].region if "s3" in scope else "")


def amz_headers(id: bytes, region: str) -> Headers:
    """Return the headers of every answer, to a request of this id."""
    return [(b"x-amz-request-id", id), (b"x-amz-bucket-region", (region or "us-east-1").encode())]


def _code_of(scope: Scope, failure: HttpProblem) -> str:
    status, signature = failure.problem.status, scope.get(SIGNATURE)
    if status == 401 and signature is not None:
        return "SignatureDoesNotMatch" if signature.known else "InvalidAccessKeyId"
    if status == 404 and "s3" in scope and not scope["s3"].admitted:  # the space
        return "AccessDenied" if scope["app"].services.authenticator.closed else "NoSuchBucket"
    if status in _NOW_AND_THEN:
        return "SlowDown"
    if status >= 500:
        return "InternalError"
    return _BY_SLUG.get(failure.problem.slug, "NoSuchKey" if status in {404, 410} else "InvalidRequest")
