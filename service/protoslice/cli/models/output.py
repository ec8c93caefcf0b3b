"""Output of verbs: a file that is written whole or not at all, a device, or standard output."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final, cast

from protoslice.cli.models.source import Content
from protoslice.cli.progress import Progress
from protoslice.cli.tables import say
from protoslice.errors import Conflict, InvalidInput, NotFound, Unsupported
from protoslice.local_files import replace_durably
from protoslice.sizes import format_size
from protoslice.uris import is_uri

STDIO: Final = "-"
"""Name of standard input and output."""
BINARY: Final = "use -o FILE, or -o - for standard output"
"""Advice for output that no command prints unless asked for it."""


def write_content(
    content: Content, out: str, progress: Progress, *, force: bool, source: str | None = None, quiet: bool = False
) -> None:
    """Write `content` to the file `out`, under a temporary name until it is whole; `-` is standard output.

    Print the path and the size of a file on standard error, unless `quiet`: then the caller prints them. Raise
    `Conflict` for a file that exists, unless `force` is set.
    """
    check_output(out, force=force, source=source)
    pieces = _counted(content, progress)
    with blaming("standard output" if out == STDIO else out):
        if out == STDIO:
            for piece in pieces:
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        elif os.path.exists(out) and not os.path.isfile(out):
            _write_through(pieces, out)
        else:
            _replace(os.path.realpath(out), pieces)  # a link stays, and leads to the new file
            if not quiet:
                say(f"{out}: {format_size(os.path.getsize(out))}", sys.stderr)


def check_output(out: str, *, force: bool, source: str | None = None) -> None:
    """Raise unless `out` may be written: a file that exists needs `force`, and is not the input."""
    if is_uri(out):
        raise Unsupported(f"Cannot write to the URI {out}: write to a local file, then copy or push it")
    if source is not None and os.path.exists(source) and os.path.exists(out) and os.path.samefile(source, out):
        raise InvalidInput(f"{out} is the input file: write to another file")
    if out != STDIO and os.path.isfile(out) and not force:
        raise Conflict(f"{out} already exists: write to another file, or use --force to replace it")


@contextmanager
def blaming(name: str) -> Iterator[None]:
    """Set the file name of an `OSError` raised inside to `name`, where the error has none."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = name
        raise


def _counted(content: Content, progress: Progress) -> Iterator[memoryview]:
    for piece in content.pieces():
        yield piece
        progress.advance(len(piece))


def _replace(out: str, pieces: Iterator[memoryview]) -> None:
    """Write a file under a temporary name, and give it its own when it is whole and durable."""
    folder = os.path.dirname(out)
    if not os.path.isdir(folder):
        raise NotFound(f"Cannot write the output: folder {folder} does not exist")
    fd, temporary = tempfile.mkstemp(prefix=".protoslice-", dir=folder)
    try:
        with os.fdopen(fd, "wb", buffering=0) as file:
            for piece in pieces:
                _write_all(file, piece)
        os.chmod(temporary, 0o666 & ~_umask())
        replace_durably(temporary, out)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _write_through(pieces: Iterator[memoryview], out: str) -> None:
    """Write to a device or a pipe, which cannot be replaced."""
    with open(out, "wb", buffering=0) as file:
        for piece in pieces:
            _write_all(file, piece)


def _write_all(file: BinaryIO | object, piece: memoryview) -> None:
    view = piece
    while view:
        view = view[cast(BinaryIO, file).write(view) :]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
