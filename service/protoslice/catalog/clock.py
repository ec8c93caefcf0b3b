"""Times of stores, tags and uploads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def now() -> datetime:
    """The current time, in UTC."""
    return datetime.now(UTC)


def microseconds(moment: datetime) -> int:
    """Return a time in microseconds since the epoch, as columns of the catalogue hold it."""
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(microseconds: int) -> datetime:
    """Return the time of a column of the catalogue."""
    return _EPOCH + microseconds * _MICROSECOND
