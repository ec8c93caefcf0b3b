"""Resumable uploads with tus 1.0. At the end, the service creates a store from the uploads."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from protoslice.client.download.files import Progress
from protoslice.client.http.connection import Body, Connection, FailuresInRow, ServiceAnswer, url_path
from protoslice.client.http.digests import BackgroundHash
from protoslice.client.http.errors import MISTAKES, is_transient, retry_once
from protoslice.client.upload.bodies import FileChanged, UploadFile
from protoslice.client.upload.journal import Journal
from protoslice.errors import ChecksumMismatch, Conflict, IntegrityError, LimitExceeded, ProtosliceError, TooMany

RESUME_MIN_BYTES: Final = 64 << 20
"""Size in bytes from which a push is sent in parts. A smaller push is sent in parts only after it failed as a whole."""
MOST_FILES: Final = 200
"""Maximum number of files that are uploaded separately.

Each upload takes two requests, and counts towards the service's limit of open uploads.
"""
MOST_PART: Final = 1 << 30
"""Maximum number of bytes in a part. If the connection breaks, the service keeps the bytes that have arrived."""
CHECKED_PART: Final = 8 << 20
"""Maximum number of bytes in a part that is sent with a digest. The client holds the whole part in memory."""
LEAST_PART: Final = 1 << 20
_TUS: Final = {"tus-resumable": "1.0.0"}


@dataclass(slots=True)
class _Upload:
    """The upload of one file."""

    item: UploadFile
    place: str
    """Path of the upload's URL."""
    offset: int = 0
    """Number of bytes that the service has received."""


