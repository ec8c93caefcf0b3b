"""The files of a push, from a path, bytes, a message, range sources, a file object, or an iterator."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, Final, Protocol, cast, runtime_checkable

from protoslice import varints
from protoslice.errors import InvalidInput, NotFound, StorageError
from protoslice.file_names import is_version_control
from protoslice.sources.source import RangeSource

STEP: Final = 1 << 20


@runtime_checkable
class SerializableMessage(Protocol):
    """A message of the protobuf runtime."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - the runtime's name
        """Return the serialized message."""


Pushable = (
    str
    | os.PathLike[str]
    | bytes
    | bytearray
    | memoryview
    | SerializableMessage
    | BinaryIO
    | Mapping[str, RangeSource]
    | Iterable[bytes]
    | Iterable[SerializableMessage]
)
"""The values that can be pushed. A mapping lists files by their paths. Several messages become delimited records."""


class FileChanged(StorageError):
    """The error for a local file that changed after its push began."""


@dataclass(frozen=True, slots=True)
class FileStamp:
    """The size, modification time and inode of a file. Every write to the file changes at least one of these values."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, stat: os.stat_result) -> FileStamp:
        """Return the stamp of a file with this `os.stat_result`."""
        return cls(stat.st_size, stat.st_mtime_ns, stat.st_ino)


@dataclass(frozen=True, slots=True)
class UploadFile:
    """A file to be pushed."""

    path: str
    """Path in the store."""
    size: int | None
    """Size in bytes, or None if the size is not known in advance."""
    read: Callable[[int, int | None], Iterator[bytes]]
    """A function of an offset and a length, which yields the bytes in pieces. Length None means up to the end."""
    local: Path | None = None
    """Path on the local disk, or None for content that is not a local file."""
    stamp: FileStamp | None = None
    """Stamp of a local file at the beginning of the push, or None for other content."""
    again: bool = True
    """True if the content can be read more than once."""


def items_of(what: Pushable, filename: str | None) -> list[UploadFile]:
    """Return the files to push.

    Raise `InvalidInput` for an unsupported value, and `NotFound` for a path that does not exist.
    """
    if isinstance(what, str | os.PathLike):
        return _files(Path(what), filename)
    name = filename or "model.pb"
    if isinstance(what, SerializableMessage):
        what = what.SerializeToString()
    if isinstance(what, bytes | bytearray | memoryview):
        return [_memory(name, memoryview(what).cast("B"))]
    given: object = what
    if isinstance(given, Mapping):
        return [UploadFile(path, source.size, partial(_ranges, source)) for path, source in given.items()]
    if hasattr(given, "read"):
        return [UploadFile(name, None, _once(_reads(cast(BinaryIO, given))), again=False)]
    if isinstance(given, Iterable):
        return [_stream(iter(given), filename)]
    due = (
        "a path, bytes, a message, a binary file, an iterable of bytes or messages, or a mapping of "
        "paths to range sources"
    )
    raise InvalidInput(f"Cannot push {type(what).__name__}: pass {due}")


def _files(path: Path, filename: str | None) -> list[UploadFile]:
    if not path.exists():
        raise NotFound(f"{path} does not exist")
    if not path.is_dir():
        return [_file(filename or path.name, path)]
    if filename is not None:
        raise InvalidInput("filename is only for a single file: the files of a folder keep their names")
    found = [_file(each.relative_to(path).as_posix(), each) for each in sorted(_below(path, frozenset()))]
    if not found:
        raise InvalidInput(f"{path} contains no files")
    return found


def _below(folder: Path, above: frozenset[tuple[int, int]]) -> Iterator[Path]:
    """Yield all entries below a folder that are not folders themselves.

    Links are followed. Files and folders of version control, such as `.git`, are left out.
    """
    try:
        stat, entries = folder.stat(), list(os.scandir(folder))
    except OSError as error:
        raise StorageError(f"Cannot read {folder}: {error.strerror}") from error
    here = (stat.st_dev, stat.st_ino)
    if here in above:
        raise InvalidInput(f"{folder} is a link to one of its parent folders")
    for entry in entries:
        if is_version_control(entry.name):
            continue  # clones of repositories contain such folders, but the service refuses their files
        if entry.is_dir():
            yield from _below(folder / entry.name, above | {here})
        else:
            yield folder / entry.name


def _file(name: str, path: Path) -> UploadFile:
    if not path.is_file():
        raise InvalidInput(f"Cannot push {path}: it is a device, a pipe or a broken link")
    if not _is_text(name):
        raise InvalidInput(f"The file name {name!r} is not UTF-8: rename the file")
    stamp = FileStamp.of(path.stat())
    return UploadFile(name, stamp.size, partial(_read, path, stamp), local=path, stamp=stamp)


def _read(path: Path, stamp: FileStamp, offset: int, length: int | None) -> Iterator[bytes]:
    left = stamp.size - offset if length is None else length
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(offset)
            while left and (piece := file.read(min(STEP, left))):
                left -= len(piece)
                yield piece
            now = os.fstat(file.fileno())
    except OSError as error:
        raise StorageError(f"Cannot read {path}: {error.strerror}") from error
    if left or (now.st_size, now.st_mtime_ns) != (stamp.size, stamp.mtime_ns):
        raise FileChanged(f"{path} changed during the push: push it again")


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _memory(name: str, data: memoryview) -> UploadFile:
    def read(offset: int, length: int | None) -> Iterator[bytes]:
        end = data.nbytes if length is None else offset + length
        for at in range(offset, end, STEP):
            yield bytes(data[at : min(at + STEP, end)])

    return UploadFile(name, data.nbytes, read)


def _ranges(source: RangeSource, offset: int, length: int | None) -> Iterator[bytes]:
    end = source.size if length is None else offset + length
    for at in range(offset, end, STEP):
        yield source.read(at, min(STEP, end - at))


def _stream(given: Iterator[object], filename: str | None) -> UploadFile:
    """Return the file for an iterator of bytes or messages.

    The bytes are the pieces of the file. Messages become the records of a stream, each preceded by its length.
    """
    first = list(islice(given, 1))
    whole = chain(first, given)
    if first and isinstance(first[0], SerializableMessage):
        return UploadFile(filename or "records.delimited", None, _once(_delimited(whole)), again=False)
    return UploadFile(filename or "model.pb", None, _once(whole), again=False)


def _delimited(messages: Iterable[object]) -> Iterator[bytes]:
    """Yield the messages as records with a varint length in front, in pieces of about `STEP` bytes."""
    held, size = list[bytes](), 0
    for message in messages:
        if not isinstance(message, SerializableMessage):
            raise InvalidInput(f"An iterator of messages must not yield {type(message).__name__}")
        record = message.SerializeToString()
        held += [varints.write(len(record)), record]
        size += len(record)
        if size >= STEP:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


def _once(pieces: Iterable[object]) -> Callable[[int, int | None], Iterator[bytes]]:
    def read(offset: int, length: int | None) -> Iterator[bytes]:
        for piece in pieces:
            if not isinstance(piece, bytes | bytearray | memoryview):
                raise InvalidInput(f"An iterator must yield bytes, not {type(piece).__name__}")
            view = memoryview(piece).cast("B")
            for at in range(0, view.nbytes, STEP):
                yield bytes(view[at : at + STEP])

    return read


def _reads(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(STEP):
        yield piece
