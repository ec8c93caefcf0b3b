"""tus 1.0: headers of requests and answers, checksums, and the problems of resumable uploads."""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Callable
from email.utils import format_datetime
from typing import Final

from starlette.responses import Response
from starlette.types import Scope

from protoslice import _core
from protoslice.errors import Conflict, InvalidInput, UnsupportedMediaType, WrongOffset
from protoslice.server.auth.spaces import url_of
from protoslice.server.bodies.new_store import NewStore
from protoslice.server.bodies.raw import file_path
from protoslice.server.http.digests import parse_digest
from protoslice.server.http.headers import HeaderMap, media_type_of, upload_metadata
from protoslice.server.problems import PRECONDITION, HttpProblem
from protoslice.server.request.failures import render_problem
from protoslice.server.settings import Settings
from protoslice.uploads import Checksum, Hash, NewUpload, Upload

PREFIX: Final = "/v1/uploads"
BODY_TYPE: Final = "application/offset+octet-stream"
VERSION: Final = "1.0.0"
_EXTENSIONS: Final = (
    "creation",
    "creation-with-upload",
    "creation-defer-length",
    "expiration",
    "checksum",
    "termination",
    "concatenation",
)
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


class _Crc32c:
    """CRC-32C with a digest of four bytes, most significant byte first."""

    def __init__(self) -> None:
        self._crc = 0

    def update(self, piece: bytes | memoryview, /) -> None:
        self._crc = _core.crc32c(piece, self._crc)

    def digest(self) -> bytes:
        return self._crc.to_bytes(4, "big")


# tus requires SHA-1 of every server. Here it only detects errors and gives no security.
_CHECKSUMS: Final[dict[str, Callable[[], Hash]]] = {
    "sha256": hashlib.sha256,
    "crc32c": _Crc32c,
    "sha1": lambda: hashlib.sha1(usedforsecurity=False),
}


def tus_options(settings: Settings) -> dict[str, str]:
    """Return the headers of the answer to OPTIONS: version, extensions and limits."""
    return {
        "tus-resumable": VERSION,
        "tus-version": VERSION,
        "tus-extension": ",".join(_EXTENSIONS),
        "tus-max-size": str(settings.max_upload_bytes),
        "tus-checksum-algorithm": ",".join(_CHECKSUMS),
        "accept-patch": BODY_TYPE,
        "cache-control": "no-store",
    }


def upload_headers(upload: Upload, scope: Scope) -> dict[str, str]:
    """Return the headers that describe an upload. URLs in these headers are in the space of the request."""
    root = url_of(scope, PREFIX)
    found = {
        "tus-resumable": VERSION,
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


def render_tus(scope: Scope, error: Exception, failure: HttpProblem) -> Response:
    """Return the response to a failed request for an upload, with the headers that tus requires."""
    if isinstance(error, WrongOffset):
        failure.members |= {"expected-offset": error.expected, "provided-offset": error.provided}
        failure.headers["upload-offset"] = str(error.expected)
    elif isinstance(error, Conflict):
        failure.headers["connection"] = "close"  # because the rest of the body is not read
    failure.headers["tus-resumable"] = VERSION
    return render_problem(scope, error, failure)


def check_version(fields: HeaderMap, *, required: bool = False) -> None:
    """Raise `HttpProblem` if the request names another version of tus, or no version although one is `required`."""
    version = fields.get(b"tus-resumable")
    if version is None and required:
        raise HttpProblem(PRECONDITION, f"Send the header Tus-Resumable: {VERSION}", headers={"tus-version": VERSION})
    if version not in {None, VERSION}:
        raise HttpProblem(PRECONDITION, f"Only tus version {VERSION} is supported", headers={"tus-version": VERSION})


def check_type(fields: HeaderMap) -> None:
    """Raise `UnsupportedMediaType` unless the body has the media type of tus."""
    if media_type_of(fields) != BODY_TYPE:
        raise UnsupportedMediaType(f"Send the body of an upload as {BODY_TYPE}")


def has_body(fields: HeaderMap) -> bool:
    """Return True if the request has a body of at least one byte or of unknown length."""
    return b"transfer-encoding" in fields or fields.get(b"content-length", "0").strip("0") != ""


def number(fields: HeaderMap, name: str) -> int | None:
    """Return the number of bytes in a header.

    Return None without the header. Raise `InvalidInput` for anything but digits.
    """
    text = fields.get(name.encode())
    if text is None:
        return None
    if not _NUMBER.fullmatch(text):
        raise InvalidInput(f"Invalid {name} {text[:40]!r}: use a number of bytes")
    return int(text)


def checksum_of(fields: HeaderMap) -> Checksum | None:
    """Return the checksum of the body in Upload-Checksum or Content-Digest. Return None if both are missing."""
    given = fields.get(b"upload-checksum")
    if given is None:
        digest = parse_digest(fields.get(b"content-digest"))
        return None if digest is None else Checksum(hashlib.sha256(), digest)
    name, _, value = given.strip().partition(" ")
    if name not in _CHECKSUMS:
        raise InvalidInput(f"Unsupported checksum {name[:40]!r}: use one of {', '.join(_CHECKSUMS)}")
    algorithm = _CHECKSUMS[name]()
    try:
        digest = b64decode(value, validate=True)
    except (BadBase64, ValueError):
        digest = b""
    if len(digest) != len(algorithm.digest()):
        raise InvalidInput(f"Invalid Upload-Checksum: use {name} <the digest in base64>")
    return Checksum(algorithm, digest)


def joined_uploads(concat: str) -> list[str]:
    """Return the ids of uploads in `Upload-Concat: final;…`. Raise `InvalidInput` for any other value."""
    kind, _, urls = concat.partition(";")
    found = [upload_id(url) for url in urls.split()]
    if kind.strip() != "final" or not found:
        raise InvalidInput("Invalid Upload-Concat: use `partial`, or `final;` and the URLs of partial uploads")
    return found


def upload_id(url: str) -> str:
    """Return the id in the URL of an upload. The URL may be absolute, or consist of the id only."""
    before, _, upload_id = url.rpartition("/")
    if before and not before.endswith(PREFIX):
        raise InvalidInput(f"{url[:200]!r} is not an upload of this service")
    return upload_id


def new_upload(fields: HeaderMap, filename: str | None, options: NewStore) -> NewUpload:
    """Parse the request that creates an upload. Upload-Metadata takes precedence over `filename` and `options`."""
    client_metadata = fields.get(b"upload-metadata", "")
    words = upload_metadata(client_metadata)
    length, deferred = number(fields, "upload-length"), fields.get(b"upload-defer-length")
    concat = fields.get(b"upload-concat", "")
    if deferred not in {None, "1"}:
        raise InvalidInput("Upload-Defer-Length must be 1")
    if concat.startswith("final"):
        if length is not None or deferred is not None:
            raise InvalidInput(
                "The length of a final upload is that of its partial uploads: leave out Upload-Length and "
                "Upload-Defer-Length"
            )
    elif (length is None) == (deferred is None):
        raise InvalidInput("Send either Upload-Length or Upload-Defer-Length: 1")
    name = words.get("filename") or words.get("name") or filename
    return NewUpload(
        length=length,
        path=file_path(name) if name else None,
        request=options.with_words(words).request(),
        partial=concat == "partial",
        sha256=parse_digest(fields.get(b"repr-digest")),
        client_metadata=client_metadata,
    )
