"""An event loop with simulated time and threads: it jumps to the next timer when nothing can run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")


class Stuck(Exception):
    """Nothing can run, and no timer is set."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """A loop without sockets, signals and waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.errors: list[dict[str, Any]] = []
        """Contexts of errors that no task awaited."""
        self.tasks: list[asyncio.Task[Any]] = []
        """All tasks: held, so that Python's garbage collection never ends one that waits for a dead replica."""
        self._selector = self
        self.set_exception_handler(lambda _, context: self.errors.append(context))

    def time(self) -> float:
        """Return the seconds since the history began."""
        return self.now

    def create_task(self, *arguments: Any, **named: Any) -> asyncio.Task[Any]:
        """See asyncio."""
        self.tasks.append(super().create_task(*arguments, **named))
        return self.tasks[-1]

    def select(self, timeout: float | None) -> list[object]:
        """Let `timeout` seconds pass, as a selector without files does."""
        if timeout is None:
            raise Stuck("nothing can run any more")
        self.now += max(0.0, timeout)
        return []

    def run_in_executor(  # type: ignore[override]
        self, executor: SimulatedPool | None, function: Callable[..., T], *arguments: Any
    ) -> asyncio.Future[T]:
        """Return the result of `function`, called in a thread that runs in lockstep with the loop."""
        return asyncio.wrap_future((executor or SimulatedPool()).submit(function, *arguments), loop=self)

    def _process_events(self, events: list[object]) -> None:
        """Do nothing: `select` returns no events."""

    def _write_to_self(self) -> None:
        """Do nothing: threads run only while the loop waits for them."""


class _Asking:
    """Message of a thread that needs `work` done on the loop."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self.work = work


class LockstepThread:
    """A thread that runs only while the loop waits for it, so that the same history takes the same course."""

    running: ClassVar[LockstepThread | None] = None

    def __init__(self) -> None:
        self._turn, self._back = threading.Lock(), threading.Lock()
        self._turn.acquire()
        self._back.acquire()
        self._call: Callable[[], object] | None = None
        self._message: _Asking | Future[Any] = Future()
        self._answer: Future[Any] = Future()
        threading.Thread(target=self._run, daemon=True).start()

    async def run(self, call: Callable[[], object]) -> Future[Any]:
        """Return the finished future of a call; do on the loop what it asks for meanwhile."""
        self._call = call
        self._hand_over()
        while isinstance(self._message, _Asking):
            self._answer, asked = Future(), self._message.work
            try:
                self._answer.set_result(await asked)
            except BaseException as error:
                self._answer.set_exception(error)
            self._hand_over()
        return self._message

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, done on the loop; for the thread itself."""
        self._message = _Asking(work)
        self._back.release()
        self._turn.acquire()
        result: T = self._answer.result()
        return result

    def end(self) -> None:
        """End an idle thread."""
        self._call = None
        self._turn.release()

    def _hand_over(self) -> None:
        LockstepThread.running = self
        self._turn.release()
        self._back.acquire()
        LockstepThread.running = None

    def _run(self) -> None:
        self._turn.acquire()
        while self._call is not None:
            done: Future[Any] = Future()
            try:
                done.set_result(self._call())
            except BaseException as error:
                done.set_exception(error)
            self._message = done
            self._back.release()
            self._turn.acquire()


class SimulatedPool:
    """Replaces `ThreadPoolExecutor`: its calls run in lockstep with the loop."""

    _idle: ClassVar[list[LockstepThread]] = []

    def __init__(self, *_: object, **__: object) -> None: ...

    def submit(self, call: Callable[..., T], *arguments: Any) -> Future[T]:
        """Return the future result of a call."""
        future: Future[T] = Future()

        async def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            thread = self._idle.pop() if self._idle else LockstepThread()
            done = await thread.run(lambda: call(*arguments))
            self._idle.append(thread)
            if (error := done.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(done.result())

        asyncio.get_running_loop().create_task(work())
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing."""


class AskedWork:
    """Replaces the future of `asyncio.run_coroutine_threadsafe`; the work begins when its result is wanted."""

    def __init__(self, work: Coroutine[Any, Any, Any], loop: object) -> None:
        self._work = work

    def result(self, timeout: float | None = None) -> Any:
        """Return the result of the work."""
        assert LockstepThread.running is not None, "only a worker thread may wait for the loop"
        return LockstepThread.running.ask(self._work)
