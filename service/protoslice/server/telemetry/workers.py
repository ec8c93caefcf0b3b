"""Metrics of all workers in one response; each publishes its own on a socket in a shared directory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

_SECONDS: Final = 2.0
"""Time for another worker to send its metrics; one that does not is left out."""
_MOST_BYTES: Final = 16 << 20
SHARED: Final = b"# What follows is the same in every worker."
"""Line of an exposition behind which no sample is one of the worker alone."""


class WorkerMetrics:
    """The workers of one supervisor, seen by one of them."""

    def __init__(self, folder: Path, number: int, workers: int) -> None:
        self._folder = folder
        self._number = number
        self._workers = workers

    @asynccontextmanager
    async def publish(self, render: Callable[[], bytes]) -> AsyncIterator[None]:
        """Send what `render` returns to each worker that connects, meanwhile."""

        async def send(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                writer.write(await asyncio.to_thread(render))
                await writer.drain()
            writer.close()

        server = await asyncio.start_unix_server(send, self._folder / str(self._number))
        try:
            yield
        finally:
            server.close()

    async def collect(self, own: bytes) -> bytes:
        """Return the metrics of all workers that answer; `own` are those of this one."""
        others = [number for number in range(self._workers) if number != self._number]
        received = await asyncio.gather(*map(self._receive, others))
        texts = {number: text for number, text in zip(others, received, strict=True) if text}
        return await asyncio.to_thread(merged, {self._number: own, **texts})

    async def _receive(self, number: int) -> bytes:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_SECONDS):
                reader, writer = await asyncio.open_unix_connection(self._folder / str(number))
                try:
                    return await _all(reader)
                finally:
                    writer.close()
        return b""


async def _all(reader: asyncio.StreamReader) -> bytes:
    """Return all bytes up to the end; none if there are too many."""
    found = bytearray()
    while piece := await reader.read(1 << 16):
        found += piece
        if len(found) > _MOST_BYTES:
            return b""
    return bytes(found)


def merged(texts: Mapping[int, bytes]) -> bytes:
    """Expositions of several workers as one: families together, each sample with the label `worker`.

    What all share has no such label and comes once, so that sums are right: that of the first worker in `texts`.
    """
    families: dict[bytes, list[bytes]] = {}
    shown = set[bytes]()
    for number, text in texts.items():
        label = b'worker="%d"' % number
        samples: list[bytes] = []
        head = b""
        shared = False
        for line in text.splitlines():
            if line == SHARED:
                shared = True
            elif line.startswith(b"# HELP "):
                head = line
            elif line.startswith(b"#"):
                samples = families.setdefault(head + b"\n" + line, [])
            elif shared:
                if (name := line.rpartition(b" ")[0]) not in shown:
                    shown.add(name)
                    samples.append(line)
            else:
                samples.append(_labelled(line, label))
    return b"".join(b"\n".join((head, *samples)) + b"\n" for head, samples in families.items())


def _labelled(line: bytes, label: bytes) -> bytes:
    """A sample with one more label. Its name has neither blanks nor braces, whatever its labels hold."""
    name, blank, value = line.partition(b" ")
    if b"{" not in name:
        return name + b"{" + label + b"}" + blank + value
    name, _, rest = line.partition(b"{")
    return name + b"{" + label + b"," + rest
