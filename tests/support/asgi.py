"""Requests to an application without a socket, for tests that send thousands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import unquote

from starlette.types import Message, Receive

from protoslice.server.app import Application


class Asked(NamedTuple):
    """An answer: its headers by name, its whole body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text, whatever bytes it has."""
        return self.body.decode("latin-1")


async def ask(
    app: Application,
    method: str,
    target: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    *,
    sized: bool = True,
    receiving: Callable[[Receive], Receive] = lambda receive: receive,
) -> Asked:
    """The answer to a request; the services of `app` have been opened.

    `receiving` makes the way in which the body comes; unless it is `sized`, no length is told.
    """
    path, _, query = target.partition("?")
    given = {"host": "localhost", **({"content-length": str(len(body))} if sized else {}), **(headers or {})}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": unquote(path), "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()],
        "client": ("192.0.2.1", 1), "server": ("localhost", 80),
    }  # fmt: skip
    sent: list[Message] = []
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()  # the client waits for the answer
        return left.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receiving(receive), send)
    said = {name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]}
    return Asked(sent[0]["status"], said, b"".join(message.get("body", b"") for message in sent[1:]))
