"""Messages as JSON or text, made by a few processes that may be stopped: see `render_worker`."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from typing import Final

from protoslice.errors import LimitExceeded, Unsupported
from protoslice.server.render_worker import LENGTH

__all__ = ["Renderer"]

_MODULE: Final = "protoslice.server.render_worker"
_MEMORY_PER_BYTE: Final = 40
_MEMORY_BYTES: Final = 1 << 30
_GROWTH: Final = 8
"""A rendered form is at most this many times the largest message, or it is refused."""


class Renderer:
    """A pool of processes, started when first needed. One that is too slow, too large or no longer wanted is killed."""

    def __init__(self, *, processes: int, timeout_seconds: float, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._timeout = timeout_seconds
        self._free = asyncio.Semaphore(processes)
        self._idle: list[Process] = []

    async def render(self, data: bytes, *, type_name: str, form: str, descriptor_set: bytes = b"") -> bytes:
        """The message `data` of type `type_name` in `form`: `json` or `text`."""
        async with self._free:
            process = self._idle.pop() if self._idle else await self._start()
            try:
                async with asyncio.timeout(self._timeout):
                    body = await _ask(process, data, type_name, form, descriptor_set, _GROWTH * self.max_bytes)
            except TimeoutError:
                await _kill(process)
                raise LimitExceeded(f"rendering took longer than {self._timeout:g} seconds: ask for a part") from None
            except (asyncio.IncompleteReadError, ConnectionError):
                await _kill(process)
                raise LimitExceeded("rendering took more memory than it may have: ask for a part") from None
            except (Unsupported, LimitExceeded):
                self._idle.append(process)
                raise
            except BaseException:
                await _kill(process)
                raise
            self._idle.append(process)
            return body

    async def close(self) -> None:
        """End the processes."""
        idle, self._idle = self._idle, []
        for process in idle:
            await _kill(process)

    async def _start(self) -> Process:
        memory = _MEMORY_BYTES + _MEMORY_PER_BYTE * self.max_bytes
        return await asyncio.create_subprocess_exec(sys.executable, "-m", _MODULE, str(memory), stdin=PIPE, stdout=PIPE)


async def _ask(process: Process, data: bytes, type_name: str, form: str, descriptor_set: bytes, most: int) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    head = {"type": type_name, "form": form, "schema": len(descriptor_set), "data": len(data)}
    text = json.dumps(head).encode()
    process.stdin.write(LENGTH.pack(len(text)) + text + descriptor_set)
    process.stdin.write(data)
    await process.stdin.drain()
    size = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))[0]
    said = json.loads(await process.stdout.readexactly(size))
    if said["data"] > most:
        await _kill(process)
        raise ConnectionError
    body = await process.stdout.readexactly(said["data"])
    if said["error"] == "limit":
        raise LimitExceeded("rendering took more memory than it may have: ask for a part")
    if said["error"]:
        raise Unsupported(said["detail"])
    return body


async def _kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
