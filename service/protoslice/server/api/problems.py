"""Problems (RFC 9457). The tables here feed the answers, the OpenAPI document and `docs/problems.md`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response

from protoslice import errors
from protoslice.stores import uploads

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 5
FOR_NOW: Final = frozenset({HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS})
"""Statuses of problems that pass: their answers say when to try again."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A kind of failure: its status, the last part of its `type` URI, its title, and what to do about it."""

    status: int
    slug: str
    title: str
    advice: str

    type_base: str = "/problems/"
    """Base of the `type` URI: the pages of the service, or the registry of a standard."""

    refuses: bool = False
    """True when a limit of the space refused the request: no fault of the service, whatever the status."""

    @property
    def type(self) -> str:
        """The stable URI."""
        return f"{self.type_base}{self.slug}"


_IANA: Final = "https://iana.org/assignments/http-problem-types#"

INVALID = Problem(
    400,
    "invalid-input",
    "The request does not parse",
    "Read `detail`; `errors`, if present, lists each parameter at fault.",
)
CORRUPT_UPLOAD = Problem(
    400,
    "corrupt-model",
    "The file is corrupt",
    "Check the file at `offset` and `path`; nothing was stored.",
)
DIGEST = Problem(
    400, "digest-mismatch", "The body fails its digest", "Send the body again; nothing was done with this one."
)
BAD_REQUEST = Problem(400, "bad-request", "Bad request", "Send a well-formed HTTP request.")
UNAUTHORIZED = Problem(
    401,
    "unauthorized",
    "The service asks for a token",
    "Send one as `Authorization: Bearer TOKEN`, or as the password of Basic.",
)
FORBIDDEN = Problem(
    403, "forbidden", "The token does not allow this", "Use one with the scope that `detail` names, or have it granted."
)
CROSS_SITE = Problem(
    403,
    "cross-site",
    "A page of another site may not change anything",
    "The operator can name its origin in `PROTOSLICE_CORS_ORIGINS`.",
)
OFFSET = Problem(
    409,
    "mismatching-upload-offset",
    "The upload goes on from another offset",
    "Send on from `expected-offset`.",
    _IANA,
)
COMPLETE = Problem(
    400,
    "completed-upload",
    "The upload takes no more bytes",
    "Ask for its state with GET, or begin a new upload.",
    _IANA,
)
LENGTH = Problem(
    400,
    "inconsistent-upload-length",
    "The lengths given for the upload differ",
    "Send one length, that of the whole upload.",
    _IANA,
)
JOINED = Problem(403, "joined-upload", "A joined upload takes no bytes", "Begin a new upload.")
NOT_FOUND = Problem(404, "not-found", "No such name, number or path", "Check the name, number or path.")
NO_ROOT = Problem(
    404,
    "no-root",
    "The store has files, but no root proto",
    "`detail` says why; read its files, or make the store with `root` or `type` named.",
)
NO_RESOURCE = Problem(404, "no-resource", "There is nothing at this URL", "See `/docs` for what there is.")
METHOD = Problem(405, "method-not-allowed", "The resource does not support this method", "Use one that `Allow` lists.")
NOT_ACCEPTABLE = Problem(
    406, "not-acceptable", "No representation is acceptable", "Ask for one of the media types in `offers`."
)
TIMEOUT = Problem(408, "request-timeout", "The request came too slowly", "Send again over a better connection.")
CONFLICT = Problem(
    409, "conflict", "The request conflicts with the current state", "Read the current state and decide again."
)
NAMED = Problem(
    409,
    "still-named",
    "Names refer to the store",
    "Remove the `names` first, or repeat the request with `force=NAME` for each; `more` says that there are others.",
)
GONE = Problem(410, "gone", "The resource has been removed, or has expired", "Begin a new upload.")
PRECONDITION = Problem(
    412, "precondition-failed", "A precondition does not hold", "Fetch the current `ETag` and decide again."
)
LIMIT = Problem(413, "limit-exceeded", "More than a limit allows", "Ask for less, or have the operator raise `limit`.")
MEDIA = Problem(
    415, "unsupported-media-type", "The media type of the body is not supported", "Send one of those in `offers`."
)
RANGE = Problem(
    416, "range-not-satisfiable", "No requested range exists", "Ask within the length that `Content-Range` says."
)
MISDIRECTED = Problem(
    421,
    "misdirected-request",
    "The service does not answer to this host name",
    "Ask by address or `localhost`; the operator can add names to `PROTOSLICE_ALLOWED_HOSTS`.",
)
UNSUPPORTED = Problem(422, "unsupported", "Understood, but not possible", "Read `detail`.")
CHUNKS = Problem(
    422,
    "inconsistent-chunks",
    "The chunks do not fit together",
    "The chunked proto was written wrongly: split it again.",
)
CORRUPT = Problem(
    422,
    "corrupt-part",
    "A part of the model is malformed",
    "The model was stored as it came; check it at `path` and `offset`.",
)
UNSOUND = Problem(
    422,
    "unsound-model",
    "The model lacks files, or fails checksums of its own",
    "Send what `detail` names along with it, or without `strict`; nothing was stored.",
)
REQUIRED = Problem(
    428, "precondition-required", "The request must be conditional", "Send `If-Match` or `If-None-Match`."
)
CHECKSUM = Problem(460, "checksum-mismatch", "The bytes fail their checksum", "Send them again from the same offset.")
SHARE = Problem(
    429,
    "client-limit",
    "The client has too much under way",
    "Let some of it end, and try again after `Retry-After` seconds.",
)
SPACE = Problem(
    429,
    "space-limit",
    "The space has too much under way",
    "Let some of it end, and try again after `Retry-After` seconds, or have the operator raise its quota.",
    refuses=True,
)
HEADERS = Problem(431, "header-too-large", "The request's headers are too long", "Send fewer or shorter headers.")
INTERNAL = Problem(500, "internal", "The service failed", "Report `request_id` to the operator.")
DAMAGED = Problem(
    500, "damaged-object", "A stored object is damaged", "Report `request_id` and `object` to the operator."
)
UNAVAILABLE = Problem(503, "storage-unavailable", "Storage does not answer", "Try again after `Retry-After` seconds.")
CIRCUIT = Problem(
    503,
    "storage-circuit-open",
    "Storage has stopped answering, and is not asked",
    "Try again after `Retry-After` seconds: the service probes its storage, and asks again once that answers.",
)
DATABASE = Problem(503, "database-unavailable", "Database does not answer", "Try again after `Retry-After` seconds.")
STORAGE = Problem(
    503, "storage-error", "Storage fails", "Try again later; the operator finds the cause by `request_id`."
)
DENIED = Problem(503, "storage-denied", "Storage denies access", "The operator has to grant access.")
SOURCE_DENIED = Problem(
    503,
    "source-denied",
    "The source of a registered object denies access",
    "The owner of the object has to grant the service access; the service's own storage is not concerned.",
)
BUSY = Problem(503, "too-busy", "The service is busy", "Try again after `Retry-After` seconds.")
DRAINING = Problem(503, "not-ready", "The service is not ready", "Try another replica, or again later.")
FULL = Problem(507, "out-of-space", "There is no room left", "The operator has to make room.")
QUOTA = Problem(
    507,
    "quota-exceeded",
    "The space has used up its quota",
    "Remove stores that are not needed, or have the operator raise the quota that `detail` names.",
    refuses=True,
)

