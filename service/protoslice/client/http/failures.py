"""Answers without success as exceptions: the same that the local library raises."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

import httpx

from protoslice import errors

__all__ = ["MISTAKES", "believed", "error_of_answer", "error_of_transport", "may_pass"]

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

BY_PROBLEM: Final[Mapping[str, type[errors.ProtosliceError]]] = {
    "invalid-input": errors.InvalidInput,
    "corrupt-model": errors.CorruptModel,
    "bad-request": errors.InvalidInput,
    "digest-mismatch": errors.ChecksumMismatch,
    "not-found": errors.NotFound,
    "no-resource": errors.NotFound,
    "no-root": errors.NoRoot,
    "gone": errors.Gone,
    "conflict": errors.Conflict,
    "cross-site": errors.StorageDenied,
    "joined-upload": errors.Conflict,
    "mismatching-upload-offset": errors.Conflict,
    "completed-upload": errors.InvalidInput,
    "inconsistent-upload-length": errors.InvalidInput,
    "misdirected-request": errors.InvalidInput,
    "checksum-mismatch": errors.ChecksumMismatch,
    "precondition-failed": errors.Conflict,
    "precondition-required": errors.Conflict,
    "limit-exceeded": errors.LimitExceeded,
    "header-too-large": errors.LimitExceeded,
    "unsupported-media-type": errors.UnsupportedMediaType,
    "range-not-satisfiable": errors.InvalidInput,
    "method-not-allowed": errors.Unsupported,
    "not-acceptable": errors.Unsupported,
    "unsupported": errors.Unsupported,
    "inconsistent-chunks": errors.InconsistentChunks,
    "unsound-model": errors.UnsoundModel,
    "corrupt-part": errors.CorruptModel,
    "request-timeout": errors.StorageUnavailable,
    "internal": errors.StorageError,
    "damaged-object": errors.IntegrityError,
    "storage-unavailable": errors.StorageUnavailable,
    "storage-error": errors.StorageError,
    "storage-denied": errors.StorageDenied,
    "too-busy": errors.TooMany,
    "client-limit": errors.ClientLimit,
    "not-ready": errors.StorageUnavailable,
    "out-of-space": errors.StorageFull,
}
"""What each problem of `docs/problems.md` is, by the last part of its type."""

BY_STATUS: Final[Mapping[int, type[errors.ProtosliceError]]] = {
    401: errors.StorageDenied,
    403: errors.StorageDenied,
    404: errors.NotFound,
    408: errors.StorageUnavailable,
    409: errors.Conflict,
    412: errors.Conflict,
    413: errors.LimitExceeded,
    415: errors.UnsupportedMediaType,
    422: errors.Unsupported,
    429: errors.StorageUnavailable,
    500: errors.StorageError,
    502: errors.StorageUnavailable,
    503: errors.StorageUnavailable,
    504: errors.StorageUnavailable,
    507: errors.StorageFull,
}
"""What a status means when something between answers, which knows no problems of ours."""

MISTAKES: Final = (
    errors.InvalidInput,
    errors.NotFound,
    errors.Conflict,
    errors.LimitExceeded,
    errors.Unsupported,
    errors.CorruptModel,
)
"""What a service answers to a request that is wrong, or that was garbled on its way."""

_LONGEST_WAIT: Final = 3600.0


def may_pass(error: errors.ProtosliceError) -> bool:
    """Whether the same request may succeed when it is sent again.

    The service is away for now, or what came was not what the service sent: that we found ourselves, so no answer bears
    the id of a request.
    """
    if isinstance(error, errors.IntegrityError | errors.Conflict):
        return error.request_id is None
    return isinstance(error, errors.StorageUnavailable | errors.TooMany | errors.ChecksumMismatch)


def believed(attempt: Callable[[], T]) -> T:
    """What `attempt` gives. That the service got something wrong is believed when it says so twice.

    It may have been a bit that flipped on the way, so this is for what is small.
    """
    with suppress(*MISTAKES):
        return attempt()
    return attempt()


def error_of_answer(status: int, headers: Mapping[str, str], body: bytes) -> errors.ProtosliceError:
    """The exception that an answer which is no success stands for."""
    problem = _problem(headers, body)
    slug = str(problem.get("type", "")).rpartition("/")[2]
    kind = BY_PROBLEM.get(slug) or BY_STATUS.get(status)
    if kind is None:
        kind = errors.InvalidInput if 400 <= status < 500 else errors.StorageError
    said = str(problem.get("detail") or problem.get("title") or f"the service answered {status}")
    error = kind(said, _offset(problem.get("offset")), _text(problem.get("path")))
    error.request_id = _text(problem.get("request_id")) or headers.get("x-request-id")
    if isinstance(error, errors.IntegrityError):
        error.object = _text(problem.get("object"))
    error.retry_after_seconds = _wait(headers.get("retry-after"))
    return error


def error_of_transport(error: httpx.HTTPError | httpx.InvalidURL) -> errors.ProtosliceError:
    """The exception for a request that got no answer, or none that could be read to its end."""
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
        return errors.InvalidInput(f"the address of the service cannot be used: {error}")
    if isinstance(error, httpx.ConnectError) and (untrusted := _cause(error, ssl.SSLError)) is not None:
        return errors.StorageDenied(_of_tls(untrusted))
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return errors.StorageUnavailable("the service cannot be reached")
    what = "fell silent" if isinstance(error, httpx.TimeoutException) else "broke off"
    return errors.StorageUnavailable(f"the service {what} ({type(error).__name__})")


def _of_tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        trust = "SSL_CERT_FILE names a file of authorities to trust"
        return f"the certificate of the service is not trusted ({error.verify_message}): {trust}"
    return f"no TLS with the service ({error.reason or error}): does it want http://?"


def _cause(error: BaseException | None, kind: type[E]) -> E | None:
    """What is behind an error, of some kind."""
    for _ in range(8):
        if error is None or isinstance(error, kind):
            return error
        error = error.__cause__ or next((each for each in error.args if isinstance(each, BaseException)), None)
    return None


def _problem(headers: Mapping[str, str], body: bytes) -> Mapping[str, Any]:
    if "json" not in headers.get("content-type", ""):
        return {}
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _offset(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _wait(value: str | None) -> float | None:
    """The seconds that Retry-After asks for: a number of them, or a date."""
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        return min(_LONGEST_WAIT, float(value[:9]))
    try:
        then = parsedate_to_datetime(value)
    except ValueError:
        return None
    seconds = (then.replace(tzinfo=then.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return min(_LONGEST_WAIT, max(0.0, seconds))
