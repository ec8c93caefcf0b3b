"""The rows of the table of worst requests, and the functions that make rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeAlias

import httpx
from tests.budgets.harness import Cost, Wire
from tests.budgets.steps import MOST

KIB: Final = 1 << 10
MIB: Final = 1 << 20

Make: TypeAlias = Callable[[httpx.Client], Any]
Ask: TypeAlias = Callable[[Any], bytes]
Play: TypeAlias = Callable[[Wire, Any], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most that a request may cost."""

    held: int = 7500
    """The steps of one callback of the loop; 20 000 steps take about a millisecond."""
    loop: int = 400_000
    """The steps of all callbacks of the loop together."""
    work: int | None = 100_000
    """The steps of all worker threads together; None for more than `MOST` steps, which are not counted."""
    memory: float = 3
    """The memory as a multiple of the sent and received bytes; `memory_room` is added."""
    memory_room: int = 24 * MIB
    written: float = 0
    """The written bytes as a multiple of the sent bytes; `written_room` is added."""
    written_room: int = 4 * KIB
    calls: int = 10
    """The requests to the storage, of any kind."""
    got: int = MIB
    """The bytes of the answer."""

    def __post_init__(self) -> None:
        assert self.work is None or self.work < MOST, "no row would ever be over such a budget"

    def over(self, wire: Wire, cost: Cost) -> list[str]:
        """Return the costs beyond the budget, each with its limit."""
        most = {
            "held": self.held,
            "loop": self.loop,
            "work": self.work,
            "memory": int(self.memory * (wire.sent + wire.got)) + self.memory_room,
            "written": int(self.written * wire.sent) + self.written_room,
            "calls": self.calls,
            "got": self.got,
        }
        found = {name: wire.got if name == "got" else getattr(cost, name) for name in most}
        limits = {name: limit for name, limit in most.items() if limit is not None}
        return [f"{name}: {found[name]} of {limit}" for name, limit in limits.items() if found[name] > limit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A route, the worst request known for it, and its budget."""

    route: str
    worst: str
    ask: bytes | Ask = b""
    """A request, or a function that makes it from the result of `given`."""
    play: Play | None = None
    """A function that acts over connections that it chooses instead of sending `ask`; it returns a status."""
    status: int | tuple[int, ...]
    """The status of the answer; 0 if no client waits for an answer."""
    budget: Budget = field(default_factory=Budget)
    given: Make | None = None
    """A function that creates the requested content."""
    settings: Mapping[str, str] = field(default_factory=dict)
    near: bool = False
    """True for storage in a folder with all its abilities, False for a storage that is read by calls alone."""
    fresh: bool = False
    """True for a service that has served no request before."""
    service: str = ""
    """The name of the service that rows share; rows that raise other rows' costs need another name."""

    def __str__(self) -> str:
        return f"{self.route}: {self.worst}"

    def asked(self, wire: Wire, given: Any) -> int:
        """Send the row's request or run its play; return the status of the answer."""
        if self.play is not None:
            return self.play(wire, given)
        return wire.exchange(self.ask if isinstance(self.ask, bytes) else self.ask(given))[0]


def row(route: str, worst: str, ask: bytes | Ask = b"", given: Make | None = None, **more: Any) -> Row:
    """Return a row; its status is 200 by default, and costs, named as in `Budget`, change its `budget`."""
    costs = {name: more.pop(name) for name in [each.name for each in fields(Budget)] if name in more}
    budget = replace(more.pop("budget", Budget()), **costs)
    return Row(route=route, worst=worst, ask=ask, given=given, budget=budget, **{"status": 200, **more})


def request(method: str, target: str, body: bytes = b"", /, **headers: str) -> bytes:
    """Return a request on a separate connection; underscores in the names of headers are replaced by hyphens."""
    lines = [f"{method} {target} HTTP/1.1", "host: localhost", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body or method in {"POST", "PUT", "PATCH"}:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def get(target: str, /, **headers: str) -> bytes:
    """Return a GET request; underscores in the names of headers are replaced by hyphens."""
    return request("GET", target, **headers)
