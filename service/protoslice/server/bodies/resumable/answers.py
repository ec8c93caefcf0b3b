"""Answers about uploads, and the problems of failed requests."""

from __future__ import annotations

from collections.abc import Awaitable
from email.utils import format_datetime
from typing import Final, TypeVar

from starlette.types import Scope, Send

from protoslice.errors import Conflict, ProtosliceError, WrongOffset
from protoslice.server.auth.places import url_of
from protoslice.server.bodies.resumable.checksums import ALGORITHMS
from protoslice.server.http.failures import failing_as
from protoslice.server.http.headers import with_headers
from protoslice.server.problems import HttpProblem, problem_of_error
from protoslice.server.settings import Settings
from protoslice.stores.uploads import Upload

T = TypeVar("T")

PREFIX: Final = "/v1/uploads"
VERSION: Final = "1.0.0"
EXTENSIONS: Final = (
    "creation",
    "creation-with-upload",
    "creation-defer-length",
    "expiration",
    "checksum",
    "termination",
    "concatenation",
)


def abilities(settings: Settings) -> dict[str, str]:
    """Headers with the abilities and limits of the service."""
    return {
        "tus-version": VERSION,
        "tus-extension": ",".join(EXTENSIONS),
        "tus-max-size": str(settings.max_upload_bytes),
        "tus-checksum-algorithm": ",".join(ALGORITHMS),
        "accept-patch": "application/offset+octet-stream",
        "cache-control": "no-store",
    }


def about(upload: Upload, scope: Scope) -> dict[str, str]:
    """Everything the headers say of an upload; URLs are in the space of the request."""
    root = url_of(scope, PREFIX)
    found = {
        "cache-control": "no-store",
        "upload-offset": str(upload.offset),
        "upload-expires": format_datetime(upload.expires, usegmt=True),
    }
    if upload.length is None:
        found["upload-defer-length"] = "1"
    else:
        found["upload-length"] = str(upload.length)
    if upload.client_metadata:
        found["upload-metadata"] = upload.client_metadata
    if upload.partial:
        found["upload-concat"] = "partial"
    elif upload.joined:
        found["upload-concat"] = "final;" + " ".join(f"{root}/{part}" for part in upload.joined)
    if upload.store is not None:
        found |= {
            "protoslice-store": upload.store,
            "link": f'<{url_of(scope, f"/v1/stores/{upload.store}")}>; rel="related"',
        }
    return found


def failure_of(error: ProtosliceError, *, uploading: bool = False) -> HttpProblem:
    """Problem of a failed request for an upload, with the headers of tus."""
    failure = problem_of_error(error, uploading=uploading)
    if isinstance(error, WrongOffset):
        failure.members |= {"expected-offset": error.expected, "provided-offset": error.provided}
        failure.headers["upload-offset"] = str(error.expected)
    elif isinstance(error, Conflict):
        failure.headers["connection"] = "close"  # a client that still sends is no longer read
    return failure


def speaking_tus(send: Send) -> Send:
    """`send`, with every answer saying that it is one of tus 1.0."""
    return with_headers(send, [(b"tus-resumable", VERSION.encode())])


answering = failing_as(failure_of)
"""Decorator of handlers whose failures have the headers of tus."""


async def joining(work: Awaitable[T]) -> T:
    """Result of `work`; its errors are about names in the body or a header, not about the request's URL."""
    try:
        return await work
    except ProtosliceError as error:
        raise failure_of(error, uploading=True) from error
