"""Bodies of type multipart/form-data (RFC 7578). Their parts with a filename are files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from python_multipart import MultipartParser
from python_multipart.exceptions import MultipartParseError

from protoslice.errors import InvalidInput, LimitExceeded
from protoslice.server.bodies.raw import (
    Event,
    FileCounter,
    FileEnd,
    FileStart,
    file_path,
    filename_in,
    parse_value,
    path_text,
)

_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
# The parser's messages end with a position in the piece. The reader replaces this position with the position in the
# body.
_PLACE: Final = re.compile(r" (?:at \d+|\(\d+\))$")
_MOST_HEADERS: Final = 16
_SLICE: Final = 1 << 10
"""The minimum number of bytes that are parsed at a time. A larger slice has at most about `_LINES` lines."""
_LINES: Final = 16
_LONGEST_HEADER: Final = 8192
_LONGEST_FIELD: Final = 64 << 10
_MOST_FIELDS: Final = 1000
# In HTML, forms name their character set in this field. The names of files are read as UTF-8 in any case.
_IGNORED: Final = {"_charset_"}
_PLAIN: Final = {"7bit", "8bit", "binary"}


class FormReader:
    """A reader of a form.

    Parts with a filename are files. Other parts must be empty, because parameters are in the query.
    """

    def __init__(self, boundary: str | None) -> None:
        if boundary is None or not _BOUNDARY.fullmatch(boundary):
            raise InvalidInput(f"multipart/form-data needs a boundary of 1 to 70 characters, not {boundary!r}")
        self._parser = MultipartParser(
            boundary.encode("ascii"),
            {
                "on_part_begin": self._part_begin,
                "on_header_field": self._header_name,
                "on_header_value": self._header_value,
                "on_header_end": self._header_end,
                "on_headers_finished": self._headers_finished,
                "on_part_data": self._data,
                "on_part_end": self._part_end,
                "on_end": self._end,
            },
            max_header_count=_MOST_HEADERS,
            max_header_size=_LONGEST_HEADER,
        )
        self._offset = self._at = 0  # the offsets of the piece and of the last header
        self._events: list[Event] = []
        self._counter = FileCounter("form")
        self._ended = False
        self._fields = 0
        self._part_begin()

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Yield the events of `piece`, the next bytes of the body.

        Many small parts are parsed a few at a time.
        """
        # Parsing headers costs a hundred times as much as parsing content, and each header line ends in a line feed.
        step = max(_SLICE, _LINES * len(piece) // (piece.count(b"\r\n") + 1))
        for at in range(0, len(piece), step):
            yield from self._fed(piece[at : at + step])

    def _fed(self, piece: bytes) -> Sequence[Event]:
        self._events = []
        try:
            self._parser.write(piece)
        except MultipartParseError as error:
            fault = _PLACE.sub("", str(error))
            raise InvalidInput(f"Malformed form: {fault}", self._offset + max(error.offset, 0)) from None
        self._offset += len(piece)
        return self._events

    def finish(self) -> Iterator[Event]:
        """Return no events. Raise `InvalidInput` if the form is not complete."""
        if not self._ended:
            raise InvalidInput("The form ends before its closing boundary", self._offset)
        self._counter.close(self._offset)
        return iter(())

    def _part_begin(self) -> None:
        self._headers: dict[str, bytes] = {}
        self._name, self._value = bytearray(), bytearray()
        self._path: str | None = None
        self._field = ""
        self._field_size = 0

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        if not self._name:
            self._at = self._offset + start
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        name = self._name.decode("latin-1").lower()
        if name in self._headers:
            raise InvalidInput(f"A part of the form has the header {name!r} twice", self._at)
        self._headers[name] = bytes(self._value)
        self._name, self._value = bytearray(), bytearray()

    def _headers_finished(self) -> None:
        raw = self._headers.get("content-disposition")
        if raw is None:
            raise InvalidInput("A part of the form has no Content-Disposition", self._at)
        self._check_encoding()
        try:
            self._field, filename = _names(path_text(raw))
        except InvalidInput as error:
            error.offset = self._at
            raise
        if filename:
            self._start(filename)

    def _check_encoding(self) -> None:
        encoding = self._headers.get("content-transfer-encoding", b"binary").decode("latin-1").strip().lower()
        if encoding not in _PLAIN:
            raise InvalidInput(
                f"A part of the form uses the encoding {encoding[:100]!r}: send it unencoded (binary)", self._at
            )

    def _start(self, filename: str) -> None:
        self._counter.add(self._at)
        self._path = file_path(filename, self._at)
        self._events.append(FileStart(self._path))

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._path is not None:
            self._events.append(data[start:end])
            return
        self._field_size += end - start
        if self._field not in _IGNORED:
            raise InvalidInput(
                f"The form field {self._field[:100]!r} is not a file (it has no filename): put parameters "
                "into the query",
                self._offset + start,
            )
        if self._field_size > _LONGEST_FIELD:
            raise LimitExceeded(f"The form field {self._field!r} is larger than {_LONGEST_FIELD} bytes", self._offset)

    def _part_end(self) -> None:
        if self._path is not None:
            self._events.append(FileEnd.FILE_END)
            return
        self._fields += 1
        if self._fields > _MOST_FIELDS:
            raise LimitExceeded(f"The form has more than {_MOST_FIELDS} fields that are not files", self._offset)

    def _end(self) -> None:
        self._ended = True


def _names(disposition: str) -> tuple[str, str | None]:
    where = "Content-Disposition of a part"
    kind, parameters = parse_value(disposition, where)
    if kind != "form-data":
        raise InvalidInput(f"{where} must be form-data, not {kind[:100]!r}")
    filename = filename_in(parameters, where)
    # Browsers and curl write `%22` for the quote, which would end the name (RFC 7578 section 2, WHATWG).
    return parameters.get("name", ""), filename and filename.replace("%22", '"')
