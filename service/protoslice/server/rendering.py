"""Renders messages as JSON or text in worker processes, whose memory and time are limited.

The protobuf runtime holds the interpreter's lock during a whole parse. JSON takes many times the memory of a message.
`anyio.to_process` is not used because it loses a process whose caller is cancelled while the process starts.

A worker is `python -m protoslice.server.rendering MEMORY`. It reads pickled arguments of `render` on standard input.
For each call, it writes an outcome, a length and a body. The body is the rendered form or the reason for a failure.
"""

from __future__ import annotations

import asyncio
import pickle
import resource
import struct
import sys
from asyncio.subprocess import PIPE, Process
from typing import Final

from protoslice.errors import LimitExceeded, ProtosliceError, Unsupported

_TIMEOUT_SECONDS: Final = 60
_MEMORY_PER_BYTE: Final = 40
_MEMORY_BYTES: Final = 1 << 30
_GROWTH: Final = 8
"""The limit on the size of a rendered form, as a multiple of the largest message's size. Larger forms are refused."""
_HEAD: Final = struct.Struct(">BQ")
_RENDERED, _UNSUPPORTED, _NO_MEMORY = range(3)
_TOO_LARGE: Final = "Rendering takes too much memory: ask for a smaller part"


class Renderer:
    """A pool of workers that start on demand.

    A worker is killed if it is too slow, if its result is too large, or if its client disconnects.
    """

    def __init__(self, *, processes: int, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._free = asyncio.Semaphore(processes)
        self._idle: list[Process] = []

    async def render(self, data: bytes, *, type_name: str, form: str, descriptor_set: bytes = b"") -> bytes:
        """Return the message `data` of type `type_name` in `form`, which is `json` or `text`."""
        call = pickle.dumps((type_name, form, descriptor_set, data))
        async with self._free:
            while self._idle:
                try:
                    return await self._use(self._idle.pop(), call)
                except (EOFError, ConnectionError):  # the worker may have died for another reason while it was idle
                    continue
            memory = _MEMORY_BYTES + _MEMORY_PER_BYTE * self.max_bytes
            command = (sys.executable, "-m", "protoslice.server.rendering", str(memory))
            try:
                return await self._use(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE), call)
            except (EOFError, ConnectionError):
                raise LimitExceeded(_TOO_LARGE) from None

    async def _use(self, process: Process, call: bytes) -> bytes:
        """Return the worker's response. Afterwards the worker is idle again, or was killed because it failed."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                outcome, body = await _ask(process, call, _GROWTH * self.max_bytes)
        except BaseException as error:
            await _kill(process)
            if isinstance(error, TimeoutError):
                limit = f"{_TIMEOUT_SECONDS} seconds"
                raise LimitExceeded(f"Rendering takes longer than {limit}: ask for a smaller part") from None
            raise
        self._idle.append(process)
        if outcome == _UNSUPPORTED:
            raise Unsupported(body.decode())
        return body

    async def close(self) -> None:
        """End the idle workers."""
        while self._idle:
            await _kill(self._idle.pop())


async def _ask(process: Process, call: bytes, most: int) -> tuple[int, bytes]:
    """Return the outcome and the body of a call.

    Raise `EOFError` or `ConnectionError` if the worker ends first, and `LimitExceeded` if it needs too much memory.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    if process.stdin.is_closing():
        raise EOFError
    process.stdin.write(call)
    await process.stdin.drain()
    outcome, size = _HEAD.unpack(await process.stdout.readexactly(_HEAD.size))
    if outcome == _NO_MEMORY or size > most:
        raise LimitExceeded(_TOO_LARGE)
    return outcome, await process.stdout.readexactly(size)


async def _kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


def _work(memory: int) -> None:
    """Answer calls until standard input ends, within `memory` bytes of address space."""
    from protoslice.schema.rendering import render

    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            call = pickle.load(source)
        except EOFError:
            return
        try:
            outcome, body = _RENDERED, render(*call)
        except MemoryError:
            outcome, body = _NO_MEMORY, b""
        except (ValueError, ProtosliceError) as error:
            outcome, body = _UNSUPPORTED, str(error).encode("utf-8", "replace")
        sink.write(_HEAD.pack(outcome, len(body)))
        sink.write(body)
        sink.flush()


if __name__ == "__main__":
    try:
        _work(int(sys.argv[1]))
    except MemoryError:
        sys.exit(1)
