"""Time, randomness and sizes, which the simulation replaces in the package."""

from __future__ import annotations

import asyncio
import random
import secrets
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime, tzinfo
from random import Random
from typing import Any, Final
from unittest.mock import patch

from tests.stores.simulation.loop import AskedWork, SimulatedPool

EPOCH: Final = 1_800_000_000.0
"""The time at which every history begins."""
SIZES: Final = {
    "BATCH": 48,
    "HEAD": 160,
    "LARGEST_HELD": 40,
    "LARGEST_INLINE": 200,
    "LARGEST_INLINE_SUMS": -1,
    "LARGEST_SUMLESS": -1,
    "LARGEST_ROW": 60,
    "LEAST_FOUND": 30,
    "LEAST_INDEXED": 40,
    "LEAST_SAMPLED": 20,
    "LEAST_SHARED": 30,
    "HEAVY": 200,
    "MOST_LIGHT": 2,
    "BLOCK": 4,
    "RUN": 3,
}
"""The limits of the package, so small that short files are handled like large ones."""


_PACKAGES = tuple(
    f"protoslice.{name}"
    for name in ("stores", "uploads", "ingest", "views", "serving", "catalog", "database", "concurrency", "schema")
)
"""The packages whose clocks and random numbers the simulation replaces."""


def _now() -> float:
    return EPOCH + asyncio.get_running_loop().time()


class _Datetime(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> _Datetime:
        return cls.fromtimestamp(_now(), tz)


@contextmanager
def nature(seed: int) -> Iterator[None]:
    """Replace time, randomness and sizes of the package; the same seed gives the same random numbers."""
    chance = Random(seed)
    random.seed(seed)
    replaced: list[tuple[Any, str, Any]] = [
        (time, "time", _now),
        (time, "time_ns", lambda: int(_now() * 1_000_000) * 1000),
        (secrets, "randbits", chance.getrandbits),
        (secrets, "token_bytes", lambda size=32: chance.randbytes(size)),
        (secrets, "token_hex", lambda size=32: chance.randbytes(size).hex()),
        (uuid, "uuid4", lambda: uuid.UUID(int=chance.getrandbits(128))),
        (asyncio, "run_coroutine_threadsafe", AskedWork),
        *_places(),
    ]
    with ExitStack() as stack:
        for target, name, value in replaced:
            stack.enter_context(patch.object(target, name, value))
        yield


_found: Final = list[tuple[Any, str, Any]]()


def _places() -> list[tuple[Any, str, Any]]:
    """Return the modules and names that hold a limit, the clock or a pool of threads."""
    for name, module in list(sys.modules.items()) if not _found else ():
        if name.startswith(_PACKAGES):
            for key, value in vars(module).items():
                if key in SIZES and isinstance(value, int):
                    _found.append((module, key, SIZES[key]))
                elif value is datetime and name == "protoslice.database.transactions":
                    _found.append((module, key, _Datetime))
                elif value is ThreadPoolExecutor:
                    _found.append((module, key, SimulatedPool))
                elif value is time.monotonic:
                    _found.append((module, key, lambda: asyncio.get_running_loop().time()))
    missing = {*SIZES, "datetime", "monotonic", "ThreadPoolExecutor"} - {name for _, name, _ in _found}
    assert not missing, f"the package has no {', '.join(sorted(missing))} any more: update SIZES and _PACKAGES"
    return _found
