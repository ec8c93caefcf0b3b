"""Resumable uploads over tus 1.0, from which the service makes a store at the end."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from protoslice.client.download.files import Progress
from protoslice.client.http.connection import Connection, FailuresInRow, ServiceAnswer, url_path
from protoslice.client.http.failures import MISTAKES, is_transient, retried_if_blamed
from protoslice.client.upload.bodies import FileChanged, Item
from protoslice.client.upload.checksummed_file import ChecksummedFile
from protoslice.client.upload.journal import Journal
from protoslice.errors import Conflict, IntegrityError, LimitExceeded, ProtosliceError, TooMany

WORTH_RESUMING: Final = 64 << 20
"""Pushes of fewer bytes are sent in one request, and in parts after that broke."""
MOST_FILES: Final = 200
"""Most files with uploads of their own, each two requests and a place within the client's limit."""
FIRST_PART: Final = 8 << 20
LEAST_PART: Final = 1 << 20
MOST_PART: Final = 256 << 20
PART_SECONDS: Final = 4.0
"""Seconds that a part should take: about what an interruption or a bad checksum costs."""
_TUS: Final = {"tus-resumable": "1.0.0"}


@dataclass(slots=True)
class _Upload:
    """Upload of one file."""

    item: Item
    place: str
    offset: int = 0
    """Number of bytes at the service."""


