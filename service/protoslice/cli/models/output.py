"""The output of commands to a file, a device or standard output. A file is written completely or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Final

from protoslice.cli.progress import Progress
from protoslice.cli.tables import say
from protoslice.errors import Conflict, InvalidInput, NotFound, Unsupported
from protoslice.local_files import replacing
from protoslice.sizes import format_size
from protoslice.uris import is_uri

STDIO: Final = "-"
"""The name that commands use for standard input and standard output."""
BINARY: Final = "use -o FILE, or -o - for standard output"
"""Advice in errors about binary output, which commands print only with `-o -`."""


def write_content(
    pieces: Iterable[memoryview],
    out: str,
    progress: Progress,
    *,
    force: bool,
    source: str | None = None,
    quiet: bool = False,
) -> None:
    """Write `pieces` to the file `out`; `-` is standard output.

    A file has a temporary name until it is complete. Then its path and size are printed on standard error, unless
    `quiet` is set. Raise `Conflict` if the file exists, unless `force` is set.
    """
    check_output(out, force=force, source=source)
    with blaming("standard output" if out == STDIO else out):
        if out == STDIO:
            _copy(pieces, sys.stdout.buffer, progress)
            sys.stdout.buffer.flush()
            return
        if os.path.exists(out) and not os.path.isfile(out):  # a device or a pipe cannot be replaced
            with open(out, "wb") as file:
                _copy(pieces, file, progress)
            return
        target = os.path.realpath(out)  # replace the target of a link, not the link
        if not os.path.isdir(os.path.dirname(target)):
            raise NotFound(f"Cannot write the output: folder {os.path.dirname(target)} does not exist")
        with replacing(target) as temporary, open(temporary, "xb") as file:
            _copy(pieces, file, progress)
    if not quiet:
        say(f"{out}: {format_size(os.path.getsize(out))}", sys.stderr)


def check_output(out: str, *, force: bool, source: str | None = None) -> None:
    """Check that the file `out` may be written.

    Raise `Conflict` if the file exists, unless `force` is set. Raise `InvalidInput` if `out` and the input `source` are
    the same file, and `Unsupported` if `out` is a URI.
    """
    if is_uri(out):
        raise Unsupported(f"Cannot write to the URI {out}: write to a local file, then copy or push it")
    if source is not None and os.path.exists(source) and os.path.exists(out) and os.path.samefile(source, out):
        raise InvalidInput(f"{out} is the input file: write to another file")
    if out != STDIO and os.path.isfile(out) and not force:
        raise Conflict(f"{out} already exists: write to another file, or use --force to replace it")


@contextmanager
def blaming(name: str) -> Iterator[None]:
    """Add the file name `name` to each `OSError` that the `with` block raises without a file name."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = name
        raise


def _copy(pieces: Iterable[memoryview], file: IO[bytes], progress: Progress) -> None:
    for piece in pieces:
        file.write(piece)
        progress.advance(len(piece))
