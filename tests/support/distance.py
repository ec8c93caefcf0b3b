"""Line to a distant storage: each request waits, and is counted by method and kind of object."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

_PIECE: Final = 256 << 10


class Distance:
    """Counts and delays the requests of connections to `endpoint`, such as `http://127.0.0.1:9000`."""

    def __init__(self, endpoint: str, seconds: float) -> None:
        parts = urlsplit(endpoint)
        self._target = parts.hostname, parts.port
        self.seconds = seconds
        self.seen: Counter[str] = Counter()
        """Requests by method and first segments of the key, such as `GET objects`."""
        self.endpoint = ""
        """Address of the line, once it is open."""

    def reset(self) -> None:
        """Forget the requests that were seen."""
        self.seen.clear()

    async def serve(self, ready: threading.Event, over: asyncio.Event) -> None:
        """Relay connections until `over`."""
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0, limit=_PIECE)
        self.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        await over.wait()
        server.close()
        relays = asyncio.all_tasks() - {asyncio.current_task()}
        for task in relays:
            task.cancel()
        await asyncio.gather(*relays, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._target
        far_reader, far_writer = await asyncio.open_connection(host, port, limit=_PIECE)
        answered = asyncio.Event()
        answered.set()

        async def there() -> None:
            # Clients wait for an answer before their next request: what follows one begins a request.
            while data := await reader.read(_PIECE):
                if answered.is_set():
                    answered.clear()
                    self._count(data)
                    await asyncio.sleep(self.seconds)
                far_writer.write(data)
                await far_writer.drain()
            far_writer.write_eof()

        async def back() -> None:
            while data := await far_reader.read(_PIECE):
                answered.set()
                writer.write(data)
                await writer.drain()

        tasks = [asyncio.create_task(there()), asyncio.create_task(back())]
        try:
            with suppress(asyncio.CancelledError):  # the line ends
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for each in (writer, far_writer):
                with suppress(OSError):
                    each.close()

    def _count(self, head: bytes) -> None:
        method, target, *_ = [*head.split(b"\r\n", 1)[0].decode("latin-1").split(" "), "", ""]
        path, _, query = target.partition("?")
        kind = "list" if "list-type=" in query else "/".join(path.split("/")[2:4])
        self.seen[f"{method} {kind}"] += 1


@contextmanager
def far_away(endpoint: str, seconds: float) -> Iterator[Distance]:
    """A line to `endpoint` on which each request takes so much longer."""
    distance = Distance(endpoint, seconds)
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(distance.serve(ready, over)), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield distance
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()
