"""Render messages as JSON or text in a few processes that can be stopped; each runs `worker`."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass
from typing import Final

from protoslice.errors import LimitExceeded, Unsupported
from protoslice.server.rendering.worker import LENGTH

_MODULE: Final = "protoslice.server.rendering.worker"
_MEMORY_PER_BYTE: Final = 40
_MEMORY_BYTES: Final = 1 << 30
_GROWTH: Final = 8
"""A rendered form is at most this many times the largest message, or it is refused."""


_TOO_LARGE: Final = "Rendering takes too much memory: ask for a smaller part"


class _Died(Exception):
    """The process ended before it had answered."""


@dataclass(frozen=True, slots=True)
class _Message:
    """Message to render in a process."""

    type_name: str
    form: str
    descriptor_set: bytes
    data: bytes

    def frame(self) -> tuple[bytes, ...]:
        """The message as it goes to the process."""
        lengths = {"schema": len(self.descriptor_set), "data": len(self.data)}
        head = json.dumps({"type": self.type_name, "form": self.form, **lengths}).encode()
        return LENGTH.pack(len(head)) + head, self.descriptor_set, self.data


class Renderer:
    """Pool of processes, started on demand; a process that is too slow, too large or unwanted is killed."""

    def __init__(self, *, processes: int, timeout_seconds: float, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._timeout = timeout_seconds
        self._free = asyncio.Semaphore(processes)
        self._idle: list[Process] = []

    async def render(self, data: bytes, *, type_name: str, form: str, descriptor_set: bytes = b"") -> bytes:
        """The message `data` of type `type_name` in `form`: `json` or `text`."""
        message = _Message(type_name, form, descriptor_set, data)
        async with self._free:
            while True:
                fresh = not self._idle
                process = await self._start() if fresh else self._idle.pop()
                try:
                    return await self._use(process, message)
                except _Died:
                    # One that had been idle may have died before, of something else.
                    if fresh:
                        raise LimitExceeded(_TOO_LARGE) from None

    async def _use(self, process: Process, message: _Message) -> bytes:
        """Message as rendered by the process, which is idle again afterwards, or dead."""
        sound = False
        try:
            async with asyncio.timeout(self._timeout):
                body = await _ask(process, message, _GROWTH * self.max_bytes)
            sound = True
            return body
        except TimeoutError:
            raise LimitExceeded(
                f"Rendering takes longer than {self._timeout:g} seconds: ask for a smaller part"
            ) from None
        except Unsupported:
            sound = True
            raise
        finally:
            if sound:
                self._idle.append(process)
            else:
                await _kill(process)

    async def close(self) -> None:
        """End the processes."""
        idle, self._idle = self._idle, []
        for process in idle:
            await _kill(process)

    async def _start(self) -> Process:
        memory = _MEMORY_BYTES + _MEMORY_PER_BYTE * self.max_bytes
        return await asyncio.create_subprocess_exec(sys.executable, "-m", _MODULE, str(memory), stdin=PIPE, stdout=PIPE)


async def _ask(process: Process, message: _Message, most: int) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    if process.stdin.is_closing():
        raise _Died
    try:
        process.stdin.writelines(message.frame())
        await process.stdin.drain()
        size = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))[0]
        said = json.loads(await process.stdout.readexactly(size))
        if said["error"] == "limit" or said["data"] > most:
            raise LimitExceeded(_TOO_LARGE)
        body = await process.stdout.readexactly(said["data"])
    except (asyncio.IncompleteReadError, ConnectionError):
        raise _Died from None
    if said["error"]:
        raise Unsupported(said["detail"])
    return body


async def _kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
