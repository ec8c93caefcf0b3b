"""Answers that the routes share: locations, the bytes of a blob, positions in an upload."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response
from starlette.types import Scope

from protoslice.artifacts import Digest, RepositoryName
from protoslice.server.auth.places import absolute_url
from protoslice.server.http.headers import Fields
from protoslice.server.problems import BAD_REQUEST, RANGE, HttpProblem

_CONTENT_RANGE: Final = re.compile(r"(\d{1,19})-(\d{1,19})")
_BACKWARD: Final = re.compile(r"bytes=(\d{1,19})-(\d{1,19})")


def begun(scope: Scope, name: RepositoryName, upload: str, size: int, *, status: int) -> Response:
    """Answer that an upload has `size` bytes by now."""
    location = absolute_url(scope, f"/v2/{name.text}/blobs/uploads/{upload}")
    headers = {"location": location, "range": f"0-{max(0, size - 1)}", "docker-upload-uuid": upload}
    return Response(status_code=status, headers={**headers, "cache-control": "no-store"})


def made(location: str, digest: Digest, headers: Mapping[str, str] | None = None) -> Response:
    """Answer that a blob or a manifest is there."""
    told = {"location": location, "docker-content-digest": digest.text, **(headers or {})}
    return Response(status_code=201, headers=told)


def blob_headers(location: str, digest: Digest, size: int) -> dict[str, str]:
    """Headers of a blob, for HEAD."""
    return {
        "location": location,
        "docker-content-digest": digest.text,
        "content-length": str(size),
        "content-type": "application/octet-stream",
        "accept-ranges": "bytes",
        "etag": f'"{digest.text}"',
    }


def check_place(fields: Fields, offset: int) -> None:
    """Raise 416 unless Content-Range, if given, goes on from `offset` and has the length of the body."""
    said = fields.get(b"content-range")
    if said is None:
        return
    found = _CONTENT_RANGE.fullmatch(said.strip().removeprefix("bytes ").partition("/")[0])
    if found is None:
        raise HttpProblem(BAD_REQUEST, "Invalid Content-Range: use <first byte>-<last byte>")
    first, last = int(found[1]), int(found[2])
    length = fields.get(b"content-length")
    if first != offset or last < first or (length is not None and int(length) != last - first + 1):
        headers = {"range": f"0-{max(0, offset - 1)}"}
        raise HttpProblem(
            RANGE,
            f"The range does not match the upload: it must start at byte {offset} and match the body's length",
            headers=headers,
        )


def refuse_backward(fields: Fields, size: int) -> None:
    """Raise 416 for a range that ends before it begins, which HTTP ignores and this API refuses."""
    found = _BACKWARD.fullmatch(fields.get(b"range", ""))
    if found is not None and int(found[2]) < int(found[1]):
        headers = {"content-range": f"bytes */{size}"}
        raise HttpProblem(RANGE, "The range ends before it starts", headers=headers)
