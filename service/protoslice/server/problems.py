"""The problems (RFC 9457) that answers report. Each has a slug, a status, a title and advice.

Answers, the OpenAPI document and `docs/reference/problems.md` are made from these problems.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response

from protoslice import errors

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 5
_LONGEST_DETAIL: Final = 2000
"""The approximate limit on the length of a message, in characters."""
FOR_NOW: Final = frozenset({HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS})
"""The statuses of temporary problems. Answers with one of these statuses say when to try again."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A kind of failure: its status, the last part of its `type` URI, its title, and advice on what to do."""

    status: int
    slug: str
    title: str
    advice: str

    type_base: str = "/problems/"
    """The base of the `type` URI. It leads to the service's own pages or to a standard's registry."""

    refuses: bool = False
    """True if a limit of the space refused the request. Such a problem is not a fault of the service."""

    @property
    def type(self) -> str:
        """The stable `type` URI of the problem."""
        return f"{self.type_base}{self.slug}"

    def type_below(self, path: str) -> str:
        """Return the `type` URI for an answer. `path` is the prefix at which clients reach the service's pages."""
        return f"{path}{self.type}" if self.type.startswith("/") else self.type


_IANA: Final = "https://iana.org/assignments/http-problem-types#"

INVALID = Problem(
    400,
    "invalid-input",
    "Invalid request",
    "See `detail`; `errors`, if present, lists each invalid parameter.",
)
CORRUPT_UPLOAD = Problem(
    400,
    "corrupt-model",
    "Corrupt file",
    "Check the file at `offset` and `path`; nothing was stored.",
)
DIGEST = Problem(400, "digest-mismatch", "Digest mismatch", "Send the body again; the service discarded it.")
BAD_REQUEST = Problem(400, "bad-request", "Bad request", "Send a well-formed HTTP request.")
UNAUTHORIZED = Problem(
    401,
    "unauthorized",
    "Token required",
    "Send a token as `Authorization: Bearer TOKEN`, or as the password of Basic authentication.",
)
FORBIDDEN = Problem(
    403, "forbidden", "Insufficient permissions", "Use a token with the scope in `detail`, or ask the operator for it."
)
CROSS_SITE = Problem(
    403,
    "cross-site",
    "Cross-site request refused",
    "The operator can allow the page's origin in `PROTOSLICE_CORS_ORIGINS`.",
)
OFFSET = Problem(
    409,
    "mismatching-upload-offset",
    "Wrong upload offset",
    "Continue from `expected-offset`.",
    _IANA,
)
COMPLETE = Problem(
    400,
    "completed-upload",
    "Upload already complete",
    "Get its state with GET, or start a new upload.",
    _IANA,
)
LENGTH = Problem(
    400,
    "inconsistent-upload-length",
    "Inconsistent upload length",
    "Send the length of the whole upload, the same each time.",
    _IANA,
)
JOINED = Problem(
    403,
    "joined-upload",
    "Upload joined from others",
    "Start a new upload: an upload that joins others (`Upload-Concat: final`) accepts no bytes.",
)
NOT_FOUND = Problem(404, "not-found", "Not found", "Check the name, number or path.")
NO_ROOT = Problem(
    404,
    "no-root",
    "No root proto in the store",
    "See `detail`; read the store's files, or create the store again with `root` or `type`.",
)
NO_RESOURCE = Problem(404, "no-resource", "No such URL", "The API is below `/v1`: see `/docs`.")
METHOD = Problem(405, "method-not-allowed", "Method not allowed", "Use one of the methods in `Allow`.")
NOT_ACCEPTABLE = Problem(406, "not-acceptable", "Not acceptable", "Accept one of the media types in `offers`.")
TIMEOUT = Problem(408, "request-timeout", "Request too slow", "Send the request again over a better connection.")
CONFLICT = Problem(409, "conflict", "Conflict with the current state", "Read the current state and decide again.")
NAMED = Problem(
    409,
    "still-named",
    "Names still refer to the store",
    "Remove the `names` first, or repeat the request with `force=NAME` for each; if `more` is true, "
    "`names` lists only some.",
)
GONE = Problem(410, "gone", "Resource removed or expired", "Start a new upload.")
PRECONDITION = Problem(412, "precondition-failed", "Precondition failed", "Get the current `ETag` and decide again.")
LIMIT = Problem(413, "limit-exceeded", "Limit exceeded", "Ask for less, or ask the operator to raise `limit`.")
MEDIA = Problem(415, "unsupported-media-type", "Unsupported media type", "Use one of those in `offers`.")
RANGE = Problem(
    416, "range-not-satisfiable", "Range not satisfiable", "Request bytes within the length in `Content-Range`."
)
MISDIRECTED = Problem(
    421,
    "misdirected-request",
    "Unknown host name",
    "Use an address or `localhost`; the operator can allow names in `PROTOSLICE_ALLOWED_HOSTS`.",
)
UNSUPPORTED = Problem(422, "unsupported", "Not supported", "Read `detail`.")
CHUNKS = Problem(
    422,
    "inconsistent-chunks",
    "Inconsistent chunks",
    "The chunked file was written incorrectly: split it again.",
)
CORRUPT = Problem(
    422,
    "corrupt-part",
    "Malformed part",
    "The model was stored as uploaded; check it at `path` and `offset`.",
)
UNSOUND = Problem(
    422,
    "unsound-model",
    "Incomplete or damaged model",
    "Also send the files in `detail`, or upload without `strict`; nothing was stored.",
)
REQUIRED = Problem(428, "precondition-required", "Condition required", "Send `If-Match` or `If-None-Match`.")
CHECKSUM = Problem(460, "checksum-mismatch", "Checksum mismatch", "Send the bytes again from the same offset.")
SHARE = Problem(
    429,
    "client-limit",
    "Too many requests of this client",
    "Wait for `Retry-After` seconds, or finish other requests or uploads first.",
)
SPACE = Problem(
    429,
    "space-limit",
    "Too many requests in this space",
    "Wait for `Retry-After` seconds, or ask the operator to raise the quota.",
    refuses=True,
)
HEADERS = Problem(431, "header-too-large", "Request headers too large", "Send fewer or shorter headers.")
INTERNAL = Problem(500, "internal", "Internal error", "Report `request_id` to the operator.")
DAMAGED = Problem(500, "damaged-object", "Damaged object", "Report `request_id` and `object` to the operator.")
UNAVAILABLE = Problem(503, "storage-unavailable", "Storage unavailable", "Try again after `Retry-After` seconds.")
DATABASE = Problem(503, "database-unavailable", "Database unavailable", "Try again after `Retry-After` seconds.")
STORAGE = Problem(
    503, "storage-error", "Storage error", "Try again later; the operator can find the cause by `request_id`."
)
DENIED = Problem(
    503, "storage-denied", "Access to storage denied", "Ask the operator to fix the service's access to its storage."
)
SOURCE_DENIED = Problem(
    503,
    "source-denied",
    "Access to source denied",
    "The owner of the registered object has to grant the service access.",
)
BUSY = Problem(503, "too-busy", "Service busy", "Try again after `Retry-After` seconds.")
DRAINING = Problem(503, "not-ready", "Service not ready", "Try another replica, or try again later.")
FULL = Problem(507, "out-of-space", "Out of storage space", "Ask the operator to free or add space.")
QUOTA = Problem(
    403,  # clients of all protocols repeat requests after a 5xx, but not after a 403
    "quota-exceeded",
    "Quota exceeded",
    "Remove stores, or ask the operator to raise the quota in `detail`.",
    refuses=True,
)

