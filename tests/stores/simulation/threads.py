"""Worker threads in lockstep: each runs only while the loop waits for it, so races cannot happen."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")


class Asking:
    """Message of a thread that needs `work` done on the loop before it goes on."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self.work = work


Said = Asking | Future[Any]


class LockstepThread:
    """A thread that takes calls. `begin`, `answer` and `throw` let it run until it asks or has a result."""

    running: ClassVar[LockstepThread | None] = None
    """The thread that runs now, if any."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._back = threading.Lock()
        self._turn.acquire()
        self._back.acquire()
        self._call: Callable[[], object] | None = None
        self._said: Said = Future()
        self._answer: Future[Any] = Future()
        threading.Thread(target=self._run, daemon=True).start()

    def begin(self, call: Callable[[], object]) -> Said:
        """Let it make a call."""
        self._call = call
        return self._hand_over()

    def answer(self, result: object) -> Said:
        """Let it go on with what it asked for."""
        self._answer = Future()
        self._answer.set_result(result)
        return self._hand_over()

    def throw(self, error: BaseException) -> Said:
        """Let it go on with the reason why what it asked for cannot be had."""
        self._answer = Future()
        self._answer.set_exception(error)
        return self._hand_over()

    def end(self) -> None:
        """Let an idle thread end."""
        self._call = None
        self._turn.release()

    def ask(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of `work`, done on the loop; for the thread itself."""
        self._said = Asking(work)
        self._back.release()
        self._turn.acquire()
        return self._answer.result()

    def _hand_over(self) -> Said:
        LockstepThread.running = self
        self._turn.release()
        self._back.acquire()
        LockstepThread.running = None
        return self._said

    def _run(self) -> None:
        self._turn.acquire()
        while self._call is not None:
            done: Future[Any] = Future()
            try:
                done.set_result(self._call())
            except BaseException as error:
                done.set_exception(error)
            self._said = done
            self._back.release()
            self._turn.acquire()


class _Handed:
    """Stand-in for the future of work handed to the loop, which begins when its result is asked for."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work = work

    def result(self, timeout: float | None = None) -> Any:
        """The result of the work."""
        assert LockstepThread.running is not None, "only a worker thread may wait for the loop"
        return LockstepThread.running.ask(self._work)


def run_coroutine_threadsafe(work: Coroutine[Any, Any, Any], loop: object) -> _Handed:
    """Stands in for the function of this name in asyncio."""
    return _Handed(work)


class SimulatedPool:
    """Stands in for a pool of threads: its calls are made by the threads of the loop."""

    def __init__(self, *settings: object, **named: object) -> None: ...

    def submit(self, call: Callable[..., T], *args: Any) -> Future[T]:
        """The result of a call."""
        loop: Any = asyncio.get_running_loop()
        submitted: Future[T] = loop.submit(lambda: call(*args))
        return submitted

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing is to be ended."""
