"""The interface of body readers, file names in headers and bodies, and the reader of a body with a single file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol
from urllib.parse import unquote_to_bytes

from protoslice.defaults import MAX_FILES
from protoslice.errors import InvalidInput, LimitExceeded
from protoslice.file_names import check_file_path

_LONGEST_HEADER: Final = 8192
_WORD: Final = re.compile(r"[ \t]*([!#$%&'*+\-.^_`|~0-9A-Za-z]+(?:/[!#$%&'*+\-.^_`|~0-9A-Za-z]+)?)[ \t]*")
# Clients leave out quotes, so values without quotes may have more characters than the RFC's tokens.
_PARAMETER: Final = re.compile(
    r";[ \t]*(?:([!#$%&'*+\-.^_`|~0-9A-Za-z]+)[ \t]*=[ \t]*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;\",]+))[ \t]*)?"
)
_CHARSETS: Final = {"utf-8", "iso-8859-1"}
_HERE: Final = re.compile(r"(?:\./+)+")
_DEFAULT_NAME: Final = "model.pb"


@dataclass(frozen=True, slots=True)
class FileStart:
    """The event before the bytes of the file at `path`."""

    path: str


class FileEnd(Enum):
    """The event after the last byte of a file."""

    FILE_END = 0


Event = FileStart | bytes | FileEnd


class Reader(Protocol):
    """A reader of one kind of body, without I/O.

    The reader's errors name the offset in the body at which the problem is.
    """

    def feed(self, piece: bytes) -> Iterable[Event]:
        """Return the events of `piece`, the next bytes of the body.

        The caller must consume all events before it feeds the next piece.
        """

    def finish(self) -> Iterable[Event]:
        """Return the events at the end of the body. Raise `ProtosliceError` if the body is not complete."""


class FileCounter:
    """A counter of the files in a body, which must have at least one and at most `MAX_FILES`."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._files = 0

    def add(self, offset: int) -> None:
        """Count a file that starts at `offset`. Raise `LimitExceeded` if this is one file too many."""
        self._files += 1
        if self._files > MAX_FILES:
            raise LimitExceeded(f"The {self._kind} contains more than {MAX_FILES} files", offset)

    def close(self, offset: int) -> None:
        """Raise `InvalidInput` if the body, which ends at `offset`, had no files."""
        if not self._files:
            raise InvalidInput(f"The {self._kind} contains no files", offset)


class RawReader:
    """A reader of a body that consists of one file, which may be empty."""

    def __init__(self, path: str) -> None:
        self._start: tuple[Event, ...] = (FileStart(path),)

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Yield the piece. Before the first piece, yield the start of the file."""
        yield from self._started()
        yield piece

    def finish(self) -> Iterator[Event]:
        """Yield the end of the file."""
        yield from self._started()
        yield FileEnd.FILE_END

    def _started(self) -> tuple[Event, ...]:
        start, self._start = self._start, ()
        return start


def raw_path(disposition: str | None, query_filename: str | None) -> str:
    """Return the path for a body with a single file: from the query, else Content-Disposition, else `model.pb`."""
    if query_filename:
        return file_path(query_filename)
    if disposition:
        name = filename_in(parse_value(_utf8(disposition), "Content-Disposition")[1], "Content-Disposition")
        if name:
            return file_path(re.split(r"[/\\]", name)[-1])  # a name without folders (RFC 6266, section 4.3)
    return _DEFAULT_NAME


def _utf8(value: str) -> str:
    """Decode as UTF-8 a header that was read as Latin-1, because most clients send UTF-8."""
    try:
        return value.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return value


def file_path(name: str, offset: int | None = None) -> str:
    """Return the path of a file without a leading `./`. Raise `InvalidInput` with `offset` for an invalid path.

    Unicode is not normalized, because models refer to their other files by the exact bytes of their names.
    """
    try:
        return check_file_path(_HERE.sub("", name, count=1) if name.startswith("./") else name)
    except InvalidInput as error:
        error.offset = offset
        raise


def path_text(raw: bytes, offset: int | None = None) -> str:
    """Decode a path that is in the body at `offset`. Raise `InvalidInput` unless it is UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"The name {raw[:100]!r} is not UTF-8", offset) from None


def parse_value(text: str, header: str) -> tuple[str, dict[str, str]]:
    """Parse Content-Type or Content-Disposition: a type and parameters by name, in lower case (RFC 9110, 5.6.6).

    `header` is the name of the header in errors. Malformed values raise `InvalidInput`. The parser of `email.message`
    is not used, because it accepts missing quotes, missing separators and repeated parameters.
    """
    if len(text) > _LONGEST_HEADER:
        raise InvalidInput(f"{header} is too long: at most {_LONGEST_HEADER} characters")
    word = _WORD.match(text)
    if word is None:
        raise InvalidInput(
            f"{header} {text[:100]!r} does not start with a type, such as application/protobuf or form-data"
        )
    position, found = word.end(), dict[str, str]()
    while position < len(text):
        match = _PARAMETER.match(text, position)
        if match is None:
            raise InvalidInput(
                f"{header} has an invalid parameter (name=value expected): {text[position : position + 100]!r}"
            )
        position = match.end()
        if match[1] is not None:
            _keep(found, match, header)
    return word[1].lower(), found


def _keep(found: dict[str, str], match: re.Match[str], header: str) -> None:
    name = match[1].lower()
    if name in found:
        raise InvalidInput(f"{header} has the parameter {name!r} twice")
    # Browsers escape only the quote, as %22, so a backslash before any other character is literal.
    found[name] = match[3] if match[2] is None else re.sub(r'\\(["\\])', r"\1", match[2])


def filename_in(parameters: Mapping[str, str], header: str) -> str | None:
    """Return the filename in parameters. `filename*` (RFC 8187), which names a character set, takes precedence."""
    extended = parameters.get("filename*")
    if extended is None:
        return parameters.get("filename")
    charset, first, rest = extended.partition("'")
    _, second, text = rest.partition("'")
    if not (first and second) or charset.lower() not in _CHARSETS:
        raise InvalidInput(f"filename* of {header} must have the form UTF-8''name: {extended[:100]!r}")
    try:
        return unquote_to_bytes(text).decode(charset)
    except UnicodeDecodeError:
        raise InvalidInput(f"filename* of {header} is not valid {charset}: {text[:100]!r}") from None
