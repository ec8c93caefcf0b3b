"""The context of a request. Middleware, handlers and responses share it through the ASGI scope."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from random import Random
from time import perf_counter
from typing import Protocol, cast

from starlette.responses import Response
from starlette.types import Scope

from protoslice.concurrency.shares import Work

KEY = "protoslice"
TRACE = "protoslice.trace"
"""The key in the scope for the ids of the trace and the span. The key is present only when tracing is on."""
# Ids only have to differ. A system call for each id would add a tenth to the time of a small answer.
_random = Random()
os.register_at_fork(after_in_child=_random.seed)
_GIVEN = re.compile(rb"[A-Za-z0-9._:+/=-]{8,64}")
# Some protocols send no credential except the upload's id, so that the id is a secret. Logs show only its beginning.
_UPLOAD = re.compile(r"/(parts/[0-9a-f]{10}|[0-9a-f]{10}(?=-))(?:[0-9a-f]{22}|-[0-9a-f]{20})")
_LONGEST_SHOWN = 500


class UploadBody(Work, Protocol):
    """A request body that may wait for its turn when too many uploads are under way."""

    @property
    def is_small(self) -> bool:
        """True if the client declares a short length."""


class DisconnectWatch(Protocol):
    """A watch that cancels the work of a request when its client disconnects."""

    def watch(self) -> None:
        """Start watching at once, for work that is known to take long."""

    def unwatch(self) -> None:
        """Stop watching."""


class Caller(Protocol):
    """The caller of a request, in the form that logs show."""

    @property
    def id(self) -> str | None:
        """The id that distinguishes callers with equal names; None for a caller without a name."""

    @property
    def name(self) -> str | None:
        """The name of the request's token, or the name in its JWT."""

    @property
    def tags(self) -> Sequence[str]:
        """The tags of the request, including tags that the caller may not set."""


class RequestContext:
    """The state of one request: its id, target, route and answer, and the number of bytes that were transferred."""

    __slots__ = (
        "auth", "body", "bytes_in", "bytes_out", "cause", "changes", "client", "disconnect", "held", "id", "key",
        "method", "path", "problem", "reason", "refused", "render", "route", "space", "started", "status", "store",
        "trace",
    )  # fmt: skip

    def __init__(
        self, given_id: bytes | None = None, *, method: str = "", path: str = "", client: str | None = None
    ) -> None:
        self.id = (
            given_id if given_id is not None and _GIVEN.fullmatch(given_id) else b"%024x" % _random.getrandbits(96)
        )
        self.method = method
        self.path = path
        self.client = client
        self.key = ""
        """The client's key for limits per client; "" if these limits do not apply."""
        self.auth: Caller | None = None
        """The `AuthContext` of the request; None if the route needs no credentials or if none was valid."""
        self.space: str | None = None
        """The name of the request's space; None if no route took the request."""
        self.changes = False
        """True if the request's rule allows it to change something."""
        self.refused = False
        """True if permissions or a limit of the space refused the request."""
        self.problem: str | None = None
        """The slug of the problem in the answer; None if the answer is not a problem."""
        self.render: Callable[..., Response] | None = None
        """The function that makes the answer to a failed request, in the route's protocol; None before routing."""
        self.reason: str | None = None
        """The reason why the transport refused the request; None if the request reached the application."""
        self.started = perf_counter()
        self.route = "unmatched"
        self.status = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.store: str | None = None
        self.cause: BaseException | None = None
        self.body: UploadBody | None = None
        """The request body with the limits that its route sets."""
        self.disconnect: DisconnectWatch | None = None
        """The watch for the client's disconnection, set by the middleware."""
        self.held: ExitStack | None = None
        """The contexts that exit when the request ends; None if `hold` was not called."""
        self.trace: tuple[str, str] | None = None
        """The ids of the request's trace and span; None when tracing is off."""

    def hold(self, share: AbstractContextManager[object]) -> None:
        """Enter a context, which exits when the request ends."""
        if self.held is None:
            self.held = ExitStack()
        self.held.enter_context(share)


def shown_path(path: str) -> str:
    """Return a path in the form for logs and spans: truncated, and with shortened ids of uploads."""
    return _UPLOAD.sub(r"/\1...", path)[:_LONGEST_SHOWN]


def given_id(headers: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    """Return the id that the client chose for the request in X-Request-Id; None without this header."""
    return next((value for name, value in reversed(headers) if name == b"x-request-id"), None)


def context_of(scope: Scope) -> RequestContext:
    """Return the context of the request. Outside of the service's middleware, make a new context."""
    if KEY not in scope:
        scope[KEY] = RequestContext()
    return cast(RequestContext, scope[KEY])


def public_path(scope: Scope) -> str:
    """Return the path prefix that a proxy removes from the URLs of clients; usually empty."""
    application = scope.get("app")
    return application.services.settings.public_path if application else ""


def request_id_of(scope: Scope) -> str:
    """Return the request's id as text."""
    return context_of(scope).id.decode()
