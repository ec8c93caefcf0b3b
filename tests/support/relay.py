"""A line to a service that counts its bytes, and breaks or hangs after so many of them."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Final, Literal, Self

_STEP: Final = 1 << 20

Way = Literal["up", "down"]


class Relay:
    """Relays connections to the service at `url`, up to a number of bytes `up` to it or `down` from it.

    Then all connections break, once; or, when it `holds`, nothing moves any more. With `cuts`, each connection breaks
    after its next number of bytes, in either direction.
    """

    def __init__(
        self,
        url: str,
        *,
        up: float = math.inf,
        down: float = math.inf,
        holds: bool = False,
        cuts: Iterator[int] | None = None,
    ) -> None:
        self.lead_to(url)
        self._cuts = cuts
        self.cut = 0
        """Connections that broke after their number of bytes."""
        self._lock = threading.Lock()
        self._alive: list[socket.socket] = []
        self._over = threading.Event()
        self.reached = threading.Event()
        """Set when the bytes have gone through after which it breaks or hangs."""
        self.passed: dict[Way, int] = {}
        """Bytes that have gone through, those of headers too."""
        self.begin(up=up, down=down, holds=holds)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, url: str) -> None:
        """Lead connections to come to the service at `url`."""
        host, _, port = url.removeprefix("http://").partition(":")
        self._service = host, int(port)

    def begin(self, *, up: float = math.inf, down: float = math.inf, holds: bool = False) -> None:
        """Break all connections there are, and count anew."""
        self._over.set()
        self._break()
        with self._lock:
            self._over, self._holds = threading.Event(), holds
            self._left: dict[Way, float] = {"up": up, "down": down}
            self.passed |= {"up": 0, "down": 0}
        self.reached.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        _shut(self._listener)
        self._listener.close()
        self._break()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with suppress(OSError), near, socket.create_connection(self._service) as far:
            with self._lock:
                self._alive += (near, far)
                left = [math.inf if self._cuts is None else next(self._cuts)]
            back = threading.Thread(target=self._pump, args=(far, near, "down", left), daemon=True)
            back.start()
            self._pump(near, far, "up", left)
            back.join()

    def _pump(self, source: socket.socket, sink: socket.socket, way: Way, left: list[float]) -> None:
        """`left` has the bytes after which this connection breaks."""
        over = self._over
        with suppress(OSError):
            while (data := source.recv(_STEP)) and not over.is_set():  # bytes under way at the end are not counted
                due = self._take(way, len(data))
                with self._lock:
                    kept = int(min(due, left[0]))
                    left[0] -= due
                    self.passed[way] -= due - kept
                    self.cut += left[0] <= 0 < left[0] + due
                sink.sendall(data[:kept])
                if kept < due:
                    break
                if due < len(data):
                    self._stop(over)
        _shut(source)
        _shut(sink)

    def _take(self, way: Way, size: int) -> int:
        """Number of bytes, of `size`, that go through."""
        with self._lock:
            due = int(min(size, self._left[way]))
            self._left[way] -= due
            self.passed[way] += due
            return due

    def _stop(self, over: threading.Event) -> None:
        self.reached.set()
        if self._holds:
            over.wait()
            return
        with self._lock:
            self._left = {"up": math.inf, "down": math.inf}
        self._break()

    def _break(self) -> None:
        """End all connections; their pumps end by that."""
        with self._lock:
            alive, self._alive = self._alive, []
        for each in alive:
            _shut(each)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
