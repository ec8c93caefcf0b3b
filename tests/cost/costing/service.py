"""The service with a probe inside: `python service.py near|far`, set up by its environment as ever.

Standard input takes `begin` and `end`, a line each. Standard output gives the address, then `{}` for every `begin`, and
for every `end` what was measured since.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from threading import Thread
from time import monotonic
from typing import Any

from costing.counted import CountedStorage
from costing.memory import forget_peak, peak, resident
from costing.steps import MOST, Steps, Work
from costing.weighed import weigh
from protoslice import _core
from protoslice.server import services
from protoslice.server.app import Application, create_app
from protoslice.server.settings import Settings, read_settings
from protoslice.server.telemetry import metrics
from protoslice.server.transport import run as running
from protoslice.storage import Storage, open_storage

POLL_SECONDS = 0.02
PATIENCE_SECONDS = 30
_NEVER = 1e6


class Probe:
    """Measures one application, which it learns of when that is made."""

    def __init__(self, *, near: bool) -> None:
        self._near = near
        self._storage: CountedStorage | None = None
        self._app: Application | None = None
        self._steps: Steps | None = None
        self._work = Work()
        self._before = (0, 0, 0)

    def create_app(self, settings: Settings) -> Application:
        """The application, remembered."""
        self._app = create_app(settings)
        return self._app

    @asynccontextmanager
    async def open_storage(self, uri: str, options: dict[str, str]) -> AsyncIterator[Storage]:
        """The storage, counted; opened on the loop that serves."""
        async with open_storage(uri, options) as inner:
            self._storage = CountedStorage(inner, near=self._near)
            self._steps = Steps(asyncio.get_running_loop())
            self._work.watch_pools()
            weigh(_core, self._steps.add)
            Thread(target=self._obey, args=[asyncio.get_running_loop()], daemon=True).start()
            yield self._storage

    def _obey(self, loop: asyncio.AbstractEventLoop) -> None:
        for line in sys.stdin:
            said = self._begin(loop) if line.strip() == "begin" else self._end(loop)
            print(json.dumps(said), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)  # the test process has gone, and nobody else would end this one

    def _begin(self, loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
        assert self._storage is not None
        assert self._steps is not None
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        forget_peak()
        self._before = (resident(), self._storage.written, self._storage.calls)
        self._work.begin()
        _called(loop, self._steps.begin)
        return {}

    def _end(self, loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
        assert self._storage is not None
        assert self._steps is not None
        asyncio.run_coroutine_threadsafe(self._quiet(), loop).result()
        _called(loop, self._steps.end)
        self._work.end()
        memory, written, calls = self._before
        return {
            "held": self._steps.longest,
            "turn": self._steps.longest_turn,
            "loop": self._steps.all,
            "work": min(self._work.steps, MOST),
            "where": self._steps.where,
            "memory": peak() - memory,
            "written": self._storage.written - written,
            "calls": self._storage.calls - calls,
        }

    async def _quiet(self) -> None:
        """Return when no request and no work of threads has been under way for two looks, or for too long."""
        assert self._app is not None
        looks, until = 0, monotonic() + PATIENCE_SECONDS
        while looks < 2 and monotonic() < until:
            busy = self._app.services.metrics.under_way or self._work.under_way
            looks = 0 if busy else looks + 1
            await asyncio.sleep(POLL_SECONDS)


def _called(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Have the loop make a call, and wait for it."""
    done: Future[None] = Future()
    loop.call_soon_threadsafe(call)
    loop.call_soon_threadsafe(done.set_result, None)
    done.result()


def main() -> None:
    """Serve, as `protoslice serve` does."""
    probe = Probe(near=sys.argv[1] == "near")
    vars(running)["create_app"] = probe.create_app
    vars(services)["open_storage"] = probe.open_storage
    # Tasks of the service itself are no request's cost, and would count as that of whichever is under way.
    vars(services)["SHARED_SECONDS"] = vars(metrics)["TOTALS_EVERY_SECONDS"] = _NEVER
    running.run(read_settings({"port": 0, "draft_quiet_seconds": 0}))


if __name__ == "__main__":
    main()
