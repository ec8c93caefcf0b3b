"""Time, chance and sizes as the package meets them, in the hands of the simulation.

The clock, `secrets.token_hex` and the sizes of batches are replaced wherever a module of the package holds them, so no
module has to know that it is simulated.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, tzinfo
from inspect import isfunction
from typing import Any, Protocol
from unittest.mock import patch

from tests.stores.simulation.threads import SimulatedPool, run_coroutine_threadsafe

SIZES = {
    "BATCH": 48,
    "HEAD": 160,
    "LEAST_FOUND": 30,
    "LEAST_INDEXED": 40,
    "LEAST_SAMPLED": 20,
    "LEAST_SHARED": 30,
    "HEAVY": 200,
    "MOST_FILES": 1,
    "MOST_LIGHT": 2,
    "READ_AT_ONCE": 50,
}
"""Limits of the package, so small that the short files of a simulation take the ways of large ones."""


class Nature(Protocol):
    """Source of time and chance."""

    def time(self) -> float:
        """Seconds since the epoch, by the clock of the machine that asks."""

    def token_hex(self, nbytes: int | None = None) -> str:
        """See `secrets.token_hex`."""


class _Now:
    """The nature of the history that runs."""

    nature: Nature | None = None


def _nature() -> Nature:
    assert _Now.nature is not None, "no history runs"
    return _Now.nature


def _time() -> float:
    return _nature().time()


def _random() -> float:
    return int(_nature().token_hex(6), 16) / (1 << 48)


def _token_hex(nbytes: int | None = None) -> str:
    return _nature().token_hex(nbytes)


class _Datetime(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> _Datetime:
        return cls.fromtimestamp(_time(), tz)


_REPLACED: list[tuple[object, object]] = [
    (time.time, _time),
    (secrets.token_hex, _token_hex),
    (datetime, _Datetime),
    (asyncio.run_coroutine_threadsafe, run_coroutine_threadsafe),
    (ThreadPoolExecutor, SimulatedPool),
]


@contextmanager
def simulated() -> Iterator[Callable[[Nature], None]]:
    """While this lasts, the package lives in the nature that the function given was called with last."""
    undo: list[Callable[[], None]] = []
    try:
        for target, name, value in [*_globals(), *_everywhere()]:
            patched = patch.object(target, name, value)
            patched.start()
            undo.append(patched.stop)
        yield lambda nature: setattr(_Now, "nature", nature)
    finally:
        for each in reversed(undo):
            each()
        _Now.nature = None


def _globals() -> Iterator[tuple[object, str, object]]:
    yield time, "time", _time
    yield secrets, "token_hex", _token_hex
    yield random, "random", _random
    yield asyncio, "run_coroutine_threadsafe", run_coroutine_threadsafe


def _everywhere() -> Iterator[tuple[object, str, object]]:
    """Places in the package that hold time, chance or a limit, defaults of functions included."""
    for module_name, module in list(sys.modules.items()):
        if not module_name.startswith(("protoslice.stores", "protoslice.storage", "protoslice.concurrency")):
            continue
        for name, value in list(vars(module).items()):
            if name in SIZES and isinstance(value, int):
                yield module, name, SIZES[name]
            elif (other := _replacement(value)) is not None:
                yield module, name, other
            elif isfunction(value) and value.__module__ == module_name and value.__kwdefaults__:
                defaults: dict[str, Any] = {
                    key: _replacement(default) or default for key, default in value.__kwdefaults__.items()
                }
                if defaults != value.__kwdefaults__:
                    yield value, "__kwdefaults__", defaults


def _replacement(value: object) -> object | None:
    return next((other for original, other in _REPLACED if value is original), None)
