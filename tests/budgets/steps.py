"""A counter of the steps that Python makes on the event loop's thread, for each callback."""

from __future__ import annotations

import asyncio
import functools
import json
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import get_ident
from types import CodeType, FrameType, ModuleType
from typing import Any, Final

MOST: Final = 5_000_000
"""The most steps that are counted for a callback or for work, because counting makes Python ten times as slow."""
_SAMPLE: Final = 1 << 10

Trace = Callable[[FrameType, str, Any], Any]
Add = Callable[[int], None]


class Steps:
    """The steps of the callback that held the loop longest: lines, calls, returns of Python, and calls into C.

    A callback is all code that runs between two returns to the loop. A turn is all callbacks between two polls of the
    loop. No connection waits longer than one turn.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._base: FrameType | None = None
        self._thread = 0
        self._trace: Trace | None = None
        self._turning = False
        self._hot: Counter[CodeType] = Counter()
        self._reset()

    def _reset(self) -> None:
        self._count = self._callback_began = self._turn_began = 0
        self.longest = self.longest_turn = 0
        self.where: list[str] = []
        self._hot.clear()

    def begin(self) -> None:
        """Start to count; the loop itself calls this as a callback."""
        self._reset()
        self._base, self._thread = sys._getframe().f_back, get_ident()
        self._trace = self._tracing()
        self._loop.call_soon(self._on)

    def end(self) -> None:
        """Stop counting; the loop itself calls this as a callback."""
        sys.settrace(None)
        self._callback_ends()
        self._turn_ends()
        self._base = self._trace = None

    @property
    def all(self) -> int:
        """Return the steps of all callbacks together."""
        return self._count

    def add(self, steps: int) -> None:
        """Count the steps of a call in C, if the loop's thread made the call."""
        if self._trace is not None and get_ident() == self._thread:
            self._count += steps

    def _on(self) -> None:
        if self._trace is not None:
            sys.settrace(self._trace)

    def _tracing(self) -> Trace:
        base, own = self._base, {Steps._turn_ends.__code__, Steps._on.__code__, Steps.end.__code__}

        def step(frame: FrameType, event: str, arg: Any) -> Trace:
            self._count += 1
            if not self._count % _SAMPLE:
                self._sampled(frame.f_code)
            return step

        def entered(frame: FrameType, event: str, arg: Any) -> Trace | None:
            if frame.f_code in own:
                return None
            if frame.f_back is base:
                self._callback_ends()
            return step(frame, event, arg)

        return entered

    def _sampled(self, code: CodeType) -> None:
        self._hot[code] += 1
        if self._count - self._callback_began > MOST:
            sys.settrace(None)
            self._loop.call_soon(self._on)

    def _callback_ends(self) -> None:
        steps = self._count - self._callback_began
        if steps > self.longest:
            self.longest = steps
            self.where = [f"{code.co_qualname} {count}" for code, count in self._hot.most_common(3)]
        self._hot.clear()
        self._callback_began = self._count
        if not self._turning:
            self._turning = True
            self._loop.call_soon(self._turn_ends)

    def _turn_ends(self) -> None:
        self._turning = False
        self.longest_turn = max(self.longest_turn, self._count - self._turn_began)
        self._turn_began = self._count


class Work:
    """The Python steps of all pool threads that work for the loop; each step delays the loop a little."""

    def __init__(self) -> None:
        self.steps = 0
        self.on = False
        self.under_way = 0
        """The number of calls that pools have received and not finished."""

    def begin(self) -> None:
        """Start to count."""
        self.steps, self.on = 0, True

    def end(self) -> None:
        """Stop counting."""
        self.on = False

    def watch_pools(self) -> None:
        """Count the work that any pool receives."""
        submit = ThreadPoolExecutor.submit

        def submitted(pool: ThreadPoolExecutor, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
            self.under_way += 1
            made = submit(pool, self._counted, call, *args, **named)
            made.add_done_callback(self._ended)
            return made

        ThreadPoolExecutor.submit = submitted  # type: ignore[method-assign, assignment]

    def _ended(self, made: Future[Any]) -> None:
        self.under_way -= 1

    def _counted(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        if not self.on:
            return call(*args, **named)
        sys.settrace(self._step)
        try:
            return call(*args, **named)
        finally:
            sys.settrace(None)

    def _step(self, frame: FrameType, event: str, arg: Any) -> Trace:
        self.steps += 1
        if self.steps > MOST or not self.on:
            sys.settrace(None)
        return self._step


_PARSED: Final = 16
"""The bytes of JSON that take as long as a line of Python."""
_MOVED: Final = 256
"""The bytes that are copied, hashed or compared in the time of one line of Python."""


def weigh(engine: ModuleType, add: Add) -> None:
    """Make each call of the engine and of `json` report its steps to `add`."""
    json.loads, json.dumps = _weighed(json.loads, add, _PARSED), _weighed(json.dumps, add, _PARSED)
    for name, found in list(vars(engine).items()):
        if isinstance(found, type):
            _weigh_methods(found, add)
        elif callable(found) and not name.startswith("_"):
            setattr(engine, name, _weighed(found, add))


def _weigh_methods(kind: type, add: Add) -> None:
    for name, found in list(vars(kind).items()):
        if isinstance(found, staticmethod) and not name.startswith("_"):
            setattr(kind, name, staticmethod(_weighed(getattr(kind, name), add)))
        elif callable(found) and not name.startswith("_"):
            setattr(kind, name, _weighed(found, add))


def _weighed(call: Callable[..., Any], add: Add, size: int = _MOVED) -> Callable[..., Any]:
    @functools.wraps(call)
    def weighed(*given: Any, **named: Any) -> Any:
        found = call(*given, **named)
        add(sum(_steps(value, size) for value in (*given, found)))
        return found

    return weighed


def _steps(value: object, size: int) -> int:
    """Return a step for every `size` bytes, and one for each element of a list."""
    if isinstance(value, bytes | bytearray | memoryview | str):
        return len(value) // size
    return len(value) if isinstance(value, list | tuple) else 0
