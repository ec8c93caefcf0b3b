"""Rows of the table of worst requests, and the vocabulary that rows are written in."""

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
    """Steps of one callback of the loop, of which 20 000 take about a millisecond."""
    loop: int = 400_000
    """Steps of all callbacks of the loop together."""
    work: int | None = 100_000
    """Steps of all worker threads together; None where more than `MOST` are made, which nobody counts."""
    memory: float = 3
    """Times the bytes sent and got, beside `memory_room`."""
    memory_room: int = 24 * MIB
    written: float = 0
    """Times the bytes sent, beside `written_room`."""
    written_room: int = 4 * KIB
    calls: int = 10
    """Requests to the storage, whatever it asks."""
    got: int = MIB
    """Bytes of the answer."""

    def __post_init__(self) -> None:
        assert self.work is None or self.work < MOST, "no row would ever be over such a budget"

    def over(self, wire: Wire, cost: Cost) -> list[str]:
        """Costs beyond the budget, each with its limit."""
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
    """A request, or what makes one of what is given."""
    play: Play | None = None
    """Instead of one request, whatever clients do over connections of their own; returns a status."""
    status: int | tuple[int, ...]
    """Of the answer; 0 when nobody waits for it."""
    budget: Budget = field(default_factory=Budget)
    given: Make | None = None
    """Sets up what is asked about."""
    settings: Mapping[str, str] = field(default_factory=dict)
    near: bool = False
    """True for storage in a folder with all its abilities, False for one that is read by calls alone."""
    fresh: bool = False
    """True for a service that has not been asked anything before."""
    service: str = ""
    """Rows of one name share a service: those that would make others' dearer have one of their own."""

    def __str__(self) -> str:
        return f"{self.route}: {self.worst}"

    def asked(self, wire: Wire, given: Any) -> int:
        """The status of the answer to it."""
        if self.play is not None:
            return self.play(wire, given)
        return wire.exchange(self.ask if isinstance(self.ask, bytes) else self.ask(given))[0]


def row(route: str, worst: str, ask: bytes | Ask = b"", given: Make | None = None, **more: Any) -> Row:
    """A row; its status is 200, and costs, which are named as in `Budget`, change its `budget`."""
    costs = {name: more.pop(name) for name in [each.name for each in fields(Budget)] if name in more}
    budget = replace(more.pop("budget", Budget()), **costs)
    return Row(route=route, worst=worst, ask=ask, given=given, budget=budget, **{"status": 200, **more})


def request(method: str, target: str, body: bytes = b"", /, **headers: str) -> bytes:
    """A request on a connection of its own; underscores in the names of headers stand for hyphens."""
    lines = [f"{method} {target} HTTP/1.1", "host: localhost", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body or method in {"POST", "PUT", "PATCH"}:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def get(target: str, /, **headers: str) -> bytes:
    """A GET request; underscores in the names of headers stand for hyphens."""
    return request("GET", target, **headers)
