"""Detection of clients that disconnect while their response is being made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Never, Self

from starlette.types import Message, Receive

CLIENT_GONE = 499
"""The status that logs and metrics show when the client left first."""
GRACE_SECONDS = 0.1
"""Work shorter than this is not watched: watching costs a task."""


class ClientGone(Exception):
    """Raised when the client closed the connection before the response was complete."""


_AHEAD = 16
"""Messages of a body that are read ahead; a server's message has some 64 KiB."""


class CancelOnDisconnect:
    """A context in which the work of this task stops with `ClientGone` soon after the client disconnects."""

    __slots__ = ("_due", "_gone", "_is_spared", "_receive", "_task", "_timer", "_watch", "_whole")

    def __init__(self, receive: Receive, *, whole: bool = True, is_spared: Callable[[], bool] = lambda: False) -> None:
        """Take `receive`, which is read once the request is `whole`; until then the handler reads it.

        Work that `is_spared` when the client disconnects runs to its end.
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
        # Either task holds this object: one that held them in turn would leave both to the garbage collector.
        task, self._task, self._watch = self._task, None, None
        if not self._gone or task is None or not isinstance(error, asyncio.CancelledError):
            return
        # Only if no one but the watch cancelled: a shutdown that cancels as well continues.
        if task.uncancel() == 0:
            raise ClientGone from None

    def watch(self) -> None:
        """Start watching now, for work that is known to be long."""
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
        """Record that the handler has the whole body: the next message can only be a disconnect."""
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
    """Body that is read ahead, so that a disconnect is noticed while earlier bytes are processed."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._came: asyncio.Queue[Message | Exception] = asyncio.Queue(_AHEAD)

    async def receive(self) -> Message:
        """Return the next message, for the watch; `next` returns it again, or raises what failed."""
        try:
            message = await self._receive()
        except Exception as error:
            await self._came.put(error)
            await wait_for_ever()
        if message["type"] == "http.request":
            await self._came.put(message)
        return message

    async def next(self) -> Message:
        """Return the next message that a watch received, or raise its error."""
        message = await self._came.get()
        if isinstance(message, Exception):
            raise message
        return message


async def wait_for_ever() -> Never:
    """Wait until the task is cancelled."""
    await asyncio.Event().wait()
    raise AssertionError("this event is never set")