class _Lengths:
    """Lengths of parts, adapted so that a part takes `PART_SECONDS`.

    The length of the next part is fixed while one is sent, so that its checksum can be computed meanwhile.
    """

    def __init__(self) -> None:
        self.now = self.then = FIRST_PART
        self._most = MOST_PART

    def went(self, length: int, seconds: float) -> None:
        """Adapt to a part that was accepted."""
        if length == self.now:  # the time of a shorter part says little
            enough = int(length * PART_SECONDS / max(seconds, 1e-3))
            self.now, self.then = self.then, max(LEAST_PART, min(enough, 4 * self.then, self._most))

    def failed(self, *, too_long: bool) -> None:
        """Adapt to a part that failed."""
        self.now = self.then = max(LEAST_PART, self.now // 4)
        if too_long:
            self._most = self.now


class ResumableUploads:
    """Uploads that become one store: its files, or one unnamed item that is a recipe."""

    def __init__(
        self,
        connection: Connection,
        items: Sequence[Item],
        *,
        type: str | None,
        progress: Progress | None,
        journal: Journal,
    ) -> None:
        self._connection = connection
        self._items = items
        self._type = type
        self._progress = progress
        self._journal = journal
        self._total = sum(item.size or 0 for item in items)
        self._there = 0
        """Bytes that the service has acknowledged."""
        self._lengths = _Lengths()
        self._begun: list[str] = []

    def assemble(self, wanted: dict[str, Any]) -> ServiceAnswer:
        """Send the files and return the service's response about the new store.

        After a failure that may pass, the sent bytes stay for the next push, if the journal is lasting.
        """
        try:
            answer = self._assemble(wanted)
        except BaseException as error:
            if self._journal.lasting and not _is_hopeless(error):
                if self._there:
                    error.add_note(f"push again to continue at {self._there * 100 // self._total} %")
            else:
                self._end()
            raise
        self._end()
        return answer

    def _assemble(self, wanted: dict[str, Any]) -> ServiceAnswer:
        known = self._take_up()
        places, digests = {}, {}
        for item in self._items:
            upload = known.get(item.path) or self._begin(item)
            places[item.path], digests[item.path] = upload.place, self._send(upload)
        is_recipe = "" in places
        said = wanted | ({"recipe": places[""]} if is_recipe else {"uploads": places, "sha256": digests})
        return retried_if_blamed(lambda: self._connection.call("POST", "/v1/stores/assemble", json=said, slow=True))

    def _end(self) -> None:
        """Delete the uploads and the journal."""
        # The service counts uploads, also those that a store was made of.
        for place in self._begun:
            self._drop(place)
        self._journal.remove()

    def _drop(self, place: str) -> None:
        with suppress(ProtosliceError):
            self._connection.call("DELETE", place, headers=_TUS, again=False)

    def _take_up(self) -> dict[str, _Upload]:
        """Uploads of an earlier push that can be resumed, by file."""
        items, found = {item.path: item for item in self._items}, {}
        for path, entry in self._journal.entries.items():
            item, place = items.get(path), url_path("v1", "uploads", entry.upload)
            upload = self._found(item, place) if item is not None and item.stamp == entry.stamp else None
            if upload is None:
                self._drop(place)
            else:
                found[path] = upload
                self._begun.append(place)
                self._there += upload.offset
        if self._there and self._progress is not None:
            self._progress(self._there, self._total)
        return found

    def _found(self, item: Item, place: str) -> _Upload | None:
        try:
            answer = self._connection.call("HEAD", place, headers=_TUS)
        except ProtosliceError as error:
            if is_transient(error):
                raise
            return None
        same = answer.headers.get("upload-length") == str(item.size)
        return _Upload(item, place, _offset(answer)) if same else None

    def _begin(self, item: Item) -> _Upload:
        words = {"filename": item.path, "type": self._type if item.path else None}
        told = ",".join(f"{name} {base64.b64encode(word.encode()).decode()}" for name, word in words.items() if word)
        headers = {**_TUS, "upload-length": str(item.size), "upload-concat": "partial"}
        headers |= {"upload-metadata": told} if told else {}
        answer = self._connection.call("POST", "/v1/uploads", headers=headers)
        name = answer.headers.get("location", "").rpartition("/")[2]
        if not name:
            raise IntegrityError("The service started an upload without returning its URL")
        place = url_path("v1", "uploads", name)
        self._begun.append(place)
        self._journal.note(item, name)
        return _Upload(item, place)

    def _send(self, upload: _Upload) -> str:
        """Send a file completely and return its SHA-256."""
        size, failures = upload.item.size or 0, FailuresInRow(self._connection.retries)
        with ChecksummedFile(upload.item) as sending:
            while upload.offset < size:
                end = min(size, upload.offset + self._lengths.now)
                before = upload.offset
                try:
                    self._reached(upload, self._append(upload, sending, end), end)
                    failures.progressed()
                except ProtosliceError as error:
                    self._lengths.failed(too_long=_is_too_long(error))
                    anyway = isinstance(error, Conflict) or _is_too_long(error)  # or: a request of ours is still served
                    if not failures.wait(error, anyway=anyway):
                        raise
                    self._reached(upload, _offset(self._connection.call("HEAD", upload.place, headers=_TUS)), end)
                    if upload.offset > before:
                        failures.progressed()
            sending.expect(size, size)
            return sending.hexdigest()

    def _append(self, upload: _Upload, sending: ChecksummedFile, end: int) -> int:
        offset, began = upload.offset, time.monotonic()
        sending.expect(offset, end)
        sending.expect(end, min(upload.item.size or 0, end + self._lengths.then))
        headers = {
            **_TUS,
            "upload-offset": str(offset),
            "upload-checksum": f"crc32c {sending.checksum(offset, end)}",
            "content-type": "application/offset+octet-stream",
            "content-length": str(end - offset),
        }
        body = self._told(sending.pieces(offset, end))
        answer = self._connection.call(
            "PATCH", upload.place, body=lambda: body, headers=headers, again=False, slow=True
        )
        self._lengths.went(end - offset, time.monotonic() - began)
        return _offset(answer)

    def _reached(self, upload: _Upload, offset: int, sent: int) -> None:
        if offset > sent:
            raise IntegrityError(f"The service reports {offset} bytes of {upload.item.path!r}, more than were sent")
        self._there += offset - upload.offset
        upload.offset = offset

    def _told(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        there = self._there
        for piece in pieces:
            yield piece
            there += len(piece)
            if self._progress is not None:
                self._progress(there, self._total)


def _is_too_long(error: ProtosliceError) -> bool:
    """True when something on the way refuses bodies of that length."""
    return isinstance(error, LimitExceeded) and not isinstance(error, TooMany)


def _is_hopeless(error: BaseException) -> bool:
    """True when the same push would fail again, so that nothing needs to stay for it."""
    return isinstance(error, FileChanged) or (isinstance(error, MISTAKES) and not is_transient(error))


def _offset(answer: ServiceAnswer) -> int:
    text = answer.headers.get("upload-offset", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise IntegrityError("The service does not report the upload's progress")
    return int(text)
