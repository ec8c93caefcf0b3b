"""A server of the standard library that runs in a thread of its own."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def in_a_thread(server: socketserver.TCPServer) -> Iterator[str]:
    """Serve; gives `host:port`. The server is closed afterwards."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            host, port = server.server_address[:2]
            yield f"{host!s}:{port}"
        finally:
            server.shutdown()
            thread.join(10)
