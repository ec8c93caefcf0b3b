"""A small web server on the loopback that serves ranges and conditions by the rules of RFC 9110."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from tests.support.wire import in_a_thread

from protoslice.storage.keys import ObjectKey


class RawWeb:
    """The objects of the server, with direct access."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.port = 0

    async def get(self, key: ObjectKey) -> bytes | None:
        """See `Raw.get`."""
        return self.objects.get(key.text)

    async def set(self, key: ObjectKey, data: bytes) -> None:
        """See `Raw.set`."""
        self.objects[key.text] = data

    async def remove(self, key: ObjectKey) -> None:
        """See `Raw.remove`."""
        del self.objects[key.text]

    async def names(self) -> Sequence[str]:
        """See `Raw.names`."""
        return sorted(self.objects)


@contextmanager
def web_server(tls: ssl.SSLContext | None = None) -> Iterator[RawWeb]:
    """Run a server, and yield it with its objects, which it serves below `/files/`."""
    raw = RawWeb()

    class Handler(_Handler):
        objects = raw.objects

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    raw.port = server.server_address[1]
    with in_a_thread(server):
        yield raw


class _Handler(BaseHTTPRequestHandler):
    objects: dict[str, bytes]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        data = self.objects.get(unquote(self.path).removeprefix("/files/"))
        if data is None:
            return self._answer(404, b"", None)
        etag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        if self.headers.get("If-Match", etag) != etag:
            return self._answer(412, b"", etag)
        first, _, last = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
        if not first:
            return self._answer(200, data, etag)
        if int(first) >= len(data):
            return self._answer(416, b"", None, f"bytes */{len(data)}")
        part = data[int(first) : int(last) + 1]
        return self._answer(206, part, etag, f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}")

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        return None

    def _answer(self, status: int, body: bytes, etag: str | None, content_range: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if etag is not None:
            self.send_header("ETag", etag)
        if content_range is not None:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