class _FileReader:
    """A reader that returns the bytes of a file to send, and hashes each byte once in a thread.

    The digest covers the whole local file, including the bytes that an earlier process sent.
    """

    def __init__(self, item: UploadFile, hashing: BackgroundHash) -> None:
        self._item = item
        self._hashing = hashing
        self._hashed = 0

    def between(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from `start` up to `end`, in pieces."""
        self.skip(start)
        at = start
        for piece in self._item.read(start, end - start):
            at += len(piece)
            if at > self._hashed:
                self._hash(piece[self._hashed - at :])
            yield piece

    def skip(self, end: int) -> None:
        """Hash the bytes up to `end` without sending them."""
        if self._hashed < end:
            for piece in self._item.read(self._hashed, end - self._hashed):
                self._hash(piece)

    def _hash(self, piece: bytes) -> None:
        self._hashing.update((piece,))
        self._hashed += len(piece)


class ResumableUploads:
    """The uploads that become one store: either the store's files, or one recipe, whose path is empty."""

    def __init__(
        self,
        connection: Connection,
        items: Sequence[UploadFile],
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
        """Number of bytes that the service has acknowledged."""
        self._longest = self._most = MOST_PART
        self._checked = False
        """True if each part is sent with its digest."""
        self._begun: list[str] = []

    def assemble(self, wanted: dict[str, Any]) -> ServiceAnswer:
        """Send the files, and return the service's response about the new store.

        After a temporary failure, a lasting journal and the uploads are kept, so that the next push can continue.
        """
        try:
            answer = self._assemble(wanted)
        except BaseException as error:
            if self._journal.lasting and not _is_hopeless(error):
                if self._begun:
                    error.add_note("push again to continue")
            else:
                self._end()
            raise
        self._end()
        return answer

    def _assemble(self, wanted: dict[str, Any]) -> ServiceAnswer:
        known = self._take_up()
        try:
            return self._store_of(known, wanted)
        except ChecksumMismatch:
            # Bytes were damaged on the way, or an earlier push sent different bytes.
            self._start_over()
        return self._store_of({}, wanted)

    def _store_of(self, known: Mapping[str, _Upload], wanted: dict[str, Any]) -> ServiceAnswer:
        places, digests = {}, {}
        for item in self._items:
            upload = known.get(item.path) or self._begin(item)
            places[item.path], digests[item.path] = upload.place, self._send(upload)
        is_recipe = "" in places
        said = wanted | ({"recipe": places[""]} if is_recipe else {"uploads": places, "sha256": digests})

        def attempt() -> ServiceAnswer | ChecksumMismatch:
            try:
                return self._connection.call("POST", "/v1/stores/assemble", json=said, again=False, slow=True)
            except ChecksumMismatch as error:  # returned, not raised, because retries cannot correct an uploaded file
                return error

        answer = retry_once(lambda: self._connection.retries.run(attempt))
        if isinstance(answer, ChecksumMismatch):
            answer = attempt()
        if isinstance(answer, ChecksumMismatch):
            raise answer
        return answer

    def _start_over(self) -> None:
        """Delete the uploads, and from now on send parts with digests. Then only damaged parts are sent again."""
        while self._begun:
            self._drop(self._begun.pop())
        self._checked, self._there = True, 0
        self._longest = self._most = min(self._most, CHECKED_PART)

    def _end(self) -> None:
        """Delete the uploads and the journal."""
        # The service limits the number of uploads, and also counts uploads that have become a store.
        for place in self._begun:
            self._drop(place)
        self._journal.remove()

    def _drop(self, place: str) -> None:
        with suppress(ProtosliceError):
            self._connection.call("DELETE", place, headers=_TUS, again=False)

    def _take_up(self) -> dict[str, _Upload]:
        """Return those uploads of an earlier push that can be resumed, by path in the store. Delete the others."""
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

    def _found(self, item: UploadFile, place: str) -> _Upload | None:
        try:
            answer = self._connection.call("HEAD", place, headers=_TUS)
        except ProtosliceError as error:
            if is_transient(error):
                raise
            return None
        same = answer.headers.get("upload-length") == str(item.size)
        return _Upload(item, place, _offset(answer)) if same else None

    def _begin(self, item: UploadFile) -> _Upload:
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
        """Send the rest of a file, and return the SHA-256 of the whole file."""
        size, failures = upload.item.size or 0, FailuresInRow(self._connection.retries)
        with BackgroundHash() as hashing:
            reader = _FileReader(upload.item, hashing)
            while upload.offset < size:
                end, before = min(size, upload.offset + self._longest), upload.offset
                self._reached(upload, self._append(upload, reader, end, failures), end)
                if upload.offset > before:
                    failures.progressed()
            reader.skip(size)
            return hashing.hexdigest()

    def _append(self, upload: _Upload, reader: _FileReader, end: int, failures: FailuresInRow) -> int:
        """Send a part up to `end`, and return the offset that the upload has reached.

        After a failure, the next parts are shorter.
        """
        offset = upload.offset
        headers = {
            **_TUS,
            "upload-offset": str(offset),
            "content-type": "application/offset+octet-stream",
            "content-length": str(end - offset),
        }
        pieces = self._counted(reader.between(offset, end))
        body: Body = b"".join(pieces) if self._checked else lambda: pieces
        try:
            answer = self._connection.call("PATCH", upload.place, body=body, headers=headers, again=False, slow=True)
            self._longest = min(2 * self._longest, self._most)
        except ProtosliceError as error:
            too_long = isinstance(error, LimitExceeded) and not isinstance(error, TooMany)
            # The limit of a service or proxy may be a thousandth of the part's length, so reduce the length quickly.
            self._longest = max(LEAST_PART, min(self._longest, end - offset) // (8 if too_long else 2))
            self._most = self._longest if too_long else self._most
            # A conflict may be temporary, because the service may still process an earlier request of this upload.
            if not failures.wait(error, anyway=too_long or isinstance(error, Conflict)):
                raise
            answer = self._connection.call("HEAD", upload.place, headers=_TUS)
        return _offset(answer)

    def _reached(self, upload: _Upload, offset: int, sent: int) -> None:
        if offset > sent:
            raise IntegrityError(f"The service reports {offset} bytes of {upload.item.path!r}, more than were sent")
        self._there += offset - upload.offset
        upload.offset = offset

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        there = self._there
        for piece in pieces:
            yield piece
            there += len(piece)
            if self._progress is not None:
                self._progress(there, self._total)


def _is_hopeless(error: BaseException) -> bool:
    """Return True if the same push would fail again, so that its uploads need not be kept."""
    return isinstance(error, FileChanged) or (isinstance(error, MISTAKES) and not is_transient(error))


def _offset(answer: ServiceAnswer) -> int:
    text = answer.headers.get("upload-offset", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise IntegrityError("The service does not report the upload's progress")
    return int(text)
