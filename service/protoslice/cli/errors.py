"""The end of the program: one-line error messages, exit codes, signals, and closed standard streams."""

from __future__ import annotations

import errno
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import IntEnum
from io import TextIOWrapper
from types import FrameType
from typing import Any, Final, NoReturn, TextIO

from protoslice.cli.tables import note
from protoslice.credentials import CredentialsWarning
from protoslice.errors import (
    Conflict,
    InvalidInput,
    LimitExceeded,
    NotFound,
    ProtosliceError,
    StorageError,
    extra_of,
    missing_extra,
)
from protoslice.plugins import PluginWarning


class ExitCode(IntEnum):
    """The exit codes of the program, which scripts can use.

    Code 0 means success, and code 1 means a bug in this program: please report it. In a shell, SIGTERM results in code
    143, SIGHUP in code 129, and a closed pipe in code 141.
    """

    USAGE = 2
    """The command line is invalid."""
    FAILED = 3
    """The input is corrupt, inconsistent or not supported, or a check failed."""
    NOT_FOUND = 4
    """A file, store or path does not exist."""
    LIMIT = 5
    """A limit is exceeded."""
    REFUSED = 6
    """The system or a service refused access, the disk is full, or a service does not respond."""
    CONFLICT = 7
    """The target exists already, or another user has changed the target."""
    DIFFERENT = 8
    """`diff` found differences."""
    INTERRUPTED = 130
    """The user pressed Ctrl-C."""


_CODES: Final[Mapping[type[ProtosliceError], ExitCode]] = {
    InvalidInput: ExitCode.USAGE,
    NotFound: ExitCode.NOT_FOUND,
    LimitExceeded: ExitCode.LIMIT,
    StorageError: ExitCode.REFUSED,
    Conflict: ExitCode.CONFLICT,
    ProtosliceError: ExitCode.FAILED,
}
# Replacements are opened in the wrong direction, so that a command that uses a closed stream gets an error.
_STANDARD_STREAMS: Final = (("stdin", os.O_WRONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w"))


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Catch errors of the `with` block, and end the program with a one-line message and an exit code."""
    try:
        yield
    except BrokenPipeError:
        _drop(sys.stdout)  # the reader has closed the pipe: end without a message, as `cat` and `ls` do
        _end_by(signal.SIGPIPE)
    except KeyboardInterrupt as error:
        _end(_message(error), ExitCode.INTERRUPTED)
    except _Ended as ended:
        _note(_message(ended))
        _end_by(ended.number)
    except ProtosliceError as error:
        _end(_message(error), next(code for kind, code in _CODES.items() if isinstance(error, kind)))
    except ModuleNotFoundError as error:
        extra = extra_of(error.name or "")
        if extra is None:
            raise
        _end(missing_extra(f"{error.name} is missing", extra), ExitCode.FAILED)
    except UnicodeEncodeError as error:  # an argument that is not valid UTF-8 and does not name a file
        text = error.object.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        _end(f"'{text[:200]}' is not valid UTF-8", ExitCode.USAGE)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        _end(_refused(error), ExitCode.NOT_FOUND if missing else ExitCode.REFUSED)


def end_on_signals() -> None:
    """Make SIGTERM and SIGHUP raise an exception, so that temporary files are removed before the program ends."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # keep the handling that `nohup` or a caller has set
            signal.signal(number, _leave)


def open_standard_streams() -> None:
    """Open standard streams that the caller has closed.

    Otherwise, files opened later would get the descriptors of these streams. Also make the output streams escape
    characters that their encoding lacks.
    """
    for fd, (name, flags, mode) in enumerate(_STANDARD_STREAMS):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, flags)
            if opened != fd:
                os.dup2(opened, fd)
                os.close(opened)
            setattr(sys, name, open(fd, mode, closefd=False))  # noqa: SIM115 - for as long as the program runs
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def warnings_in_lines() -> None:
    """Show each warning about a plug-in or a saved token as one line."""
    plainly = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, PluginWarning | CredentialsWarning):
            _note(f"note: {message}")
        else:
            plainly(message, category, *rest, **more)

    warnings.showwarning = show


class _Ended(BaseException):
    """The exception that SIGTERM and SIGHUP raise."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    raise _Ended(number)


def _end_by(number: int) -> None:
    """End the process with a signal, so that the parent process sees the signal's number."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _message(error: BaseException) -> str:
    """Return the error's message, followed by its notes, such as advice on how to continue."""
    said = [str(error)] if isinstance(error, ProtosliceError) else []
    said += ["interrupted"] if isinstance(error, KeyboardInterrupt) else []
    return "; ".join([*said, *getattr(error, "__notes__", ())])


def _refused(error: OSError) -> str:
    """Return a one-line message for an error of the operating system, with the file name.

    If an error about a full disk has no file name, it is about standard output.
    """
    if error.errno == errno.EBADF:
        return "standard input or output is closed"
    name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    name = name or ("standard output" if error.errno in {errno.ENOSPC, errno.EFBIG, errno.EDQUOT} else "")
    return f"{name}: {error.strerror or error}" if name else str(error.strerror or error)


def _note(message: str) -> None:
    try:
        if message:
            note(message)
    except OSError:
        _drop(sys.stderr)


def _end(message: str, code: ExitCode) -> NoReturn:
    _note(message)
    try:
        sys.stdout.flush()
    except OSError:
        _drop(sys.stdout)
    sys.exit(code)


def _drop(stream: TextIO) -> None:
    """Redirect a stream to /dev/null, so that Python does not fail when it flushes the stream at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
