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
from protoslice.server.problems import FORBIDDEN, INVALID, NOT_FOUND, PRECONDITION, RANGE, UNSUPPORTED, HttpProblem

_STATUSES: Final[Mapping[str, int]] = {
    "AccessDenied": 403,
    "AuthorizationHeaderMalformed": 400,
    "AuthorizationQueryParametersError": 400,
    "ExpiredToken": 400,
    "InternalError": 500,
    "InvalidAccessKeyId": 403,
    "InvalidArgument": 400,
    "InvalidRange": 416,
    "InvalidRequest": 400,
    "InvalidURI": 400,
    "MethodNotAllowed": 405,
    "NoSuchBucket": 404,
    "NoSuchKey": 404,
    "NoSuchVersion": 404,
    "NotImplemented": 501,
    "PreconditionFailed": 412,
    "RequestTimeTooSkewed": 403,
    "SignatureDoesNotMatch": 403,
    "SlowDown": 503,
    "XAmzContentSHA256Mismatch": 400,
    # Reads of a configuration that the bucket does not have.
    "NoSuchBucketPolicy": 404,
    "NoSuchCORSConfiguration": 404,
    "NoSuchLifecycleConfiguration": 404,
    "NoSuchPublicAccessBlockConfiguration": 404,
    "NoSuchTagSet": 404,
    "NoSuchWebsiteConfiguration": 404,
    "ObjectLockConfigurationNotFoundError": 404,
    "OwnershipControlsNotFoundError": 404,
    "ReplicationConfigurationNotFoundError": 404,
    "ServerSideEncryptionConfigurationNotFoundError": 404,
}
"""Status of each code."""
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

    def __init__(self, code: str, detail: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(_PROBLEMS.get(_STATUSES[code], INVALID), detail, headers=headers)
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
    return xml_response(root, scope, status=_STATUSES[code], headers=headers)


def add_texts(parent: Element, **texts: str) -> None:
    """Add an element for each text; characters that XML cannot hold are replaced."""
    for name, text in texts.items():
        SubElement(parent, name).text = _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)


def xml_response(
    root: Element, scope: Scope, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a document as an answer."""
    body = b'<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode").encode("utf-8", "replace")
    every = {name.decode(): value.decode() for name, value in amz_headers(scope)}
    return Response(body, status, {**every, **(headers or {})}, media_type="application/xml")


def amz_headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return the headers of every answer."""
    region = scope["s3"].region if "s3" in scope else ""
    return [(b"x-amz-request-id", context_of(scope).id), (b"x-amz-bucket-region", (region or "us-east-1").encode())]


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
