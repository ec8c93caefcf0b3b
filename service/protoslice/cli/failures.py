"""Failures as one line and an exit code that scripts can use.

| code | when |
|---|---|
| 0 | it worked |
| 1 | a fault of ours: please report it |
| 2 | the command line does not parse |
| 3 | the file is not what it should be: corrupt, inconsistent, not supported; a storage or a proxy spoils it |
| 4 | there is no such file, or nothing at that path |
| 5 | a limit was reached |
| 6 | the system refused: permission, space, input and output; or a service does not answer |
| 7 | somebody else was first, or what was there has changed |
| 8 | `diff`: the two differ |
| 129, 130, 143 | interrupted: the terminal has gone, Ctrl-C, asked to end |
| 141 | nobody reads on, as in `… | head -1` |
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn, TextIO

from protoslice.cli.terminal.show import note
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

_CODES: list[tuple[type[ProtosliceError], int]] = [
    (InvalidInput, 2),
    (NotFound, 4),
    (LimitExceeded, 5),
    (StorageError, 6),
    (Conflict, 7),
    (ProtosliceError, 3),
]


@contextmanager
def one_line_errors() -> Iterator[None]:
    """End the program with one line on standard error and an exit code, for any error raised inside."""
    try:
        yield
    except BrokenPipeError:
        _drop(sys.stdout)  # the reader has had enough: end as cat and ls do, without a message
        _end_by(signal.SIGPIPE)
    except KeyboardInterrupt as error:
        _end(_told(error), 130)
    except _Ended as ended:
        _note(_told(ended))
        _end_by(ended.number)
    except ProtosliceError as error:
        _end(_told(error), next(code for kind, code in _CODES if isinstance(error, kind)))
    except ModuleNotFoundError as error:
        extra = extra_of(error.name or "")
        if extra is None:
            raise
        _end(missing_extra(f"{error.name} is missing", extra), 3)
    except UnicodeEncodeError as error:  # an argument that is not UTF-8, and no name of a file
        text = error.object.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        _end(f"'{text[:200]}' is not valid UTF-8", 2)
    except OSError as error:
        _end(_refused(error), 4 if isinstance(error, FileNotFoundError) else 6)


def end_on_signals() -> None:
    """Make SIGTERM and SIGHUP raise an exception, so that whatever was begun is tidied up on the way out."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # not where nohup or a caller says otherwise
            signal.signal(number, _leave)


def warnings_in_lines() -> None:
    """Show warnings about plug-ins and kept tokens as lines of ours."""
    plainly = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, PluginWarning | CredentialsWarning):
            _note(f"note: {message}")
        else:
            plainly(message, category, *rest, **more)

    warnings.showwarning = show


class _Ended(BaseException):
    """We have been asked to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    raise _Ended(number)


def _end_by(number: int) -> None:
    """End by a signal, so that whoever waits for us sees what it was."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _told(error: BaseException) -> str:
    """Message of the error with the notes added on its way, such as how to go on."""
    said = [str(error)] if isinstance(error, ProtosliceError) else []
    said += ["interrupted"] if isinstance(error, KeyboardInterrupt) else []
    return "; ".join([*said, *getattr(error, "__notes__", ())])


def _refused(error: OSError) -> str:
    """One line for an error of the system, with its file; a full disk without one is standard output's."""
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


def _end(message: str, code: int) -> NoReturn:
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
