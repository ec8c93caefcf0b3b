"""Bodies of type application/x-tar: ustar, pax and GNU archives of files and folders.

The standard library's tarfile needs a file object, stops silently at the first unreadable header, and accepts links and
devices. This reader accepts pieces, needs constant memory, and reports each problem with its offset.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from protoslice.errors import CorruptModel, LimitExceeded, Unsupported
from protoslice.server.bodies.raw import Event, FileCounter, FileEnd, FileStart, file_path, path_text

_BLOCK: Final = 512
_LARGEST_NUMBER: Final = (1 << 63) - 1
_OCTAL: Final = re.compile(rb"[ \0]*([0-7]*)[ \0]*")
_CHECKSUM: Final = slice(148, 156)
_RECORD_LENGTH: Final = re.compile(rb"([1-9][0-9]{0,18}) ")
_SPARSE_KEYS: Final = (b"GNU.sparse.", b"SCHILY.realsize")
_SPARSE: Final = b"sparse"
# The size limit of a pax header or a long name, in bytes. The reader keeps the header or name in memory. Access lists
# and the like take a few KiB.
_LONGEST_EXTENSION: Final = 1 << 20
_FILES: Final = {b"0", b"\0", b"7"}
_FOLDER: Final = b"5"
_REFUSED: Final = {
    b"1": "a hard link: archive it with tar --hard-dereference",
    b"2": "a symbolic link: archive it with tar --dereference",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a pipe",
    b"S": "a sparse file: archive it without --sparse",
    b"M": "a file continued from another volume",
    b"V": "a volume label",
    b"D": "a folder of an incremental dump",
}
_ZEROS: Final = bytes(_BLOCK)


class TarReader:
    """A reader of an archive. It skips folders, and refuses all other members that are not files."""

    def __init__(self) -> None:
        self._offset = 0
        self._left = 0  # remaining bytes of the current file
        self._padding = 0  # remaining bytes up to the next block
        self._due, self._block = _BLOCK, bytearray()
        self._then: Callable[[bytes, int], Iterator[Event]] = self._header
        self._everywhere: dict[bytes, bytes] = {}  # pax records that apply to all members
        self._here: dict[bytes, bytes] = {}  # pax records for the next member
        self._long_name: bytes | None = None
        self._counter = FileCounter("archive")
        self._ended = False

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Yield the events of `piece`, the next bytes of the body."""
        position = 0
        while position < len(piece):
            rest = len(piece) - position
            if self._ended:
                self._check_tail(piece[position:])
                taken = rest
            elif self._left:
                taken = min(rest, self._left)
                yield from self._data(piece[position : position + taken])
            elif self._padding:
                taken = min(rest, self._padding)
                self._padding -= taken
            else:
                taken = min(rest, self._due - len(self._block))
                yield from self._collect(piece[position : position + taken])
            position += taken
            self._offset += taken

    def finish(self) -> Iterator[Event]:
        """Return no events. Raise `CorruptModel` if the archive is not complete."""
        if not self._ended:
            raise CorruptModel("The archive ends before its two closing blocks of zeros", self._offset)
        self._counter.close(self._offset)
        return iter(())

    def _data(self, piece: bytes) -> Iterator[Event]:
        self._left -= len(piece)
        yield piece
        if not self._left:
            yield FileEnd.FILE_END

    def _collect(self, piece: bytes) -> Iterator[Event]:
        start = self._offset - len(self._block)
        self._block += piece
        if len(self._block) == self._due:
            whole, self._block, self._due = bytes(self._block), bytearray(), _BLOCK
            yield from self._then(whole, start)

    def _check_tail(self, piece: bytes) -> None:
        rest = piece.lstrip(b"\0")
        if rest:
            raise CorruptModel("The archive has data after its end", self._offset + len(piece) - len(rest))

    def _header(self, block: bytes, offset: int) -> Iterator[Event]:
        if block == _ZEROS:
            self._then = self._second_zeros
            return
        header = _parse_header(block, offset)
        if header.type in _EXTENSIONS:
            self._extension(header, offset)
        else:
            yield from self._member(header, offset)

    def _second_zeros(self, block: bytes, offset: int) -> Iterator[Event]:
        if block != _ZEROS:
            raise CorruptModel(
                "The archive is damaged: a block of zeros, which ends an archive, is followed by data", offset
            )
        if self._here or self._long_name is not None:
            raise CorruptModel("The archive ends after an extended header without its member", offset)
        self._ended = True
        return iter(())

    def _extension(self, header: _Header, offset: int) -> None:
        if header.size > _LONGEST_EXTENSION:
            raise LimitExceeded(f"The archive has an extended header of more than {_LONGEST_EXTENSION} bytes", offset)
        read = _EXTENSIONS[header.type]

        def taken(data: bytes, start: int) -> Iterator[Event]:
            self._then = self._header
            self._padding = -len(data) % _BLOCK
            read(self, data, start)
            return iter(())

        if header.size:
            self._due, self._then = header.size, taken

    def _member(self, header: _Header, offset: int) -> Iterator[Event]:
        records = {**self._everywhere, **self._here}
        name, size = self._name_and_size(header, records, offset)
        self._here, self._long_name = {}, None
        text = path_text(name, offset)
        kind = header.type
        if kind in _FILES and text.endswith("/"):  # archives older than POSIX mark folders like this
            kind = _FOLDER
        if kind == _FOLDER:
            self._folder(text, size, offset)
            return
        if kind not in _FILES or _SPARSE in records:
            refusal = _REFUSED[b"S"] if kind in _FILES else _REFUSED.get(kind, f"of the unknown type {kind!r}")
            raise Unsupported(f"Unsupported archive member: {text!r} is {refusal}", offset)
        self._counter.add(offset)
        self._left, self._padding = size, -size % _BLOCK
        yield FileStart(file_path(text, offset))
        if not size:
            yield FileEnd.FILE_END

    def _name_and_size(self, header: _Header, records: dict[bytes, bytes], offset: int) -> tuple[bytes, int]:
        name = records.get(b"path") or self._long_name or header.name
        size = _size_in(records, offset)
        return name, header.size if size is None else size

    def _folder(self, name: str, size: int, offset: int) -> None:
        if size:
            raise CorruptModel(f"The folder {name!r} in the archive has a size of {size} bytes instead of 0", offset)
        plain = name.rstrip("/")
        if plain != ".":
            file_path(plain, offset)

    def _pax(self, data: bytes, offset: int) -> None:
        self._here |= _parse_records(data, offset)

    def _pax_everywhere(self, data: bytes, offset: int) -> None:
        self._everywhere |= _parse_records(data, offset)

    def _gnu_name(self, data: bytes, offset: int) -> None:
        self._long_name = data.partition(b"\0")[0]

    def _gnu_link(self, data: bytes, offset: int) -> None:
        """Ignore the name, because the link after it is refused."""


