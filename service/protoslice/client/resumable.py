"""Large files over tus 1.0: what breaks off goes on where the service says it is, and the store is made at the end."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from protoslice.client.bodies import Item
from protoslice.client.connection import Answer, Connection, path_of
from protoslice.client.digests import Hashing
from protoslice.client.download import Progress
from protoslice.errors import Conflict, IntegrityError, ProtosliceError

__all__ = ["MOST_FILES", "WORTH_RESUMING", "Uploads"]

WORTH_RESUMING: Final = 64 << 20
"""Files smaller than this are sent anew when they break off."""
MOST_FILES: Final = 1000
"""More are sent in a recipe: each would take two requests."""
_TUS: Final = {"tus-resumable": "1.0.0"}
_PROGRESS: Final = 1 << 20


class Uploads:
    """Uploads of files that are to become one store."""

    def __init__(
        self, connection: Connection, items: Sequence[Item], type: str | None, progress: Progress | None
    ) -> None:
        self._connection = connection
        self._items = items
        self._type = type
        self._progress = progress
        self._total = sum(item.size or 0 for item in items)
        self._before = 0  # bytes of the files that have been sent
        self._begun: list[str] = []

    def assemble(self, wanted: dict[str, Any]) -> Answer:
        """Send the files; the answer says the store that has been made of them as `wanted`."""
        try:
            sent = [(item.path, *self._send(item)) for item in self._items]
            named = {path: place for path, place, _ in sent}
            digests = {path: sha256 for path, _, sha256 in sent}
            said = wanted | {"uploads": named, "sha256": digests}
            return self._connection.call("POST", "/v1/stores/assemble", json=said, slow=True)
        finally:
            for place in self._begun:  # also those that a store was made of: the service keeps count of them
                with suppress(ProtosliceError):
                    self._connection.call("DELETE", place, headers=_TUS, again=False)

    def _send(self, item: Item) -> tuple[str, str]:
        """Where the upload of a file is, and the file's sha-256."""
        size = item.size or 0
        place = self._begin(item, size)
        failures = offset = 0
        with Hashing() as hashing:
            reading = _Reading(item, hashing)
            while offset < size:
                before = offset
                try:
                    offset = self._append(place, reading, offset)
                except ProtosliceError as error:
                    offset = self._patiently(place, error, failures)
                    failures = 0 if offset - before >= _PROGRESS else failures + 1
                if offset > reading.seen:
                    raise IntegrityError(f"the service has {offset} bytes of {item.path!r}, which were not sent")
            self._before += size
            return place, hashing.hexdigest()

    def _begin(self, item: Item, size: int) -> str:
        words = {"filename": item.path} | ({"type": self._type} if self._type else {})
        told = ",".join(f"{name} {base64.b64encode(word.encode()).decode()}" for name, word in words.items())
        headers = {**_TUS, "upload-length": str(size), "upload-concat": "partial", "upload-metadata": told}
        answer = self._connection.call("POST", "/v1/uploads", headers=headers)
        name = answer.headers.get("location", "").rpartition("/")[2]
        if not name:
            raise IntegrityError("the service has begun an upload and does not say where")
        place = path_of("v1", "uploads", name)
        self._begun.append(place)
        return place

    def _append(self, place: str, reading: _Reading, offset: int) -> int:
        headers = {
            **_TUS,
            "upload-offset": str(offset),
            "content-type": "application/offset+octet-stream",
            "content-length": str((reading.item.size or 0) - offset),
        }
        body = self._told(reading.pieces(offset), offset)
        answer = self._connection.call("PATCH", place, body=lambda: body, headers=headers, again=False, slow=True)
        return _offset(answer)

    def _patiently(self, place: str, error: ProtosliceError, failures: int) -> int:
        """How far the upload is, after a failure, if it is one after which it may go on."""
        moved_on = isinstance(error, Conflict)  # a request of ours that broke off was still being served
        self._connection.patience.wait(failures + 1, error, anyway=moved_on)
        return _offset(self._connection.call("HEAD", place, headers=_TUS))

    def _told(self, pieces: Iterator[bytes], offset: int) -> Iterator[bytes]:
        for piece in pieces:
            yield piece
            offset += len(piece)
            if self._progress is not None:
                self._progress(self._before + offset, self._total)


class _Reading:
    """A file that is read from anywhere, and digested once."""

    def __init__(self, item: Item, hashing: Hashing) -> None:
        self.item = item
        self.seen = 0
        """How many of its bytes have been digested."""
        self._hashing = hashing

    def pieces(self, offset: int) -> Iterator[bytes]:
        """The bytes from `offset` on."""
        for piece in self.item.read(offset, None):
            end = offset + len(piece)
            if end > self.seen:
                self._hashing.update(piece[max(0, self.seen - offset) :])
                self.seen = end
            yield piece
            offset = end


def _offset(answer: Answer) -> int:
    text = answer.headers.get("upload-offset", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise IntegrityError("the service does not say how far the upload is")
    return int(text)
