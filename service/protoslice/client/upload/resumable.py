"""Large files over tus 1.0: what breaks off goes on where the service says it is, and the store is made at the end."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from protoslice.client.download.files import Progress
from protoslice.client.http.connection import Connection, ServiceAnswer, path_of
from protoslice.client.http.failures import MISTAKES, believed, may_pass
from protoslice.client.upload.bodies import FileChanged, Item
from protoslice.client.upload.journal import Journal
from protoslice.client.upload.sending import Sending
from protoslice.errors import Conflict, IntegrityError, LimitExceeded, ProtosliceError, TooMany

__all__ = ["MOST_FILES", "WORTH_RESUMING", "ResumableUploads"]

WORTH_RESUMING: Final = 64 << 20
"""Files smaller than this are sent anew when they break off."""
MOST_FILES: Final = 200
"""More are sent in one recipe: each would take two requests, and a place among the uploads that a client may have."""
FIRST_PART: Final = 8 << 20
LEAST_PART: Final = 1 << 20
MOST_PART: Final = 256 << 20
PART_SECONDS: Final = 4.0
"""A part takes about so long: what breaks off, or fails its checksum, costs no more."""
_TUS: Final = {"tus-resumable": "1.0.0"}


@dataclass(slots=True)
class _Upload:
    """One file at the service."""

    item: Item
    place: str
    offset: int = 0
    """How many bytes of it are there."""


class _Lengths:
    """How long the parts are: of so many seconds each, as the last ones went.

    The length of the next part is settled while one is sent, so that its checksum can be made meanwhile.
    """

    def __init__(self) -> None:
        self.now = self.then = FIRST_PART
        self._most = MOST_PART

    def went(self, length: int, seconds: float) -> None:
        """A part was taken."""
        if length == self.now:  # what is smaller takes its time for other reasons
            enough = int(length * PART_SECONDS / max(seconds, 1e-3))
            self.now, self.then = self.then, max(LEAST_PART, min(enough, 4 * self.then, self._most))

    def failed(self, *, too_long: bool) -> None:
        """A part was not."""
        self.now = self.then = max(LEAST_PART, self.now // 4)
        if too_long:
            self._most = self.now


class ResumableUploads:
    """Uploads that are to become one store: its files, or one item without a name that is a recipe for it."""

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
        """Send the files; the answer says the store that has been made of them as `wanted`.

        When that fails for now, what has been sent stays for the next push, if the journal lasts until then.
        """
        try:
            answer = self._assemble(wanted)
        except BaseException as error:
            if self._journal.lasting and not _is_hopeless(error):
                if self._there:
                    error.add_note(f"push again to go on at {self._there * 100 // self._total} %")
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
        return believed(lambda: self._connection.call("POST", "/v1/stores/assemble", json=said, slow=True))

    def _end(self) -> None:
        """Leave nothing behind, of those that a store was made of neither: the service keeps count of them."""
        for place in self._begun:
            self._drop(place)
        self._journal.remove()

    def _drop(self, place: str) -> None:
        with suppress(ProtosliceError):
            self._connection.call("DELETE", place, headers=_TUS, again=False)

    def _take_up(self) -> dict[str, _Upload]:
        """The uploads of a push before that can be gone on with."""
        items, found = {item.path: item for item in self._items}, {}
        for path, entry in self._journal.entries.items():
            item, place = items.get(path), path_of("v1", "uploads", entry.upload)
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
            if may_pass(error):
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
            raise IntegrityError("the service has begun an upload and does not say where")
        place = path_of("v1", "uploads", name)
        self._begun.append(place)
        self._journal.note(item, name)
        return _Upload(item, place)

    def _send(self, upload: _Upload) -> str:
        """The sha-256 of a file, all of which is at the service then."""
        size, failures = upload.item.size or 0, 0
        with Sending(upload.item) as sending:
            while upload.offset < size:
                end = min(size, upload.offset + self._lengths.now)
                before = upload.offset
                try:
                    self._reached(upload, self._append(upload, sending, end), end)
                except ProtosliceError as error:
                    self._lengths.failed(too_long=_is_too_long(error))
                    self._reached(upload, self._patiently(upload.place, error, failures), end)
                    failures = failures + 1 if upload.offset == before else 0
            sending.expect(size, size)
            return sending.hexdigest()

    def _append(self, upload: _Upload, sending: Sending, end: int) -> int:
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

    def _patiently(self, place: str, error: ProtosliceError, failures: int) -> int:
        """How far the upload is, after a failure, if it is one after which it may go on."""
        moved_on = isinstance(error, Conflict)  # a request of ours that broke off was still being served
        self._connection.patience.wait(failures + 1, error, anyway=moved_on or _is_too_long(error))
        return _offset(self._connection.call("HEAD", place, headers=_TUS))

    def _reached(self, upload: _Upload, offset: int, sent: int) -> None:
        if offset > sent:
            raise IntegrityError(f"the service has {offset} bytes of {upload.item.path!r}, which were not sent")
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
    """True if something on the way takes no bodies of that length."""
    return isinstance(error, LimitExceeded) and not isinstance(error, TooMany)


def _is_hopeless(error: BaseException) -> bool:
    """True if the same push would fail again: then nobody goes on with what has been sent."""
    return isinstance(error, FileChanged) or (isinstance(error, MISTAKES) and not may_pass(error))


def _offset(answer: ServiceAnswer) -> int:
    text = answer.headers.get("upload-offset", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise IntegrityError("the service does not say how far the upload is")
    return int(text)
