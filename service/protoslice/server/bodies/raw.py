"""Bodies that are one file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from protoslice.server.bodies.events import Event, FileEnd, FileStart
from protoslice.server.bodies.parameters import filename_in, parse_value
from protoslice.server.bodies.paths import file_path, last_segment

_NAMELESS: Final = "model.pb"


def raw_path(disposition: str | None, query_filename: str | None) -> str:
    """The path of a body that is one file: the query's, else Content-Disposition's, else `model.pb`."""
    if query_filename:
        return file_path(query_filename)
    if disposition:
        name = filename_in(parse_value(_as_sent(disposition), "Content-Disposition")[1], "Content-Disposition")
        if name:
            return file_path(last_segment(name))
    return _NAMELESS


def _as_sent(value: str) -> str:
    """Headers reach an ASGI application as bytes and its handlers as Latin-1; most clients mean UTF-8."""
    try:
        return value.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return value


class RawReader:
    """Reads a body that is one file, be it empty."""

    def __init__(self, path: str) -> None:
        self._start: tuple[Event, ...] = (FileStart(path),)

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Events of `piece`: the beginning of the file, if need be, and the piece itself."""
        yield from self._begun()
        yield piece

    def finish(self) -> Iterator[Event]:
        """The end of the file."""
        yield from self._begun()
        yield FileEnd.FILE_END

    def _begun(self) -> tuple[Event, ...]:
        start, self._start = self._start, ()
        return start
