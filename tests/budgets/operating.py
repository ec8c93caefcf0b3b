"""The worst for what operators and people ask, and for connections whatever is asked over them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Final

from tests.budgets.harness import Wire
from tests.budgets.materials import long_paths, small
from tests.budgets.reading import pipelined
from tests.budgets.rows import KIB, MIB, Budget, Play, Row, get, request, row

ANY: Final = "any"
ROUTED: Final = Budget(held=16_000)
"""For paths that are compared with the templates of more than a hundred routes."""


def _one_by_one(wire: Wire, given: Any) -> int:
    """Sends a head of 60 kB byte by byte, as far as a client can have it so."""
    with wire.open() as connection:
        for byte in get("/livez", x_long="y" * 3000):
            wire.send(connection, bytes([byte]))
        return wire.read(connection)[0]


def at_once(path: str, count: int) -> Play:
    """A play of `count` connections of two clients, each asking for `path`; gives the highest status.

    A client may have 512 requests under way, and a slow machine lets them all be under way at once.
    """

    def play(wire: Wire, given: Any) -> int:
        with ExitStack() as stack:
            connections = [stack.enter_context(wire.open(f"127.0.0.{3 + n % 2}")) for n in range(count)]
            for connection in connections:
                wire.send(connection, get(path.format(store=given)))
            return max(wire.read(connection)[0] for connection in connections)

    return play


def _crowd(route: str, count: int, *, loop: int, work: int = 0, calls: int = 0, **more: Any) -> Row:
    """A row for `count` connections, with budgets for each; the first of all may open what is asked for."""
    budget = Budget(
        held=12_000,
        loop=10_000 + count * loop,
        work=5000 + count * work,
        calls=12 + count * calls,
        memory_room=4 * MIB + count * 40 * KIB,  # by the resident size, which wavers with what ran before
        got=count * 4 * KIB,
    )
    worst = f"over {count} connection{'s' * (count > 1)} at once"
    return row(f"GET {route}", worst, near=True, budget=budget, **more)


_CROWDS: Final = tuple(
    row
    for count in (1, 16, 1000)
    for row in (
        _crowd("/livez", count, play=at_once("/livez", count), loop=6200),
        # Each one opens, reads and closes the marker, and looks at the free space: 220 steps, a little more in a crowd.
        _crowd("/readyz", count, play=at_once("/readyz", count), loop=9000, work=240, calls=2),
        _crowd(
            "/v1/stores/{ref}/files/{path:path}",
            count,
            play=at_once("/v1/stores/{store}/files/model.onnx", count),
            given=small,
            loop=4500,
            work=200,
            calls=1,
        ),
    )
)

OPERATING: Final = (
    *_CROWDS,
    row(
        "GET /livez", "ten thousand in a row and a reader that waits", play=pipelined("/livez", 10_000), loop=2_000_000,
    ),
    row("GET /livez", "a head that comes byte by byte", play=_one_by_one),
    row("GET /livez", "five thousand headers", get("/livez", **{f"x{n}": "" for n in range(5000)}), held=100_000),
    row("GET /livez", "headers of a mebibyte", get("/livez", x="y" * MIB), status=431),
    row("GET /metrics", "after everything else", get("/metrics"), work=400_000),
    row("GET /", "beside stores of many long paths", get("/"), long_paths, calls=40),
    # once in a process
    row("GET /openapi.json", "the first time", get("/openapi.json"), fresh=True, held=100_000, work=None),
    row("GET /session", "cookies of 16 kB", get("/session", cookie="protoslice-session=1;" * 780), held=30_000),
    row(
        "POST /session", "a token of 15 kB of a service that asks for none",
        request("POST", "/session", b'{"token": "%b"}' % (b"a" * 15_000), content_type="application/json"),
        status=(400, 403, 422, 501),
    ),
    *(
        row(f"GET {path}", "a query of 30 kB", get(f"{path}?next=/" + "a" * 30_000), status=(400, 404), held=20_000)
        for path in ("/session/login", "/session/callback")
    ),
    row(ANY, "a path of 60 kB", get("/v1/stores/" + "a/" * 30_000), status=404, budget=ROUTED),
    row(ANY, "a query of 30 000 parameters", get("/v1/stores/x/merge?" + "a&" * 30_000), status=400),
    row(ANY, "a method that no route has", request("BREW", "/v1/stores"), status=(400, 405)),
)  # fmt: skip
