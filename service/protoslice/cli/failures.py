"""What goes wrong, as one line and an exit code that scripts can use.

| code | when |
|---|---|
| 0 | it worked |
| 1 | a fault of ours: please report it |
| 2 | the command line does not parse |
| 3 | the file is not what it should be: corrupt, inconsistent, not supported; or a storage breaks its promises |
| 4 | there is no such file, or nothing at that path |
| 5 | a limit was reached |
| 6 | the system refused: permission, space, input and output |
| 130 | interrupted |
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from protoslice.errors import InvalidInput, LimitExceeded, NotFound, ProtosliceError, StorageError

__all__ = ["one_line_errors"]

_CODES: list[tuple[type[ProtosliceError], int]] = [
    (InvalidInput, 2),
    (NotFound, 4),
    (LimitExceeded, 5),
    (StorageError, 6),
    (ProtosliceError, 3),
]


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Ends the program with a line on standard error and the right code, whatever is raised inside."""
    try:
        yield
    except BrokenPipeError:
        # Whoever read our output has had enough. Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
    except ProtosliceError as error:
        _end(str(error), next(code for kind, code in _CODES if isinstance(error, kind)))
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        _end(f"{name}{error.strerror or error}", 4 if isinstance(error, FileNotFoundError) else 6)


def _end(message: str, code: int) -> None:
    line = " ".join(message.split())
    print(f"protoslice: {line}", file=sys.stderr)
    sys.exit(code)
