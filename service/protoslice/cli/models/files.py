"""Functions that open the files that commands read: models, standard input, files of split rules.

Their errors mention the file.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from typing import IO, BinaryIO, Final, cast

from protoslice import _core
from protoslice._core import DEFAULT_FLOOR
from protoslice.cli.models.output import STDIO, blaming
from protoslice.cli.models.source import RootType
from protoslice.cli.progress import Progress
from protoslice.errors import CorruptModel, LimitExceeded, ProtosliceError, Unsupported
from protoslice.library.indexing import SMALLEST_FLOOR
from protoslice.library.models import LocalModel, open_files, root_in
from protoslice.library.opening import open_proto
from protoslice.library.proto import Proto
from protoslice.references import saying_what_was_tried
from protoslice.sources.opening import files_at
from protoslice.sources.source import FileSet, RangeSource

_IN_MEMORY: Final = 64 << 20
_LARGEST_RULES: Final = 64 << 10
"""Maximum number of bytes in a file of split rules, including comments."""


class NamedFiles:
    """The files of a folder. The user named this folder, or the file `named` in it."""

    def __init__(self, name: str, files: FileSet, named: str | None, root: RootType) -> None:
        self.files = files
        self.named = named
        self._name = name
        self._type = root

    @cached_property
    def root(self) -> str:
        """Path of the root: the named file, or the file of a folder that is most likely the root."""
        if self.named:
            return self.named
        with Progress("Searching for the root file", unit="files") as progress:
            return root_in(self.files, self._type.name, progress.up_to)

    @contextmanager
    def proto(self, *, close_look: bool = False) -> Iterator[Proto]:
        """Open the proto in the root. With `close_look`, the index of a small file includes smaller messages.

        Errors raised in the `with` block mention the file.
        """
        with errors_about(self._name):
            source = self.files[self.root]
            floor = _floor(source.size) if close_look else DEFAULT_FLOOR
            with _indexed(source, self._type, floor) as proto:
                yield proto

    @contextmanager
    def model(self) -> Iterator[LocalModel]:
        """Open the model. Errors raised in the `with` block mention the file."""
        with errors_about(self._name), self.open_model() as model:
            yield model

    def open_model(self) -> LocalModel:
        """Open the model, which the caller has to close. Only errors of this method mention the file."""
        with errors_about(self._name), Progress("indexing") as progress:
            return open_files(self.files, self.root, self._type.name, types=self._type.types, progress=progress.up_to)


@contextmanager
def named_files(name: str, root: RootType) -> Iterator[NamedFiles]:
    """Open the files at the path or URI `name`. Raise `Unsupported` for standard input, a pipe or a device."""
    if is_stream(name):
        raise Unsupported(
            f"{name} is a stream, so other files of the model cannot be found: pass a file or a directory"
        )
    with errors_about(name):
        files, named = files_at(name)
    with closing(files):
        yield NamedFiles(name, files, named, root)


@contextmanager
def opened(name: str, root: RootType) -> Iterator[Proto]:
    """Open the proto in the file or folder at the path or URI `name`.

    `-` is standard input. Standard input, pipes and devices are copied to a temporary file.
    """
    if is_stream(name):
        with spooled(name) as spool, errors_about(name), _indexed(spool, root, DEFAULT_FLOOR) as proto:
            yield proto
    else:
        with named_files(name, root) as place, place.proto() as proto:
            yield proto


@contextmanager
def opened_model(name: str, root: RootType) -> Iterator[LocalModel]:
    """Open the model in the file or folder `name`. Errors raised in the `with` block mention `name`."""
    with named_files(name, root) as place, place.model() as model:
        yield model


def is_stream(name: str) -> bool:
    """Return True if `name` is standard input, a pipe or a device."""
    return name == STDIO or (os.path.exists(name) and not os.path.isfile(name) and not os.path.isdir(name))


@contextmanager
def _indexed(source: RangeSource | BinaryIO, root: RootType, floor: int) -> Iterator[Proto]:
    with Progress("indexing") as progress:
        proto = open_proto(source, root.name, types=root.types, floor=floor, progress=progress.up_to)
    with proto:
        yield proto


@contextmanager
def spooled(name: str) -> Iterator[BinaryIO]:
    """Copy standard input, a pipe or a device to a temporary file, and yield that file."""
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool:
        if name == STDIO:
            _spool(sys.stdin.buffer, spool)
        else:
            with open(name, "rb") as pipe:
                _spool(pipe, spool)
        yield cast(BinaryIO, spool)


def _spool(stream: BinaryIO, spool: IO[bytes]) -> None:
    with Progress("reading") as progress, blaming(tempfile.gettempdir()):
        while piece := stream.read(1 << 20):
            spool.write(piece)
            progress.advance(len(piece))


@contextmanager
def errors_about(name: str) -> Iterator[None]:
    """Add the name of a file to errors raised in the `with` block."""
    shown = "standard input" if name == STDIO else name
    try:
        with saying_what_was_tried(name):
            yield
    except ProtosliceError as error:
        if shown not in error.message:
            error.message = f"{shown}: {error.message}"
        raise


def _floor(size: int) -> int:
    """Return the index floor for a file: the size from which messages are indexed. A small file has a lower floor."""
    return min(DEFAULT_FLOOR, max(SMALLEST_FLOOR, size // 1000))


def rules_in(name: str | None) -> tuple[str, ...]:
    """Return the split rules in the file `name` in canonical form, or no rules if `name` is None.

    The file has one rule per line. Blank lines, and comment lines that begin with `#`, are skipped. Errors mention the
    file and the rule.
    """
    if name is None:
        return ()
    with errors_about(name), open(name, "rb") as file:
        data = file.read(_LARGEST_RULES + 1)
        if len(data) > _LARGEST_RULES:
            raise LimitExceeded(f"The rules file is too large: at most {_LARGEST_RULES} bytes")
        try:
            lines = data.decode().splitlines()
        except UnicodeDecodeError as error:
            raise CorruptModel("The rules file is not UTF-8", error.start) from error
        stripped = (line.strip() for line in lines)
        return tuple(_core.Plan.rules([line for line in stripped if line and not line.startswith("#")]))
