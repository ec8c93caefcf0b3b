"""Resumable uploads over tus 1.0, from which the service makes a store at the end."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final

from protoslice import _core
from protoslice.client.download.files import Progress
from protoslice.client.http.connection import Connection, FailuresInRow, ServiceAnswer, url_path
from protoslice.client.http.errors import MISTAKES, is_transient, retry_once
from protoslice.client.threads import DaemonPool
from protoslice.client.upload.bodies import FileChanged, UploadFile
from protoslice.client.upload.journal import Journal
from protoslice.errors import Conflict, IntegrityError, LimitExceeded, ProtosliceError, TooMany

RESUME_MIN_BYTES: Final = 64 << 20
"""Pushes of fewer bytes are sent in one request, and in parts after that broke."""
MOST_FILES: Final = 200
"""Most files with uploads of their own, each two requests and a place within the client's limit."""
FIRST_PART: Final = 8 << 20
"""Bytes of the first part of a file; each further one has twice as many."""
LEAST_PART: Final = 1 << 20
MOST_PART: Final = 64 << 20
"""Bytes of the longest part; two of them are in memory, one that is sent and one that is read ahead."""
_TUS: Final = {"tus-resumable": "1.0.0"}


@dataclass(slots=True)
class _Upload:
    """Upload of one file."""

    item: UploadFile
    place: str
    offset: int = 0
    """Number of bytes at the service."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Bytes of a file in memory, which are sent as one part or, after a failure, as several."""

    start: int
    end: int
    pieces: Sequence[bytes]
    crc: int
    """CRC-32C of all bytes."""

    def between(self, start: int, end: int) -> Iterator[bytes]:
        """Bytes from `start` up to `end`."""
        at = self.start
        for piece in self.pieces:
            if kept := piece[max(0, start - at) : max(0, end - at)]:
                yield kept
            at += len(piece)

    def checksum(self, start: int, end: int) -> str:
        """CRC-32C of the bytes from `start` up to `end`, in base64."""
        crc = self.crc
        if (start, end) != (self.start, self.end):
            crc = reduce(lambda before, piece: _core.crc32c(piece, before), self.between(start, end), 0)
        return base64.b64encode(crc.to_bytes(4, "big")).decode()


class _FileReader:
    """Reads a file once, in a thread, for its digest and for sending.

    The digest covers the file on the disk from its first byte, regardless of what an earlier process sent.
    """

    def __init__(self, item: UploadFile) -> None:
        self._item = item
        self._sha = hashlib.sha256()

    def blocks(self, start: int) -> Generator[_Block, None, None]:
        """Blocks from `start` to the end of the file; one is read ahead."""
        at, length = start, FIRST_PART
        with DaemonPool(1, "protoslice-hash") as pool:
            pool.submit(partial(self._skip, start)).result()
            coming = pool.submit(partial(self._read, at, length))
            while (block := coming.result()).pieces:
                at, length = block.end, min(2 * length, MOST_PART)
                coming = pool.submit(partial(self._read, at, length))
                yield block

    def hexdigest(self) -> str:
        """SHA-256 of the file, after its last block."""
        return self._sha.hexdigest()

    def _skip(self, end: int) -> None:
        for piece in self._item.read(0, end):
            self._sha.update(piece)

    def _read(self, start: int, length: int) -> _Block:
        end = min(self._item.size or 0, start + length)
        pieces, crc = list[bytes](), 0
        for piece in self._item.read(start, end - start):
            self._sha.update(piece)
            crc = _core.crc32c(piece, crc)
            pieces.append(piece)
        return _Block(start, end, pieces, crc)


class ResumableUploads:
    """Uploads that become one store: its files, or one unnamed item that is a recipe."""

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
        """Bytes that the service has acknowledged."""
        self._longest = self._most = MOST_PART
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
        return retry_once(lambda: self._connection.call("POST", "/v1/stores/assemble", json=said, slow=True))

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
        """Send a file completely and return its SHA-256."""
        reader, failures = _FileReader(upload.item), FailuresInRow(self._connection.retries)
        with closing(reader.blocks(upload.offset)) as blocks:
            for block in blocks:
                while upload.offset < block.end:
                    end, before = min(block.end, upload.offset + self._longest), upload.offset
                    self._reached(upload, max(block.start, self._append(upload, block, end, failures)), end)
                    if upload.offset > before:
                        failures.progressed()
        return reader.hexdigest()

    def _append(self, upload: _Upload, block: _Block, end: int, failures: FailuresInRow) -> int:
        """Send a part up to `end` and return the offset of the upload; parts after a failure are shorter."""
        offset = upload.offset
        headers = {
            **_TUS,
            "upload-offset": str(offset),
            "upload-checksum": f"crc32c {block.checksum(offset, end)}",
            "content-type": "application/offset+octet-stream",
            "content-length": str(end - offset),
        }
        body = self._counted(block.between(offset, end))
        try:
            answer = self._connection.call(
                "PATCH", upload.place, body=lambda: body, headers=headers, again=False, slow=True
            )
            self._longest = min(2 * self._longest, self._most)
        except ProtosliceError as error:
            too_long = isinstance(error, LimitExceeded) and not isinstance(error, TooMany)
            self._longest = max(LEAST_PART, min(self._longest, end - offset) // 2)
            self._most = self._longest if too_long else self._most
            # A conflict may be due to a request of ours that is still served.
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
    """True when the same push would fail again, so that nothing needs to stay for it."""
    return isinstance(error, FileChanged) or (isinstance(error, MISTAKES) and not is_transient(error))


def _offset(answer: ServiceAnswer) -> int:
    text = answer.headers.get("upload-offset", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise IntegrityError("The service does not report the upload's progress")
    return int(text)
