"""Faults of storage calls: drawn from the seed, or given one by one to make a history shorter."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from random import Random
from typing import Literal

CONDITIONAL = ("put_if_absent", "put_if_same", "delete_if_same")
"""Calls that, tried again after a lost answer, find that somebody was first: it was they."""

Kind = Literal["slow", "fails", "lost", "denied", "late", "dies", "dies after", "still"]
"""Kinds of trouble of a call.

slow: the call, or its answer, takes long. fails: nothing was done. lost: it was done, and the answer says that it
failed. denied: it was done, and the answer says that somebody else was first. late: the answer says that it failed,
and it is done later. dies: the machine does, before the call is made or after it took effect. still: the machine stands
still once the call took effect.
"""


@dataclass(frozen=True, slots=True)
class Fate:
    """Trouble of one call: `there` and `back` are its seconds, `still` those that the machine stops."""

    kind: Kind
    there: float = 0.0
    back: float = 0.0
    still: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """Chance of each kind of trouble in a history."""

    slow: float = 0.0
    slow_seconds: float = 5.0
    fails: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    dies: float = 0.0
    still: float = 0.0
    still_seconds: float = 3000.0
    outrun: float = 0.0
    """Chance of a new manifest to come so late that collectors are faster; half of the writers die then."""

    @classmethod
    def drawn(cls, random: Random) -> Weather:
        """Random weather. Each kind is often absent altogether, so that the others get to show."""

        def some(*choices: float) -> float:
            return random.choice((0.0, *choices))

        return cls(
            slow=some(0.02, 0.1, 0.3),
            slow_seconds=random.choice((1.0, 30.0, 1000.0)),
            fails=some(0.005, 0.02),
            lost=some(0.005, 0.02),
            late=some(0.005) if random.random() < 0.2 else 0.0,
            dies=some(0.002, 0.005, 0.01),
            still=some(0.002, 0.01),
            still_seconds=random.choice((30.0, 4000.0)),
            outrun=some(0.5) if random.random() < 0.4 else 0.0,
        )


class Request:
    """Request of a client to a machine, or its start: names its calls, and draws their fates."""

    def __init__(self, seed: int, label: str, kind: str) -> None:
        self.label = label
        self.kind = kind
        """Action of the client, such as `append`."""
        self.random = Random(f"{seed} {label}")
        self.calls = 0


REQUEST: ContextVar[Request] = ContextVar("REQUEST")

Place = tuple[str, int]
"""The label of a request, and the number of a call in it."""


class Fates:
    """Fates of calls. Draws for a request depend on no other, so that others can be left out."""

    def __init__(self, weather: Weather, given: Mapping[Place, Fate] | None = None) -> None:
        self.calm = False
        """True when no more trouble comes."""
        self.met: dict[Place, Fate] = {}
        """Fates of the calls in this history."""
        self._weather = weather
        self._given = given

    def of(self, request: Request, name: str, folder: str) -> tuple[float, float, Fate | None]:
        """Seconds of the next call, with a key in `folder`, to the storage and back, and its fate or None."""
        place = request.label, request.calls
        request.calls += 1
        chance, amount, there, back = (request.random.random() for _ in range(4))
        fate = None
        if not self.calm:
            drawn = self._outrun if (name, folder) == ("put_if_absent", "stores") else self._drawn
            fate = drawn(chance, amount, name) if self._given is None else self._given.get(place)
        there, back = 0.001 + there / 100, 0.001 + back / 100
        if fate is None:
            return there, back, None
        self.met[place] = fate
        if fate.kind == "late":
            return there, back, fate
        return there + fate.there, back + fate.back, fate

    def _outrun(self, chance: float, amount: float, name: str) -> Fate | None:
        """The fate of a call that publishes a store."""
        if chance < self._weather.outrun:
            return Fate("slow" if chance < self._weather.outrun / 2 else "dies after", there=3000 * amount)
        return self._drawn(chance - self._weather.outrun, amount, name)

    def _drawn(self, chance: float, amount: float, name: str) -> Fate | None:
        weather = self._weather
        for kind, share in (
            ("slow", weather.slow),
            ("fails", weather.fails),
            ("lost", weather.lost),
            ("late", weather.late),
            ("dies", weather.dies),
            ("still", weather.still),
        ):
            if chance < share:
                return self._fate(kind, amount, name)
            chance -= share
        return None

    def _fate(self, kind: str, amount: float, name: str) -> Fate:
        half, amount = amount < 0.5, amount * 2 % 1
        match kind:
            case "slow":
                seconds = amount * amount * self._weather.slow_seconds
                return Fate("slow", there=seconds) if half else Fate("slow", back=seconds)
            case "late" if name == "commit":
                return Fate("lost")  # a database does not commit what it was asked for by a broken connection
            case "late":
                return Fate("late", there=amount * self._weather.slow_seconds)
            case "lost":
                return Fate("denied" if half and name in CONDITIONAL else "lost")
            case "dies":
                return Fate("dies" if half else "dies after")
            case "still":
                return Fate("still", still=amount * self._weather.still_seconds)
        return Fate("fails")
