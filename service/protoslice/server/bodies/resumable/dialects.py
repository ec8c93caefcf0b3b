"""Checks of the headers of tus 1.0."""

from __future__ import annotations

from protoslice.errors import InvalidInput, UnsupportedMediaType
from protoslice.server.bodies.resumable.answers import PREFIX, VERSION
from protoslice.server.http.headers import Fields, media_type_of
from protoslice.server.problems import PRECONDITION, HttpProblem


def check_version(fields: Fields, *, required: bool = False) -> None:
    """Raise `HttpProblem` for another version of tus, and for none if it is `required`."""
    version = fields.get(b"tus-resumable")
    if version is None and required:
        raise HttpProblem(PRECONDITION, f"Send the header Tus-Resumable: {VERSION}", headers={"tus-version": VERSION})
    if version not in {None, VERSION}:
        raise HttpProblem(PRECONDITION, f"Only tus version {VERSION} is supported", headers={"tus-version": VERSION})


def check_type(fields: Fields, wanted: str) -> None:
    """Raise `UnsupportedMediaType` unless the body has the media type `wanted`."""
    if media_type_of(fields) != wanted:
        raise UnsupportedMediaType(f"Send the body of an upload as {wanted}")


def has_body(fields: Fields) -> bool:
    """True when the request has a body of at least one byte, or of unknown length."""
    return b"transfer-encoding" in fields or fields.get(b"content-length", "0").strip("0") != ""


def joined_uploads(concat: str) -> list[str]:
    """Ids of the uploads that `Upload-Concat: final` names; `InvalidInput` for another value."""
    kind, _, urls = concat.partition(";")
    found = [upload_id(url) for url in urls.split()]
    if kind.strip() != "final" or not found:
        raise InvalidInput("Invalid Upload-Concat: use `partial`, or `final;` and the URLs of partial uploads")
    return found


def upload_id(url: str) -> str:
    """The upload behind a URL, which may be absolute; an id stands for itself."""
    before, _, upload_id = url.rpartition("/")
    if before and not before.endswith(PREFIX):
        raise InvalidInput(f"{url[:200]!r} is not an upload of this service")
    return upload_id
