"""The worst for what operators and people ask, and for connections whatever is asked over them."""

from __future__ import annotations

from typing import Any, Final

from costing.harness import Wire
from costing.makings import long_paths
from costing.reading import pipelined
from costing.steps import MOST
from costing.table import MIB, Budget, Row, get, request

__all__ = ["OPERATING"]

ANY: Final = "any"


def _one_by_one(wire: Wire, given: Any) -> int:
    """Sends a head of 60 kB byte by byte, as far as a client can have it so."""
    with wire.open() as connection:
        for byte in get("/livez", x_long="y" * 3000):
            wire.send(connection, bytes([byte]))
        return wire.read(connection)[0]


OPERATING: Final = (
    Row(
        route="GET /livez",
        worst="ten thousand in a row and a reader that waits",
        play=pipelined("/livez", 10_000),
        status=200,
        budget=Budget(held=60_000),
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
    Row(route="GET /readyz", worst="as it is", ask=get("/readyz"), status=200),
    Row(
        route="GET /metrics",
        worst="after everything else",
        ask=get("/metrics"),
        status=200,
        budget=Budget(work=400_000),
    ),
    Row(route="GET /problems/{slug}", worst="the longest name", ask=get("/problems/" + "a" * 60_000), status=404),
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
        budget=Budget(held=100_000, work=MOST),
    ),
    Row(
        route="GET /docs",
        worst="the first time",
        ask=get("/docs"),
        fresh=True,
        status=200,
        budget=Budget(held=100_000, work=MOST),
    ),
    Row(route=ANY, worst="a path of 60 kB", ask=get("/v1/stores/" + "a/" * 30_000), status=404),
    Row(
        route=ANY,
        worst="a query of 30 000 parameters",
        ask=get("/v1/stores/x/merge?" + "a&" * 30_000),
        status=400,
        budget=Budget(held=100_000),
    ),
    Row(route=ANY, worst="a method that no route has", ask=request("BREW", "/v1/stores"), status=(400, 405)),
)