_EXTENSIONS: Final = {
    b"x": TarReader._pax,
    b"X": TarReader._pax,
    b"g": TarReader._pax_everywhere,
    b"L": TarReader._gnu_name,
    b"K": TarReader._gnu_link,
}


@dataclass(frozen=True, slots=True)
class _Header:
    """A parsed header block. `type` is the byte that distinguishes files, folders and other entries."""

    name: bytes
    size: int
    type: bytes


def _parse_header(block: bytes, offset: int) -> _Header:
    """Parse the header block at `offset` in the archive. Raise `CorruptModel` if its checksum is wrong."""
    _verify(block, offset)
    name = _text(block[:100])
    # Only POSIX headers have a prefix. GNU tar stores times in the same bytes.
    if block[257:263] == b"ustar\0":
        prefix = _text(block[345:500])
        name = prefix + b"/" + name if prefix else name
    return _Header(name, _size(block[124:136], offset + 124), block[156:157])


def _verify(block: bytes, offset: int) -> None:
    claimed = _octal(block[_CHECKSUM], offset + _CHECKSUM.start)
    unsigned = sum(block) - sum(block[_CHECKSUM]) + 8 * ord(" ")
    if claimed == unsigned:
        return
    # Some old programs compute the checksum from signed characters.
    high = sum(byte > 127 for byte in block) - sum(byte > 127 for byte in block[_CHECKSUM])
    if claimed != unsigned - 256 * high:
        raise CorruptModel("The archive is damaged: a tar header has a wrong checksum", offset)


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _size(field: bytes, offset: int) -> int:
    if not field[0] & 0x80:
        return _octal(field, offset)
    # GNU tar writes large numbers as a flag followed by a big-endian number in two's complement.
    value = int.from_bytes(field) - (0x80 << 88)
    if value > _LARGEST_NUMBER:
        raise CorruptModel("The tar header has a negative size or one beyond 2^63-1", offset)
    return value


def _octal(field: bytes, offset: int) -> int:
    match = _OCTAL.fullmatch(field)
    if match is None:
        raise CorruptModel(f"The tar header has {field!r} instead of an octal number", offset)
    return int(match[1] or b"0", 8)


def _parse_records(data: bytes, offset: int) -> dict[bytes, bytes]:
    """Return the records `path` and `size` of the pax header at `offset`, and `sparse` if the file is sparse."""
    found: dict[bytes, bytes] = {}
    position = 0
    while position < len(data):
        key, value, end = _record(data, position, offset)
        if key in {b"path", b"size"}:
            found[key] = value
        elif key.startswith(_SPARSE_KEYS):
            found[_SPARSE] = key
        position = end
    return found


def _size_in(records: dict[bytes, bytes], offset: int) -> int | None:
    """Return the size in pax records. Return None if they have no size."""
    text = records.get(b"size")
    if not text:
        return None
    if not re.fullmatch(rb"[0-9]{1,19}", text) or int(text) > _LARGEST_NUMBER:
        raise CorruptModel(f"The pax header has an invalid size {text[:40]!r}", offset)
    return int(text)


def _record(data: bytes, position: int, offset: int) -> tuple[bytes, bytes, int]:
    match = _RECORD_LENGTH.match(data, position)
    end = position + int(match[1]) if match else 0
    if match is None or not match.end() < end <= len(data) or data[end - 1 : end] != b"\n":
        raise CorruptModel("The pax header has a record that is not `length key=value`", offset + position)
    key, equals, value = data[match.end() : end - 1].partition(b"=")
    if not equals:
        raise CorruptModel("The pax header has a record without =", offset + position)
    return key, value, end
