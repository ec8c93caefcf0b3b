"""Counts what the service does for a request: calls that its own code makes, on the loop and in threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import protoslice

_PACKAGE = str(Path(protoslice.__file__).parent)


class Steps:
    """Calls of functions, Python's and C's, from the code of the package, in all threads begun meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def taken(self) -> int:
        """Steps since the last call."""
        count, self.count = self.count, 0
        return count

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if event in {"call", "c_call"} and frame.f_code.co_filename.startswith(_PACKAGE):
            with self._lock:
                self.count += 1


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
