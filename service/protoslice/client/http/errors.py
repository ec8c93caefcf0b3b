"""Functions that turn error responses into exceptions of `protoslice.errors`."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

import httpx

from protoslice import errors
from protoslice.json_text import parse_json

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

_BY_SLUG: Final[Mapping[str, type[errors.ProtosliceError]]] = {
    slug: kind for kind in reversed(errors.WITH_SLUG) for slug in (kind.upload_slug, kind.slug)
}
"""The exception class for each problem type, by the last part of the type's URL.

If several classes share a problem type, the table has the most general class. `BY_STATUS` has the classes for other
problems.
"""

BY_STATUS: Final[Mapping[int, type[errors.ProtosliceError]]] = {
    401: errors.UnknownCaller,
    403: errors.StorageDenied,
    404: errors.NotFound,
    405: errors.Unsupported,
    406: errors.Unsupported,
    408: errors.StorageUnavailable,
    409: errors.Conflict,
    412: errors.Conflict,
    413: errors.LimitExceeded,
    415: errors.UnsupportedMediaType,
    422: errors.Unsupported,
    428: errors.Conflict,
    429: errors.StorageUnavailable,
    431: errors.LimitExceeded,
    500: errors.StorageError,
    502: errors.StorageUnavailable,
    503: errors.StorageUnavailable,
    504: errors.StorageUnavailable,
    507: errors.StorageFull,
}
"""The exception class for each HTTP status, for problem types without a class and for responses of proxies."""

MISTAKES: Final = (
    errors.InvalidInput,
    errors.NotFound,
    errors.Conflict,
    errors.LimitExceeded,
    errors.Unsupported,
    errors.CorruptModel,
)
"""The exception classes that blame the request, which may be wrong or may have been damaged on the way."""

_LONGEST_WAIT: Final = 3600.0


def is_transient(error: errors.ProtosliceError) -> bool:
    """Return True if a retry of the same request may succeed.

    A retry may succeed if the service is unavailable, or if bytes were damaged on the way. An `IntegrityError` or
    `Conflict` is temporary if the client itself found the error, which then has no request id.
    """
    if isinstance(error, errors.IntegrityError | errors.Conflict):
        return error.request_id is None
    return isinstance(error, errors.StorageUnavailable | errors.TooMany | errors.ChecksumMismatch)


def retry_once(attempt: Callable[[], T]) -> T:
    """Call `attempt` and return its result. Repeat the call once after a response that blames the request.

    The request may have been damaged on the way. Use this function only for small requests.
    """
    with suppress(*MISTAKES):
        return attempt()
    return attempt()


def error_of_answer(status: int, headers: Mapping[str, str], body: bytes) -> errors.ProtosliceError:
    """Return the exception for an unsuccessful response."""
    problem = _problem(headers, body)
    slug = re.split("[/#]", str(problem.get("type", "")))[-1]  # IANA's problem types end in `#slug`
    kind = _BY_SLUG.get(slug) or BY_STATUS.get(status)
    if kind is None:
        kind = errors.InvalidInput if 400 <= status < 500 else errors.StorageError
    said = str(problem.get("detail") or problem.get("title") or f"The service responded with status {status}")
    error = kind(said, _offset(problem.get("offset")), _text(problem.get("path")))
    error.request_id = _text(problem.get("request_id")) or headers.get("x-request-id")
    if isinstance(error, errors.StillNamed):
        error.names, error.more = tuple(_names(problem.get("names"))), problem.get("more") is True
    if isinstance(error, errors.IntegrityError):
        error.object = _text(problem.get("object"))
    error.retry_after_seconds = _wait(headers.get("retry-after"))
    return error


def error_of_transport(error: httpx.HTTPError | httpx.InvalidURL, url: str) -> errors.ProtosliceError:
    """Return the exception for a request to the service at `url` that received no complete response."""
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
        return errors.InvalidInput(f"Invalid service address: {error}")
    if isinstance(error, httpx.ConnectError) and (untrusted := _cause(error, ssl.SSLError)) is not None:
        return errors.StorageDenied(_of_tls(untrusted))
    place = httpx.URL(url).copy_with(userinfo=b"")
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        cause = _cause(error, OSError)
        reason = (
            "the service did not respond in time"
            if cause is None or isinstance(cause, TimeoutError)
            else cause.strerror or cause
        )
        return errors.StorageUnavailable(f"Cannot connect to {place}: {reason}")
    what = "stopped responding" if isinstance(error, httpx.TimeoutException) else "closed the connection"
    return errors.StorageUnavailable(f"The service at {place} {what} ({type(error).__name__})")


def _of_tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        trust = "set SSL_CERT_FILE to a file of trusted authorities"
        return f"The certificate of the service is not trusted ({error.verify_message}): {trust}"
    return f"TLS failed ({error.reason or error}): does the service use http:// instead?"


def _cause(error: BaseException | None, kind: type[E]) -> E | None:
    """Return the first exception of class `kind` in the chain of `error` and its causes, or None."""
    for _ in range(8):
        if error is None or isinstance(error, kind):
            return error
        error = error.__cause__ or next((each for each in error.args if isinstance(each, BaseException)), None)
    return None


def _problem(headers: Mapping[str, str], body: bytes) -> Mapping[str, Any]:
    if "json" not in headers.get("content-type", ""):
        return {}
    try:
        found = parse_json(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _names(value: object) -> Iterator[tuple[str, str]]:
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict) and isinstance(each.get("protocol"), str) and isinstance(each.get("name"), str):
            yield each["protocol"], each["name"]


def _offset(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _wait(value: str | None) -> float | None:
    """Return the seconds to wait according to a Retry-After field, at most one hour.

    The field contains a number of seconds or a date. Return None if the field is missing or invalid.
    """
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
