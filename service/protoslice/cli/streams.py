"""Standard input, output and error, also where the caller has closed them."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

# The wrong way round, so that whoever needs the stream hears of it.
_STANDARD = (("stdin", os.O_WRONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w"))


def open_standard_streams() -> None:
    """Open those that the caller has closed: a file opened later must not be taken for one of them.

    Letters that a terminal cannot show are escaped.
    """
    for fd, (name, flags, mode) in enumerate(_STANDARD):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, flags)
            if opened != fd:
                os.dup2(opened, fd)
                os.close(opened)
            setattr(sys, name, open(fd, mode, closefd=False))  # noqa: SIM115 - for as long as the program runs
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
