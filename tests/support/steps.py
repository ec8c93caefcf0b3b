"""Counts what the service does for a request: calls that its own code makes, on the loop and in threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import protoslice

_PACKAGE = str(Path(protoslice.__file__).parent)


class Steps:
    """Calls of functions, Python's and C's, from the code of the package, in all threads begun meanwhile."""

    def __init__(self) -> None:
        self._counter = count()
        self._seen = 0
        self._ours = dict[CodeType, bool]()

    def taken(self) -> int:
        """Steps since the last call."""
        now = next(self._counter)
        before, self._seen = self._seen, now + 1
        return now - before

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        # Called for each call and each return of the process: every operation here counts.
        if event == "call" or event == "c_call":
            code = frame.f_code
            ours = self._ours.get(code)
            if ours is None:
                ours = self._ours[code] = code.co_filename.startswith(_PACKAGE)
            if ours:
                next(self._counter)


@contextmanager
def counted_steps() -> Iterator[Steps]:
    """Count the steps of a service that is opened within the context."""
    steps = Steps()
    threading.setprofile(steps._profile)
    sys.setprofile(steps._profile)
    try:
        yield steps
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