READING: Final[Mapping[type[errors.ProtosliceError], Problem]] = {
    errors.InvalidInput: INVALID,
    errors.ChecksumMismatch: CHECKSUM,
    errors.NotFound: NOT_FOUND,
    errors.Gone: GONE,
    errors.NoRoot: NO_ROOT,
    errors.Conflict: CONFLICT,
    errors.StillNamed: NAMED,
    errors.LimitExceeded: LIMIT,
    errors.TooMany: BUSY,
    errors.ClientLimit: SHARE,
    errors.SpaceLimit: SPACE,
    errors.Unsupported: UNSUPPORTED,
    errors.UnsupportedMediaType: MEDIA,
    errors.CorruptModel: CORRUPT,
    errors.InconsistentChunks: CHUNKS,
    errors.UnsoundModel: UNSOUND,
    errors.IntegrityError: DAMAGED,
    errors.StorageError: STORAGE,
    errors.StorageUnavailable: UNAVAILABLE,
    errors.CircuitOpen: CIRCUIT,
    errors.DatabaseUnavailable: DATABASE,
    errors.StorageDenied: DENIED,
    errors.UnknownCaller: UNAUTHORIZED,
    errors.SourceDenied: SOURCE_DENIED,
    errors.StorageFull: FULL,
    errors.QuotaExceeded: QUOTA,
    uploads.WrongOffset: OFFSET,
    uploads.AlreadyComplete: COMPLETE,
    uploads.InconsistentLength: LENGTH,
    uploads.JoinedUpload: JOINED,
}
"""Problems of errors while something stored is read or changed."""

