"""The outermost middleware. It adds id, context, metrics, log line, security headers and CORS headers to each request.

It is a single layer, because each further layer adds some microseconds to every small response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from protoslice.server.context import KEY, TRACE, RequestContext, given_id
from protoslice.server.http.disconnect import CLIENT_GONE, CancelOnDisconnect, ClientGone
from protoslice.server.http.headers import Headers
from protoslice.server.http.security import OriginPolicy, secured
from protoslice.server.request.clients import Clients, network_of, scheme_of
from protoslice.server.request.failures import send_failure
from protoslice.server.telemetry.logs import Recorder
from protoslice.server.telemetry.metrics import Metrics

_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""The methods whose handlers read no body."""
OPERATING: Final = frozenset({"/livez", "/readyz", "/metrics"})
"""Paths that are answered even if the client has too many running requests.

This limit may wrongly apply to many clients together, if their proxy is not configured as trusted.
"""


class RequestMiddleware:
    """The ASGI middleware around the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        recorder: Recorder,
        clients: Clients | None = None,
        policy: OriginPolicy | None = None,
        *,
        is_closed: Callable[[], bool] = lambda: False,
    ) -> None:
        """Wrap `app`. While the service `is_closed`, which means that it requires tokens, every response is private."""
        self._app = app
        self._is_closed = is_closed
        self._clients = clients
        self._policy = policy
        self._recorder = recorder
        self._metrics = recorder.metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run one request, and record it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: Headers = scope["headers"]
        expects = any(name == b"expect" for name, _ in headers)
        context = RequestContext(given_id(headers), method=scope["method"], path=scope["path"])
        context.trace = scope.get(TRACE)
        scope[KEY] = context
        self._tell_client(scope, context)
        self._metrics.under_way += 1
        grants = [] if self._policy is None else self._policy.grants(headers)
        watched = _Watched(context, receive, send, expects, grants, self._metrics, closed=self._is_closed())
        try:
            await self._run(scope, watched)
        finally:
            if context.held is not None:
                context.held.close()
            self._metrics.under_way -= 1
            self._metrics.streams -= watched.streaming
            self._recorder.record(context)

    def _tell_client(self, scope: Scope, context: RequestContext) -> None:
        context.client = scope["client"][0] if scope.get("client") else None
        if self._clients is not None:
            scheme = scheme_of(scope["headers"]) if self._clients.is_proxy(context.client) else None
            if scheme is not None:  # URLs in answers, and cookies, have to suit the address that the client used
                scope["scheme"] = scheme
            context.client = self._clients.address(context.client, scope["headers"])
            context.key = network_of(context.client)

    async def _run(self, scope: Scope, watched: _Watched) -> None:
        try:
            async with watched.disconnect:
                if self._clients is None or scope["path"] in OPERATING:
                    await self._app(scope, watched.receive, watched.send)
                else:
                    with self._clients.requests.one(watched.context.key):
                        await self._app(scope, watched.receive, watched.send)
        except ClientGone:
            watched.context.status = CLIENT_GONE
        except asyncio.CancelledError:
            watched.context.status = watched.context.status or CLIENT_GONE
            raise
        except Exception as error:
            await self._fail(scope, watched, error)

    async def _fail(self, scope: Scope, watched: _Watched, error: Exception) -> None:
        """Send a problem if that is still possible. Otherwise break the connection."""
        if watched.context.status:
            watched.context.cause = error
        if watched.complete:
            return
        if watched.context.status:
            self._metrics.broken.inc()
            raise error
        await send_failure(scope, watched.receive, watched.send, error)


class _Watched:
    """The `receive` and `send` functions of one request. They count bytes, and a watch detects a disconnect.

    A disconnect ends the work of the request. It does not end a change whose body has arrived, because the client may
    only have lost the connection.
    """

    __slots__ = (
        "_closed", "_grants", "_metrics", "_receive", "_send", "_unread", "complete", "context", "disconnect",
        "streaming",
    )  # fmt: skip

    def __init__(
        self,
        context: RequestContext,
        receive: Receive,
        send: Send,
        expects: bool,
        grants: Headers,
        metrics: Metrics,
        *,
        closed: bool,
    ) -> None:
        self.streaming = False
        self._grants = grants
        self._closed = closed
        self._metrics = metrics
        self._unread = expects
        self.context = context
        self.complete = False
        self._receive = receive
        self._send = send
        self.disconnect = context.disconnect = CancelOnDisconnect(
            receive, whole=context.method in _BODILESS, is_spared=lambda: context.changes
        )

    async def receive(self) -> Message:
        self._unread = False
        message = await self._receive()
        if message["type"] == "http.request":
            self.context.bytes_in += len(message.get("body", b""))
            if not message.get("more_body"):
                self.disconnect.body_ended()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            if message.get("more_body") and not self.streaming:
                self.streaming = True
                self._metrics.streams += 1
            if not message.get("more_body"):
                self.disconnect.unwatch()  # the server reports the end of an answer in the same way as a disconnect
            await self._send(message)
            self.context.bytes_out += len(message.get("body", b""))
            self.complete = not message.get("more_body", False)
            return
        self.context.status = message["status"]
        headers = secured(message["headers"], private=self._closed)
        headers.append((b"x-request-id", self.context.id))
        headers += self._grants
        if self._unread:
            # The client got no 100 (Continue). Its next bytes may be the body or another request.
            headers.append((b"connection", b"close"))
        message["headers"] = headers
        await self._send(message)
