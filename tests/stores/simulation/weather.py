"""Troubles that calls of replicas meet, and how long they last."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

DELAY_SECONDS: Final = 600.0
"""Seconds between the end of an object's row and that of its bytes."""
LATE_SECONDS: Final = 20_000.0
"""Longest delay of a write that is believed to have failed: less than a day."""
TWICE_SECONDS: Final = 500.0
"""Longest delay of the second effect of a write that was acknowledged: less than `DELAY_SECONDS`."""
SLOW_SECONDS: Final = 300.0
STALL_SECONDS: Final = (100.0, 1000.0, 3000.0)
PATIENCE_SECONDS: Final = 200.0
"""Seconds after which a client cancels a request."""


class Violation(Exception):
    """Something that must hold does not."""


class Unreachable(Exception):
    """The replica died, or the client lost its patience: the request may take effect, also later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """Chances of a call to meet each kind of trouble."""

    slow: float = 0.0
    fails: float = 0.0
    """The call fails before it takes effect."""
    lost: float = 0.0
    """The call takes effect, and the answer is lost."""
    late: float = 0.0
    """A write fails and takes effect later, or it succeeds and takes effect again later."""
    dies: float = 0.0
    """The replica dies before the call takes effect, after that, or both: the effect comes late."""
    stalls: float = 0.0
    """The replica does nothing for a time that may be longer than its lease."""
    jump: float = 0.0
    """Chance of a history whose database clock is set forward by more than a lease; all else is calm there."""

    @classmethod
    def drawn(cls, random: Random) -> Weather:
        """Return random weather, often without a kind of trouble, so that the others have an effect."""
        if random.random() < 0.15:
            return cls(jump=1.0)
        return cls(
            slow=random.choice((0.0, 0.02, 0.1)),
            fails=random.choice((0.0, 0.01, 0.05)),
            lost=random.choice((0.0, 0.01, 0.05)),
            late=random.choice((0.0, 0.02, 0.1)),
            dies=random.choice((0.0, 0.0, 0.005, 0.01)),
            stalls=random.choice((0.0, 0.0, 0.005)),
        )
