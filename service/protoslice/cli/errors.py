"""How the program ends: errors as one line, exit codes, signals, and closed standard streams."""

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
    """Exit codes that scripts can use.

    0 is success, and 1 a bug in this program: please report it. A program that was ended by SIGTERM, SIGHUP or a closed
    pipe has 143, 129 or 141.
    """

    USAGE = 2
    """The command line does not parse."""
    FAILED = 3
    """Corrupt, inconsistent or not supported; or a check failed."""
    NOT_FOUND = 4
    """There is no such file, or nothing at that path."""
    LIMIT = 5
    """A limit was reached."""
    REFUSED = 6
    """The system refused: permission, space, input and output; or a service refuses or does not answer."""
    CONFLICT = 7
    """Something else was first, or what was there has changed."""
    DIFFERENT = 8
    """`diff`: the two differ."""
    INTERRUPTED = 130
    """Ctrl-C."""


_CODES: Final[Mapping[type[ProtosliceError], ExitCode]] = {
    InvalidInput: ExitCode.USAGE,
    NotFound: ExitCode.NOT_FOUND,
    LimitExceeded: ExitCode.LIMIT,
    StorageError: ExitCode.REFUSED,
    Conflict: ExitCode.CONFLICT,
    ProtosliceError: ExitCode.FAILED,
}
# The wrong way round, so that a command that needs the stream gets an error.
_STANDARD_STREAMS: Final = (("stdin", os.O_WRONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w"))


@contextmanager
def one_line_errors() -> Iterator[None]:
    """End the program with one line on standard error and an exit code after any error in the `with` block."""
    try:
        yield
    except BrokenPipeError:
        _drop(sys.stdout)  # the reader has had enough: end as cat and ls do, without a message
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
    except UnicodeEncodeError as error:  # an argument that is not UTF-8, and no name of a file
        text = error.object.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        _end(f"'{text[:200]}' is not valid UTF-8", ExitCode.USAGE)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        _end(_refused(error), ExitCode.NOT_FOUND if missing else ExitCode.REFUSED)


def end_on_signals() -> None:
    """Make SIGTERM and SIGHUP raise an exception, so that temporary files are removed on the way out."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # not where nohup or a caller says otherwise
            signal.signal(number, _leave)


def open_standard_streams() -> None:
    """Open standard streams that the caller has closed, so that no file opened later takes their place.

    Characters that the terminal cannot show are escaped.
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
    """Show warnings about plug-ins and saved tokens as one line each."""
    plainly = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, PluginWarning | CredentialsWarning):
            _note(f"note: {message}")
        else:
            plainly(message, category, *rest, **more)

    warnings.showwarning = show


class _Ended(BaseException):
    """Raised when SIGTERM or SIGHUP was received."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    raise _Ended(number)


def _end_by(number: int) -> None:
    """End the process by a signal, so that the parent process sees which signal it was."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _message(error: BaseException) -> str:
    """Return the message of the error and its notes, such as how to continue."""
    said = [str(error)] if isinstance(error, ProtosliceError) else []
    said += ["interrupted"] if isinstance(error, KeyboardInterrupt) else []
    return "; ".join([*said, *getattr(error, "__notes__", ())])


def _refused(error: OSError) -> str:
    """Return one line for an error of the system, with its file.

    If an error about a full disk names no file, standard output is meant.
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
    """Redirect a stream to /dev/null, so that Python at exit does not fail again to flush it."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
