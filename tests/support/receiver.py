"""A receiver of webhooks on the loopback, which checks signatures by the rules of Standard Webhooks."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.wire import in_a_thread


class Receiver:
    """The received POSTs; a test may change the answers while the receiver runs."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 204
        self.location: str | None = None
        self.posts: list[tuple[dict[str, str], bytes]] = []
        self.came = threading.Event()

    def events(self) -> list[tuple[str, str]]:
        """The type and the subject of each POST."""
        found = [json.loads(body) for _, body in self.posts]
        return [(each["type"].removeprefix("protoslice."), each["subject"]) for each in found]

    def is_signed(self, number: int, secret: str) -> bool:
        """Return True if the POST with this number is signed with `secret`."""
        headers, body = self.posts[number]
        key = base64.b64decode(secret.removeprefix("whsec_"))
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        wanted = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        return headers["webhook-signature"] == f"v1,{wanted}"


@contextmanager
def running_receiver() -> Iterator[Receiver]:
    """Run a receiver until the block ends."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.posts.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(receiver.status)
            if receiver.location is not None:
                self.send_header("location", receiver.location)
            self.send_header("content-length", "0")
            self.end_headers()
            receiver.came.set()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128

    server = Server(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hooks"
    with in_a_thread(server):
        yield receiver
