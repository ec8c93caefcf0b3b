"""The worst for what operators and people ask, and for connections whatever is asked over them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Final

from tests.budgets.harness import Wire
from tests.budgets.materials import long_paths, small
from tests.budgets.reading import pipelined
from tests.budgets.rows import KIB, MIB, Budget, Play, Row, get, request

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
    return Row(route=f"GET {route}", worst=worst, near=True, status=200, budget=budget, **more)


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
    Row(
        route="GET /livez",
        worst="ten thousand in a row and a reader that waits",
        play=pipelined("/livez", 10_000),
        status=200,
        budget=Budget(loop=2_000_000),
    ),
    Row(route="GET /livez", worst="a head that comes byte by byte", play=_one_by_one, status=200),
    Row(
        route="GET /livez",
        worst="five thousand headers",
        ask=get("/livez", **{f"x{n}": "" for n in range(5000)}),
        status=200,
        budget=Budget(held=100_000),
    ),
    Row(route="GET /livez", worst="headers of a mebibyte", ask=get("/livez", x="y" * MIB), status=431),
    Row(
        route="GET /metrics",
        worst="after everything else",
        ask=get("/metrics"),
        status=200,
        budget=Budget(work=400_000),
    ),
    Row(
        route="GET /",
        worst="beside stores of many long paths",
        ask=get("/"),
        given=long_paths,
        status=200,
        budget=Budget(calls=40),
    ),
    Row(
        route="GET /openapi.json",
        worst="the first time",
        ask=get("/openapi.json"),
        fresh=True,
        status=200,
        budget=Budget(held=100_000, work=None),  # once in a process
    ),
    Row(
        route="GET /session",
        worst="cookies of 16 kB",
        ask=get("/session", cookie="protoslice-session=1;" * 780),
        status=200,
        budget=Budget(held=30_000),
    ),
    Row(
        route="POST /session",
        worst="a token of 15 kB of a service that asks for none",
        ask=request("POST", "/session", b'{"token": "%b"}' % (b"a" * 15_000), content_type="application/json"),
        status=(400, 403, 422, 501),
    ),
    *(
        Row(
            route=f"GET {path}",
            worst="a query of 30 kB",
            ask=get(f"{path}?next=/" + "a" * 30_000),
            status=(400, 404),
            budget=Budget(held=20_000),
        )
        for path in ("/session/login", "/session/callback")
    ),
    Row(route=ANY, worst="a path of 60 kB", ask=get("/v1/stores/" + "a/" * 30_000), status=404, budget=ROUTED),
    Row(
        route=ANY,
        worst="a query of 30 000 parameters",
        ask=get("/v1/stores/x/merge?" + "a&" * 30_000),
        status=400,
    ),
    Row(route=ANY, worst="a method that no route has", ask=request("BREW", "/v1/stores"), status=(400, 405)),
)