UPLOADING: Final[Mapping[type[errors.ProtosliceError], Problem]] = {
    **READING,
    errors.NotFound: INVALID,
    errors.ChecksumMismatch: DIGEST,
    errors.CorruptModel: CORRUPT_UPLOAD,
}
"""Problems of errors while an upload is taken in: the bytes at fault are the client's."""

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
"""Problems of bare statuses, as frameworks raise them."""

PROBLEMS: Final = tuple(
    sorted(
        {
            *READING.values(),
            *UPLOADING.values(),
            *STATUSES.values(),
            CROSS_SITE,
            DRAINING,
            FORBIDDEN,
            MISDIRECTED,
            UNAUTHORIZED,
        },
        key=lambda p: (p.status, p.slug),
    )
)
"""Every problem there is."""


class HttpProblem(HTTPException):
    """A failure as HTTP sees it: a problem, what happened, and further headers and members."""

    headers: dict[str, str]

    def __init__(
        self, problem: Problem, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any
    ) -> None:
        super().__init__(problem.status, detail, dict(headers or {}))
        self.problem = problem
        self.members = members


def problem_of_error(error: errors.ProtosliceError, *, uploading: bool = False) -> HttpProblem:
    """Problem for an error of the library; a 5xx hides the error's message, which may hold secrets.

    Those of a quota and of a limit are ours, and are told.
    """
    table = UPLOADING if uploading else READING
    problem = next((table[kind] for kind in type(error).__mro__ if kind in table), INTERNAL)
    headers = {"retry-after": str(RETRY_AFTER_SECONDS)} if problem.status in FOR_NOW else {}
    members = {"path": error.path, "offset": error.offset, "object": getattr(error, "object", None)}
    members["limit"] = getattr(error, "limit", None)
    if isinstance(error, errors.StillNamed):
        members["names"] = [{"protocol": protocol, "name": name} for protocol, name in error.names]
        members["more"] = error.more
    known = {name: value for name, value in members.items() if value is not None}
    hidden = problem.status >= 500 and not isinstance(error, errors.QuotaExceeded) and "limit" not in known
    return HttpProblem(problem, problem.advice if hidden else error.message, headers=headers, **known)


def problem_response(failure: HttpProblem, *, request_id: str, instance: str | None = None) -> Response:
    """The answer: `application/problem+json`, never to be cached."""
    problem = failure.problem
    body = {"type": problem.type, "title": problem.title, "status": problem.status, "detail": failure.detail}
    if instance is not None:
        body["instance"] = instance
    content = json.dumps(body | failure.members | {"request_id": request_id}, ensure_ascii=True, default=str)
    headers = {"cache-control": "no-store", **failure.headers}
    return Response(content, problem.status, headers, MEDIA_TYPE)