STATUSES: Final[Mapping[int, Problem]] = {
    problem.status: problem
    for problem in (
        BAD_REQUEST,
        NO_RESOURCE,
        METHOD,
        NOT_ACCEPTABLE,
        TIMEOUT,
        CONFLICT,
        PRECONDITION,
        LIMIT,
        MEDIA,
        RANGE,
        UNSUPPORTED,
        REQUIRED,
        SHARE,
        HEADERS,
        INTERNAL,
        BUSY,
        FULL,
    )
}
"""The problems for bare statuses, which frameworks raise."""

PROBLEMS: Final = tuple(
    sorted(
        (each for each in [*globals().values()] if isinstance(each, Problem)), key=lambda each: (each.status, each.slug)
    )
)
"""All problems, sorted by status and slug."""

BY_SLUG: Final[Mapping[str, Problem]] = {each.slug: each for each in PROBLEMS}
"""The problems, keyed by slug. Errors in `protoslice.errors` name these slugs."""


class HttpProblem(HTTPException):
    """A failure in terms of HTTP: a problem, a detail about this case, and further headers and members."""

    headers: dict[str, str]

    def __init__(
        self, problem: Problem, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any
    ) -> None:
        super().__init__(problem.status, _cut(detail), dict(headers or {}))
        self.problem = problem
        self.members = members


def _cut(detail: str) -> str:
    """Remove the middle of a long message. Its start quotes the request, and its end says what to do."""
    half = _LONGEST_DETAIL // 2
    return detail if len(detail) <= _LONGEST_DETAIL else f"{detail[:half]} … {detail[-half:]}"


def no_view(view: str) -> str:
    """Return the message about a view that does not exist."""
    return f"There is no view {view[:200]!r}: use one such as chunks/0, tensors/NAME or files/PATH"


def problem_of_error(error: errors.ProtosliceError) -> HttpProblem:
    """Return the problem for an error of the library.

    A problem with a 5xx status hides the error's message, which may hold secrets. Messages about quotas and limits are
    shown, because the service itself writes these messages.
    """
    problem = BY_SLUG[error.slug]
    headers = {"retry-after": str(RETRY_AFTER_SECONDS)} if problem.status in FOR_NOW else {}
    members = {"path": error.path, "offset": error.offset, "object": getattr(error, "object", None)}
    members["limit"] = getattr(error, "limit", None)
    if isinstance(error, errors.StillNamed):
        members["names"] = [{"protocol": protocol, "name": name} for protocol, name in error.names]
        members["more"] = error.more
    known = {name: value for name, value in members.items() if value is not None}
    hidden = problem.status >= 500 and not isinstance(error, errors.QuotaExceeded) and "limit" not in known
    return HttpProblem(problem, problem.advice if hidden else error.message, headers=headers, **known)


def problem_response(failure: HttpProblem, *, request_id: str, instance: str | None = None, base: str = "") -> Response:
    """Return the problem as `application/problem+json`, which no cache may keep.

    `base` is the path prefix at which clients reach the service.
    """
    problem = failure.problem
    body = {
        "type": problem.type_below(base),
        "title": problem.title,
        "status": problem.status,
        "detail": failure.detail,
    }
    if instance is not None:
        body["instance"] = instance
    content = json.dumps(body | failure.members | {"request_id": request_id}, ensure_ascii=True, default=str)
    headers = {"cache-control": "no-store", **failure.headers}
    return Response(content, problem.status, headers, MEDIA_TYPE)
