"""Recipes: descriptions of files as sequences of new bytes and of copies from stores.

This module does no I/O; the client and the service share it. A recipe consists of JSON lines, each an object with one
member. The announced bytes of content directly follow the line that announces them:

    {"file": "model.onnx"}
        begins a file
    {"bytes": 1048576}
        announces that many bytes of content for the file
    {"copy": {"store": "<id>", "file": "model.onnx", "offset": 0, "length": 4194304}}
        appends these bytes of an existing store to the file
    {"end": {"size": 5242880, "sha256": "<hex>"}}
        ends the file, with the size and digest that it must have
    {"done": "<hex>"}
        ends the recipe, with the SHA-256 of all earlier lines, including their line feeds
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from protoslice.errors import CorruptModel
from protoslice.json_text import parse_json

MEDIA_TYPE: Final = "application/vnd.protoslice.recipe"
_LONGEST_LINE: Final = 16 << 10
_NUMBERS_END: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class RecipeFile:
    """The beginning of a file."""

    path: str


@dataclass(frozen=True, slots=True)
class Literal:
    """The announcement of `length` bytes of content for the current file."""

    length: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of `length` bytes, from `offset` in a file of a store, into the current file."""

    store: str
    file: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class RecipeEnd:
    """The end of a file, with the size and digest that the file must have."""

    size: int
    sha256: str


Event = RecipeFile | Literal | bytes | Copy | RecipeEnd


class RecipeWriter:
    """A writer of the lines of a recipe; callers write content directly after the line of `literal`."""

    def __init__(self) -> None:
        self._lines = hashlib.sha256()

    def file(self, path: str) -> bytes:
        """Return the line that begins a file."""
        return self._line("file", path)

    def literal(self, length: int) -> bytes:
        """Return the line that announces `length` bytes of content."""
        return self._line("bytes", length)

    def copy(self, copy: Copy) -> bytes:
        """Return the line that copies bytes from a store."""
        fields = {"store": copy.store, "file": copy.file, "offset": copy.offset, "length": copy.length}
        return self._line("copy", fields)

    def end(self, size: int, sha256: str) -> bytes:
        """Return the line that ends a file."""
        return self._line("end", {"size": size, "sha256": sha256})

    def done(self) -> bytes:
        """Return the line that ends the recipe."""
        return self._line("done", self._lines.hexdigest())

    def _line(self, name: str, value: object) -> bytes:
        line = json.dumps({name: value}, separators=(",", ":")).encode() + b"\n"
        self._lines.update(line)
        return line


class RecipeReader:
    """A parser of a recipe, which receives the recipe in pieces and needs constant memory.

    Its `CorruptModel` errors contain the offset of the fault in the recipe.
    """

    def __init__(self) -> None:
        self._offset = 0
        self._line = bytearray()
        self._lines = hashlib.sha256()
        self._literal = 0  # bytes of content that are still to come
        self._in_file = False
        self._done = False

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Yield the events in `piece`, which is the next part of the recipe.

        The caller must consume all events before it feeds the next piece.
        """
        position = 0
        while position < len(piece):
            if self._literal:
                taken = piece[position : position + self._literal]
                self._literal -= len(taken)
                yield taken
            else:
                found = piece.find(b"\n", position)
                taken = piece[position : len(piece) if found < 0 else found + 1]
                yield from self._take(taken, ended=found >= 0)
            position += len(taken)
            self._offset += len(taken)

    def finish(self) -> None:
        """Raise `CorruptModel` unless the recipe is complete."""
        if not self._done:
            raise self._wrong("The recipe is incomplete: its last line is missing")

    def _take(self, part: bytes, *, ended: bool) -> Iterator[Event]:
        if self._done:
            raise self._wrong("The recipe has data after its end")
        self._line += part
        if len(self._line) > _LONGEST_LINE:
            raise self._wrong(f"The recipe has a line longer than {_LONGEST_LINE} bytes")
        if ended:
            line, self._line = bytes(self._line), bytearray()
            yield from self._read(line)
            self._lines.update(line)

    def _read(self, line: bytes) -> Iterator[Event]:
        try:
            ((name, value),) = parse_json(line).items()
            event = self._event(name, value)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise self._wrong("The recipe has an unknown line") from None
        if event is not None:
            yield event

    def _event(self, name: str, value: Any) -> Event | None:
        if name in {"bytes", "copy", "end"} and not self._in_file:
            raise self._wrong(f"The recipe has a line {name!r} before any file has started")
        match name:
            case "file":
                return self._begin(_text(value))
            case "bytes":
                self._literal = _number(value)
                return Literal(self._literal)
            case "copy":
                return _copy(value)
            case "end":
                self._in_file = False
                return RecipeEnd(_number(value["size"]), _text(value["sha256"]))
            case "done":
                self._finish(_text(value))
                return None
            case _:
                raise ValueError(name)

    def _begin(self, path: str) -> RecipeFile:
        if self._in_file:
            raise self._wrong("The recipe starts a file before the previous one has ended")
        self._in_file = True
        return RecipeFile(path)

    def _finish(self, digest: str) -> None:
        if self._in_file:
            raise self._wrong("The recipe is incomplete: it stops inside a file")
        if digest != self._lines.hexdigest():
            raise self._wrong("The recipe does not match its digest")
        self._done = True

    def _wrong(self, what: str) -> CorruptModel:
        return CorruptModel(what, self._offset)


def _copy(value: Mapping[str, Any]) -> Copy:
    return Copy(_text(value["store"]), _text(value["file"]), _number(value["offset"]), _number(value["length"]))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < _NUMBERS_END:
        raise ValueError
    return value
