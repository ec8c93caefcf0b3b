"""An event loop with simulated time: it jumps to the next timer when nothing can run.

Work of the package's threads runs in the loop, and so at one moment. When such work waits for the storage, a nested run
of the loop does other work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from heapq import heappop
from typing import Any, TypeVar

T = TypeVar("T")


class Stuck(Exception):
    """The error that nothing can run and no timer is set."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """A loop without sockets, signals and waiting."""

    _scheduled: list[asyncio.TimerHandle]
    _ready: Any

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.tasks: list[asyncio.Task[Any]] = []
        """All tasks, held so that Python's garbage collection ends none."""
        self.set_exception_handler(lambda *_: None)

    def time(self) -> float:
        """Return the seconds since the history began."""
        return self.now

    def create_task(self, *arguments: Any, **named: Any) -> asyncio.Task[Any]:
        """See asyncio."""
        self.tasks.append(super().create_task(*arguments, **named))
        return self.tasks[-1]

    def run_in_executor(self, _: object, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Return the result of `function`."""
        return asyncio.wrap_future(SimulatedPool().submit(function, *arguments), loop=self)

    def run_until_done(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, for a task that cannot wait otherwise."""
        waiting, task = asyncio.current_task(self), self.create_task(work)
        assert waiting is not None
        asyncio.tasks._leave_task(self, waiting)
        try:
            while not task.done():
                self._run_once()
        finally:
            asyncio.tasks._enter_task(self, waiting)
        result: T = task.result()
        return result

    def _run_once(self) -> None:
        while not self._ready:
            if not self._scheduled:
                raise Stuck("nothing can run any more")
            timer = heappop(self._scheduled)
            timer._scheduled = False  # type: ignore[attr-defined]
            if not timer.cancelled():
                self.now = max(self.now, timer.when())
                self._ready.append(timer)
        handle = self._ready.popleft()
        if not handle.cancelled():
            handle._run()

    def _process_events(self, _: object) -> None: ...

    def _write_to_self(self) -> None: ...


class SimulatedPool:
    """A replacement for `ThreadPoolExecutor`."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def submit(self, call: Callable[..., T], *arguments: Any) -> Future[T]:
        """Return the future result of a call."""
        future: Future[T] = Future()

        async def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call(*arguments))
                except BaseException as error:
                    future.set_exception(error)

        asyncio.get_running_loop().create_task(work())
        return future

    def shutdown(self, **_: object) -> None:
        """Do nothing."""


class AskedWork:
    """A replacement for the future of `asyncio.run_coroutine_threadsafe`."""

    def __init__(self, work: Coroutine[Any, Any, Any], loop: SimulatedLoop) -> None:
        self._work = work
        self._loop = loop

    def result(self) -> Any:
        """Return the result of the work."""
        return self._loop.run_until_done(self._work)
