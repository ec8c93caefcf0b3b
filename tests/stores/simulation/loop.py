"""An event loop whose time and threads are simulated: the same work on it runs the same way each time.

Time stands still while anything can run, and jumps to the next timer when nothing can. Callbacks run in the order in
which they became ready, as on any loop. Each callback belongs to the machine that its context names: those of a dead
machine are dropped, and those of one that stands still wait until it goes on.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from itertools import count
from typing import Any, Protocol, TypeVar

from tests.stores.simulation.threads import Asking, LockstepThread

T = TypeVar("T")

WORK_SECONDS = 0.001
"""The virtual time that a call in a worker thread takes."""
FUNERALS = 20
"""Times that a task is cancelled which waits for something again."""


class Owner(Protocol):
    """A machine, as far as the loop has to know it."""

    dead: bool
    still_until: float


MACHINE: ContextVar[Owner | None] = ContextVar("MACHINE", default=None)


class Stuck(Exception):
    """Nothing can run any more, though something is waited for."""


class _Call(asyncio.TimerHandle):
    """A callback that is to run, and the machine that it belongs to."""

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], loop: SimulatedLoop, context: Context
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self.owner = context.get(MACHINE)

    def cancel(self) -> None:
        asyncio.Handle.cancel(self)


class SimulatedLoop(asyncio.AbstractEventLoop):
    """See the top of this module."""

    def __init__(self) -> None:
        self.now = 0.0
        self.errors: list[dict[str, Any]] = []
        """Contexts of errors that no task was told of."""
        self._ready: deque[_Call] = deque()
        self._dropped: list[_Call] = []
        """Calls of dead machines, made without effect when those are buried."""
        self._timers: list[tuple[float, int, _Call]] = []
        self._numbers = count()
        self._tasks: list[asyncio.Task[Any]] = []
        self._idle: list[LockstepThread] = []
        self.ending = False
        """True when the history is over, and its remains are put away."""

    def run_until_complete(self, future: Coroutine[Any, Any, T]) -> T:  # type: ignore[override]
        """The result of a coroutine; `Stuck` when it can never come."""
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._close_generator)
        asyncio._set_running_loop(self)
        try:
            task = self.create_task(future)
            while not task.done():
                self._run_next()
            return task.result()
        finally:
            self._bury()
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _run_next(self) -> None:
        if not self._ready:
            self._jump()
        call = self._ready.popleft()
        owner = call.owner
        if owner is not None and not self.ending:
            if owner.dead:
                self._dropped.append(call)
                return
            if owner.still_until > self.now:
                heappush(self._timers, (owner.still_until, next(self._numbers), call))
                return
        if not call.cancelled():
            call._run()

    def _jump(self) -> None:
        if not self._timers:
            raise Stuck("nothing can run any more")
        when, _, call = heappop(self._timers)
        self.now = max(self.now, when)
        self._ready.append(call)

    def _bury(self) -> None:
        """End all tasks that are left. Whatever they do on their way out, their storage must not hear of it."""
        self.ending = True
        self._ready.extend(self._dropped)
        for _ in range(FUNERALS):
            left = [task for task in self._tasks if not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            with suppress(Stuck):
                while True:
                    self._run_next()
        for thread in self._idle:
            thread.end()
        self._tasks.clear()

    def _close_generator(self, generator: AsyncGenerator[Any, None]) -> None:
        self.create_task(generator.aclose())

    def time(self) -> float:
        """Seconds since the history began."""
        return self.now

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> _Call:  # type: ignore[override]
        """Run `callback` after all that can run already."""
        call = _Call(self.now, callback, args, self, copy_context() if context is None else context)
        self._ready.append(call)
        return call

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # threads run in lockstep with the loop

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Call:
        """Run `callback` at the time `when`; of those due at one time, in the order of these calls."""
        call = _Call(when, callback, args, self, copy_context() if context is None else context)
        heappush(self._timers, (when, next(self._numbers), call))
        return call

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Call:
        """Run `callback` after `delay` seconds."""
        return self.call_at(self.now + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        """See asyncio."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """See asyncio. The loop holds its tasks until the end, so that when one is collected is no accident."""
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        return task

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """The result of `func`, called in a thread."""
        return asyncio.wrap_future(self.submit(lambda: func(*args)), loop=self)

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Future result of `call`, made in a thread while the loop waits; not begun if cancelled before."""
        future: Future[T] = Future()
        self.create_task(self._work(call, future))
        return future

    async def _work(self, call: Callable[[], T], future: Future[T]) -> None:
        await asyncio.sleep(WORK_SECONDS)
        if not future.set_running_or_notify_cancel():
            return
        thread = self._idle.pop() if self._idle else LockstepThread()
        said = thread.begin(call)
        while isinstance(said, Asking):
            try:
                answer = await said.work
            except BaseException as refused:
                said = thread.throw(refused)
            else:
                said = thread.answer(answer)
        self._idle.append(thread)
        error = said.exception()
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(said.result())

    def get_debug(self) -> bool:
        """Never: debugging would change what runs."""
        return False

    def is_running(self) -> bool:
        """True: code that asks runs on it."""
        return True

    def is_closed(self) -> bool:
        """False: it holds nothing that would have to be closed."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what went wrong where nobody waits for it; the way of the dead to their graves does not count."""
        if not self.ending:
            self.errors.append(context)
