"""The service with a probe inside: `python -m tests.budgets.service near|far`, with the usual settings.

Standard input takes `begin` and `end`, a line each. Standard output gives the address, then `{}` for every `begin`. For
every `end`, it gives the costs since the last `begin`.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any, Final, TypeVar

from tests.budgets.steps import MOST, Steps, Work, weigh

from protoslice import _core
from protoslice.server import services
from protoslice.server.app import Application, create_app
from protoslice.server.pages import html
from protoslice.server.settings import Settings, read_settings
from protoslice.server.telemetry import metrics
from protoslice.server.transport import run as running
from protoslice.storage import Abilities, ObjectKey, Span, Storage, open_storage
from protoslice.storage.interface import Buffer, Writer
from protoslice.storage.wrappers import InterceptedStorage, WrappedWriter

T = TypeVar("T")

POLL_SECONDS = 0.02
PATIENCE_SECONDS = 30
_NEVER = 1e6
_RESET_PEAK: Final = "5"


class CountedStorage(InterceptedStorage):
    """A storage that counts one call for each request that a bucket would get; a span of `get_ranges` is one call.

    Storage that is not `near` opens no files, just like a bucket, so all reads are calls.
    """

    def __init__(self, inner: Storage, *, near: bool) -> None:
        super().__init__(inner)
        self._near = near
        self.calls = 0
        self.written = 0

    @property
    def abilities(self) -> Abilities:
        """See `Storage.abilities`."""
        inner = super().abilities
        return inner if self._near else replace(inner, open_file=False)

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        """See `InterceptedStorage.intercept`."""
        if name != "write":  # pieces of one object; their number depends on the number of bytes
            self.calls += 1
        return await call()

    async def get_ranges(self, key: ObjectKey, spans: Sequence[Span], *, if_etag: str | None = None) -> Sequence[bytes]:
        """See `Storage.get_ranges`."""
        self.calls += len(spans) - 1
        return await super().get_ranges(key, spans, if_etag=if_etag)

    async def put(self, key: ObjectKey, data: Buffer) -> str:
        """See `Storage.put`."""
        self.written += len(data)
        return await super().put(key, data)

    async def writer(self, key: ObjectKey) -> Writer:
        """See `Storage.writer`."""
        return _CountedWriter(self, await super().writer(key))


class _CountedWriter(WrappedWriter):
    def __init__(self, storage: CountedStorage, inner: Writer) -> None:
        super().__init__(inner)
        self._storage = storage

    async def write(self, piece: Buffer) -> None:
        self._storage.written += len(piece)
        await super().write(piece)


def forget_peak() -> None:
    """Count the peaks from now on."""
    for pid in _family():
        with suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK)


def peak() -> int:
    """Return the peak of resident bytes since `forget_peak`, added up over all processes."""
    return sum(_bytes(pid, "VmHWM") for pid in _family())


def resident() -> int:
    """Return the bytes that are resident now."""
    return sum(_bytes(pid, "VmRSS") for pid in _family())


def _family() -> list[int]:
    pid = os.getpid()
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return found


def _bytes(pid: int, name: str) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) << 10
    return 0


class Probe:
    """A probe that measures one application, which registers with the probe when it is made."""

    def __init__(self, *, near: bool) -> None:
        self._near = near
        self._storage: CountedStorage | None = None
        self._app: Application | None = None
        self._steps: Steps | None = None
        self._work = Work()
        self._before = (0, 0, 0)

    def create_app(self, settings: Settings) -> Application:
        """Return the application, and remember it."""
        self._app = create_app(settings)
        return self._app

    @asynccontextmanager
    async def open_storage(self, uri: str, options: dict[str, str]) -> AsyncIterator[Storage]:
        """Return the storage, which counts its calls and is opened on the serving loop."""
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
        os.kill(os.getpid(), signal.SIGKILL)  # the test process has ended, and no one else would end this process

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
        """Wait until no request and no thread's work was in progress twice in a row, or until a time limit."""
        assert self._app is not None
        looks, until = 0, monotonic() + PATIENCE_SECONDS
        while looks < 2 and monotonic() < until:
            busy = self._app.services.metrics.under_way or self._work.under_way
            looks = 0 if busy else looks + 1
            await asyncio.sleep(POLL_SECONDS)


def _called(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Make the loop call a function, and wait for the call."""
    done: Future[None] = Future()
    loop.call_soon_threadsafe(call)
    loop.call_soon_threadsafe(done.set_result, None)
    done.result()


def main() -> None:
    """Serve, as `protoslice serve` does."""
    probe = Probe(near=sys.argv[1] == "near")
    vars(running)["create_app"] = probe.create_app
    vars(services)["open_storage"] = probe.open_storage
    # The page is also there in a checkout for which `make web` did not build one.
    vars(html)["_first"] = lambda: {"script": "main.js", "style": "style.css", "parts": {}}
    # The service's background tasks are no request's cost, but would count for the request in progress.
    vars(services)["SHARED_SECONDS"] = vars(metrics)["TOTALS_EVERY_SECONDS"] = _NEVER
    running.run(read_settings({"port": 0, "draft_quiet_seconds": 0}))


if __name__ == "__main__":
    main()
