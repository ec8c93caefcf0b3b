"""Files in and out: opened by name or from standard input; written whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, BinaryIO, cast

import protoslice
from protoslice import LocalModel, Proto, open_model
from protoslice._core import DEFAULT_FLOOR
from protoslice.cli.models.addresses import perhaps_meant
from protoslice.cli.models.subjects import Content
from protoslice.cli.terminal.progress import Progress
from protoslice.errors import InvalidInput, NotFound, ProtosliceError, Unsupported
from protoslice.models import root_in

__all__ = ["STDIO", "naming", "open_named", "opened", "opened_model", "write_content"]

STDIO = "-"
_IN_MEMORY = 64 << 20


@contextmanager
def opened(name: str, type_name: str | None, *, floor: int = DEFAULT_FLOOR) -> Iterator[Proto]:
    """The proto in the file `name`, or the root of a directory.

    `-` is standard input, which is kept in a temporary file while it is worked on.
    """
    if os.path.isdir(name):
        with naming(name):
            name = os.path.join(name, root_in(name, type_name))
    with _input(name) as source, naming(name):
        with Progress("indexing") as progress:
            proto = protoslice.open(source, type_name, floor=floor, progress=progress.up_to)
        with proto:
            yield proto


@contextmanager
def opened_model(name: str, type_name: str | None) -> Iterator[LocalModel]:
    """The model in the file or directory `name`. Errors inside say which it is."""
    with naming(name), open_named(name, type_name) as model:
        yield model


def open_named(name: str, type_name: str | None) -> LocalModel:
    """The same, to be closed by whoever holds more than one: only errors of opening it say which it is."""
    if name == STDIO or (os.path.exists(name) and not os.path.isfile(name) and not os.path.isdir(name)):
        raise Unsupported(f"{name} is a stream, and a model may have files beside its root: name a file or a directory")
    with naming(name), Progress("indexing") as progress:
        return open_model(name, type=type_name, progress=progress.up_to)


@contextmanager
def _input(name: str) -> Iterator[str | BinaryIO]:
    if name != STDIO and (os.path.isfile(name) or not os.path.exists(name)):
        yield name
        return
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool:
        if name == STDIO:
            _spool(sys.stdin.buffer, spool)
        else:  # a pipe with a name
            with open(name, "rb") as pipe:
                _spool(pipe, spool)
        yield cast(BinaryIO, spool)


def _spool(stream: BinaryIO, spool: IO[bytes]) -> None:
    with Progress("reading") as progress, _blaming(tempfile.gettempdir()):
        while piece := stream.read(1 << 20):
            spool.write(piece)
            progress.advance(len(piece))


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Errors inside say which file they are about."""
    shown = "standard input" if name == STDIO else name
    try:
        yield
    except ProtosliceError as error:
        if shown not in error.message:
            error.message = f"{shown}: {error.message}"
        if isinstance(error, NotFound) and not os.path.lexists(name):
            error.message += perhaps_meant(name)
        raise


def write_content(content: Content, out: str, progress: Progress, *, source: str | None = None) -> None:
    """Write `content` to the file `out`, under a temporary name until it is whole; `-` is standard output."""
    if source is not None and os.path.exists(source) and os.path.exists(out) and os.path.samefile(source, out):
        raise InvalidInput(f"{out} is the input: write to another file")
    pieces = _counted(content, progress)
    with _blaming("standard output" if out == STDIO else out):
        if out == STDIO:
            for piece in pieces:
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        elif os.path.exists(out) and not os.path.isfile(out):
            _write_through(pieces, out)
        else:
            _replace(os.path.realpath(out), pieces)  # a link stays, and leads to the new file


def _counted(content: Content, progress: Progress) -> Iterator[memoryview]:
    for piece in content.pieces():
        yield piece
        progress.advance(len(piece))


@contextmanager
def _blaming(name: str) -> Iterator[None]:
    """Set the file name of an `OSError` raised inside to `name`, where the error has none."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = name
        raise


def _replace(out: str, pieces: Iterator[memoryview]) -> None:
    """Write a file under a temporary name, and give it its own when it is whole and durable."""
    folder = os.path.dirname(out)
    if not os.path.isdir(folder):
        raise NotFound(f"there is no folder {folder} to write to")
    fd, temporary = tempfile.mkstemp(prefix=".protoslice-", dir=folder)
    try:
        with os.fdopen(fd, "wb", buffering=0) as file:
            for piece in pieces:
                _write_all(file, piece)
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, out)
    except BaseException:
        os.unlink(temporary)
        raise
    _sync_folder(folder)


def _write_through(pieces: Iterator[memoryview], out: str) -> None:
    """Write to a device or a pipe, which cannot be replaced."""
    with open(out, "wb", buffering=0) as file:
        for piece in pieces:
            _write_all(file, piece)


def _write_all(file: BinaryIO | object, piece: memoryview) -> None:
    view = piece
    while view:
        view = view[cast(BinaryIO, file).write(view) :]


def _sync_folder(folder: str) -> None:
    """Make the new name durable too."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
