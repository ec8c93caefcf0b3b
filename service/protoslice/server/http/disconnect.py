"""Detects clients that disconnect before their response is complete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Never, Self

from starlette.types import Message, Receive

CLIENT_GONE = 499
"""The status that logs and metrics show if the client disconnected first."""
GRACE_SECONDS = 0.1
"""The seconds after which work is watched for a disconnect.

Shorter work is not watched, because watching costs a task.
"""


class ClientGone(Exception):
    """Raised when the client closed the connection before the response was complete."""


_AHEAD = 16
"""The maximum number of body messages that are read ahead. A message of the server has about 64 KiB."""


class CancelOnDisconnect:
    """A context that stops the work of its task with `ClientGone` soon after the client disconnects."""

    __slots__ = ("_due", "_gone", "_is_spared", "_receive", "_task", "_timer", "_watch", "_whole")

    def __init__(self, receive: Receive, *, whole: bool = True, is_spared: Callable[[], bool] = lambda: False) -> None:
        """Read `receive` once the handler has the `whole` request. Until then, only the handler reads from `receive`.

        If `is_spared` returns True when the client disconnects, the work runs to its end.
        """
        self._receive = receive
        self._whole = whole
        self._is_spared = is_spared
        self._due = False
        self._gone = False
        self._watch: asyncio.Task[None] | None = None
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(GRACE_SECONDS, self._late)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unwatch()
        # The task and the watch refer to this object. References back to the task and the watch would form cycles,
        # which only the garbage collector removes.
        task, self._task, self._watch = self._task, None, None
        if not self._gone or task is None or not isinstance(error, asyncio.CancelledError):
            return
        # Raise only if the watch alone cancelled the task. If a shutdown cancelled the task too, this cancellation
        # continues.
        if task.uncancel() == 0:
            raise ClientGone from None

    def watch(self) -> None:
        """Start watching at once, for work that is known to take long."""
        if self._watch is None:
            self._watch = asyncio.create_task(self._wait())

    def unwatch(self) -> None:
        """Stop watching, because the rest of the work is done in any case."""
        self._due = False
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()

    def body_ended(self) -> None:
        """Record that the handler has the whole body. The next message can only be a disconnect."""
        self._whole = True
        if self._due:
            self.watch()

    def _late(self) -> None:
        self._due = True
        if self._whole:
            self.watch()

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._is_spared():
            return
        self._gone = True
        if self._task is not None:
            self._task.cancel()


class BodyAhead:
    """A body that is read ahead, so that a disconnect is noticed while earlier bytes are processed."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._came: asyncio.Queue[Message | Exception] = asyncio.Queue(_AHEAD)

    async def receive(self) -> Message:
        """Return the next message to the watch.

        `next` later returns the same message. If receiving fails, only `next` raises the error.
        """
        try:
            message = await self._receive()
        except Exception as error:
            await self._came.put(error)
            await wait_for_ever()
        if message["type"] == "http.request":
            await self._came.put(message)
        return message

    async def next(self) -> Message:
        """Return the next message that the watch has received, or raise its error."""
        message = await self._came.get()
        if isinstance(message, Exception):
            raise message
        return message


async def wait_for_ever() -> Never:
    """Wait until the task is cancelled."""
    await asyncio.Event().wait()
    raise AssertionError("this event is never set")
