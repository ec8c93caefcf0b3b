"""From a request's body to its files, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Final

from protoslice.errors import UnsupportedMediaType
from protoslice.server.bodies.events import Event, FileEnd, FileStart, Reader
from protoslice.server.bodies.form import FormReader
from protoslice.server.bodies.parameters import parse_value
from protoslice.server.bodies.raw import RawReader, raw_path
from protoslice.server.bodies.tar import TarReader

_RAW: Final = {
    "application/protobuf",
    "application/x-protobuf",
    "application/x-protobuffer",
    "application/octet-stream",
    "application/x-riegeli",
    "application/x-protobuf-delimited",
}
_TAR: Final = "application/x-tar"
_FORM: Final = "multipart/form-data"
_TURN: Final = 16
"""Events, three for each file."""


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """File that arrives. Its pieces, none of them empty, must all be taken before the next file."""

    path: str
    pieces: AsyncIterator[bytes]


def files_of(
    content_type: str | None, disposition: str | None, query_filename: str | None, body: AsyncIterator[bytes]
) -> AsyncGenerator[UploadedFile]:
    """Files in `body`, read only as far as their pieces are taken; headers are checked before reading."""
    return _files(_reader(content_type, disposition, query_filename), body)


def _reader(content_type: str | None, disposition: str | None, query_filename: str | None) -> Reader:
    kind, parameters = parse_value(content_type, "Content-Type") if content_type else ("application/octet-stream", {})
    if kind in _RAW:
        return RawReader(raw_path(disposition, query_filename))
    if kind == _TAR:
        return TarReader()
    if kind == _FORM:
        return FormReader(parameters.get("boundary"))
    raise UnsupportedMediaType(
        f"Unsupported body type {kind}: use application/protobuf or application/octet-stream for one "
        f"file, {_FORM} or {_TAR} for several (with curl --data-binary, add -H 'Content-Type: "
        "application/protobuf')"
    )


async def _files(reader: Reader, body: AsyncIterator[bytes]) -> AsyncGenerator[UploadedFile]:
    events = _events(reader, body)
    async for event in events:
        if isinstance(event, FileStart):
            pieces = _Pieces(events)
            yield UploadedFile(event.path, pieces)
            if not pieces.complete:
                raise RuntimeError(f"the pieces of {event.path!r} are to be taken before the next file is asked for")


async def _events(reader: Reader, body: AsyncIterator[bytes]) -> AsyncGenerator[Event]:
    count = 0
    async for piece in body:
        if piece:
            for event in reader.feed(piece):
                yield event
                count += 1
                if not count % _TURN:  # a piece may hold thousands of small files: let others have their turn
                    await asyncio.sleep(0)
    for event in reader.finish():
        yield event


class _Pieces(AsyncIterator[bytes]):
    def __init__(self, events: AsyncIterator[Event]) -> None:
        self._events = events
        self.complete = False

    async def __anext__(self) -> bytes:
        if self.complete:
            raise StopAsyncIteration
        event = await anext(self._events)
        if isinstance(event, bytes):
            return event
        assert event is FileEnd.FILE_END, "readers end a file before they start another"
        self.complete = True
        raise StopAsyncIteration
