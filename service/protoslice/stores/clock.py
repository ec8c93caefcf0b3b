"""The clock of stores, tags and uploads."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_TOLERATED_SECONDS: Final = 60.0
"""Seconds by which a clock may be corrected between two looks at it."""


def now() -> datetime:
    """The current time, in UTC."""
    return datetime.now(UTC)


def microseconds(moment: datetime) -> int:
    """Return a time in microseconds since the epoch, as columns of the catalogue hold it."""
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(microseconds: int) -> datetime:
    """Return the time of a column of the catalogue."""
    return _EPOCH + microseconds * _MICROSECOND


def elapsed() -> float:
    """Seconds of a clock that is never set, which runs while the machine sleeps where there is such a clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot() -> str:
    """Return what tells this run of the machine from others, to which `elapsed` does not compare; empty if unknown."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


class JumpWatch:
    """Notices that a clock was set ahead, by comparing it with `elapsed` from one call to the next."""

    def __init__(self, kept: str = "") -> None:
        """Take what `kept` of an earlier process returned; it counts if that ran since the machine was started."""
        self._seen: tuple[float, float] | None = None
        """Both clocks when they last agreed."""
        self._jumped: float | None = None
        with suppress(ValueError, TypeError):
            where, clock, passed, jumped = json.loads(kept or "[]")
            if where and where == boot():
                self._seen, self._jumped = (float(clock), float(passed)), None if jumped is None else float(jumped)

    @property
    def kept(self) -> str:
        """What a later process needs to continue."""
        return json.dumps([boot(), *(self._seen or (None, None)), self._jumped])

    def wait(self, clock: float, most: float) -> float:
        """Return for how many seconds not to rely on `clock`: by how much it has jumped, `most` at most."""
        passed = elapsed()
        seen, since = self._seen or (clock, passed)
        ahead = (clock - seen) - (passed - since)
        if ahead > _TOLERATED_SECONDS:
            self._jumped = passed if self._jumped is None else self._jumped
            wait = min(ahead, most) - (passed - self._jumped)
            if wait > 0:
                return wait
        self._seen, self._jumped = (clock, passed), None
        return 0
