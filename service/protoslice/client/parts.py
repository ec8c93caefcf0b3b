"""A reader of `multipart/mixed` responses, which hold several views of a store, one view in each part."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from protoslice.client.http.digests import digest_in
from protoslice.errors import IntegrityError

_LONGEST_HEAD: Final = 1 << 17
"""Maximum number of bytes in a part's headers, which contain the path of a view. The path alone may have 64 KiB."""


@dataclass(slots=True)
class StorePart:
    """One part of a response. The caller has to read the bytes of a part before the next part is requested."""

    view: str
    """The view that the caller requested."""
    headers: Mapping[str, str]
    """Headers by lower-case name."""
    size: int
    """Number of bytes of the part."""
    pieces: Iterator[bytes] = field(repr=False)
    """The bytes, in pieces. The iterator raises `IntegrityError` at its end if the bytes do not match the digest."""

    def read(self) -> bytes:
        """Return all bytes of the part."""
        return b"".join(self.pieces)


class PartReader:
    """A reader of the parts in a response body."""

    def __init__(self, content_type: str, body: Iterator[bytes]) -> None:
        media, _, boundary = content_type.partition("; boundary=")
        if media != "multipart/mixed" or not boundary:
            raise IntegrityError(f"The service returned {content_type[:100]!r} instead of multipart/mixed")
        self._line = b"--" + boundary.strip('"').encode()
        self._body = body
        self._held = b""

    def parts(self, views: list[str]) -> Iterator[StorePart]:
        """Yield one part for each of `views`; raise `IntegrityError` if the response has more or fewer."""
        for number, view in enumerate(views):
            headers = self._head(b"\r\n" * bool(number))
            size = headers.get("content-length", "")
            if not size.isascii() or not size.isdigit():
                raise IntegrityError("The service returned a part without a length")
            part = StorePart(view, headers, int(size), self._content(int(size), headers))
            yield part
            for _ in part.pieces:  # skip bytes that the caller did not read
                pass
        if self._take(len(self._line) + 6) != b"\r\n" + self._line + b"--\r\n":
            raise IntegrityError("The service returned more parts than were asked for")

    def _head(self, before: bytes) -> dict[str, str]:
        if self._take(len(before) + len(self._line) + 2) != before + self._line + b"\r\n":
            raise IntegrityError("The service returned fewer parts than were asked for")
        while (end := self._held.find(b"\r\n\r\n")) < 0:
            if len(self._held) > _LONGEST_HEAD or not self._more():
                raise IntegrityError("The service returned a part with malformed headers")
        lines = self._take(end + 4).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        return {name.strip().lower(): value.strip() for name, _, value in pairs}

    def _content(self, size: int, headers: Mapping[str, str]) -> Iterator[bytes]:
        """Yield exactly `size` bytes. If these are the whole view, check its digest after the last byte."""
        digest, left = hashlib.sha256(), size
        while left:
            if not self._held and not self._more():
                raise IntegrityError("The response ended within a part")
            piece, self._held = self._held[:left], self._held[left:]
            digest.update(piece)
            left -= len(piece)
            yield piece
        stated = None if "content-range" in headers else digest_in(headers.get("repr-digest"))
        if stated is not None and stated != digest.digest():
            raise IntegrityError("A part of the response does not match its digest: try again")

    def _take(self, size: int) -> bytes:
        while len(self._held) < size:
            if not self._more():
                raise IntegrityError("The response ended before its last part")
        found, self._held = self._held[:size], self._held[size:]
        return found

    def _more(self) -> bool:
        """Read the next piece of the body, and return False at the end of the body."""
        piece = next(self._body, b"")
        self._held += piece
        return bool(piece)
