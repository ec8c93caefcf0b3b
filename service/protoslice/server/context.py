"""Context of a request, shared by middleware, handlers and responses through the scope."""

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
"""Key in the scope of the ids of trace and span, present when there are spans."""
# Ids only have to differ: a system call for each would cost a small answer a tenth of its time.
_random = Random()
os.register_at_fork(after_in_child=_random.seed)
_GIVEN = re.compile(rb"[A-Za-z0-9._:+/=-]{8,64}")
# An id of an upload, or of one in parts, is a secret where a protocol sends nothing else: its beginning identifies it.
_UPLOAD = re.compile(r"/(parts/[0-9a-f]{10}|[0-9a-f]{10}(?=-))(?:[0-9a-f]{22}|-[0-9a-f]{20})")
_LONGEST_SHOWN = 500


class UploadBody(Work, Protocol):
    """Body of a request that may wait for a place."""

    @property
    def is_small(self) -> bool:
        """True if the client declares a short length."""


class DisconnectWatch(Protocol):
    """Watch that ends the work of a request when its client disconnects."""

    def watch(self) -> None:
        """Start watching now: for work known to be long."""

    def unwatch(self) -> None:
        """Stop watching."""


class Caller(Protocol):
    """Caller of a request, as logs show it."""

    @property
    def id(self) -> str | None:
        """Id that distinguishes callers with equal names; None without a name."""

    @property
    def name(self) -> str | None:
        """Name of the token, or in the JWT, that the request has."""

    @property
    def tags(self) -> Sequence[str]:
        """Tags of the request, including those that the caller may not set."""


class RequestContext:
    """One request: its id, what it asked for, how it was routed, and the bytes it transferred."""

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
        """Key of the client for limits per client; "" for none."""
        self.auth: Caller | None = None
        """The `AuthContext` of the request; None where no credentials were asked for, or none was valid."""
        self.space: str | None = None
        """Name of the space that the request is in; None for one that no route took."""
        self.changes = False
        """True for a request whose rule lets it change something."""
        self.refused = False
        """True if permissions, or a limit of the space, did not let the request in."""
        self.problem: str | None = None
        """Slug of the problem that answers the request; None for other answers."""
        self.render: Callable[..., Response] | None = None
        """Makes the answer of a failure in the form of the route's protocol; None before a route took the request."""
        self.reason: str | None = None
        """Reason for which the transport refused the request; None for a request that reached the application."""
        self.started = perf_counter()
        self.route = "unmatched"
        self.status = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.store: str | None = None
        self.cause: BaseException | None = None
        self.body: UploadBody | None = None
        """Body of the request, as its route guards it."""
        self.disconnect: DisconnectWatch | None = None
        """Watch of the request, set by the middleware."""
        self.held: ExitStack | None = None
        """Shares that end with the request; None where it has none."""
        self.trace: tuple[str, str] | None = None
        """The ids of its trace and span, when there are spans."""

    def hold(self, share: AbstractContextManager[object]) -> None:
        """Enter a context until the request ends."""
        if self.held is None:
            self.held = ExitStack()
        self.held.enter_context(share)


def shown_path(path: str) -> str:
    """Return a path in the form for logs and spans: truncated, and with shortened ids of uploads."""
    return _UPLOAD.sub(r"/\1...", path)[:_LONGEST_SHOWN]


def given_id(headers: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    """Return the id that a request gives itself: the last X-Request-Id."""
    return next((value for name, value in reversed(headers) if name == b"x-request-id"), None)


def context_of(scope: Scope) -> RequestContext:
    """Return the context of the request; a new context outside of the service's middleware."""
    if KEY not in scope:
        scope[KEY] = RequestContext()
    return cast(RequestContext, scope[KEY])


def public_path(scope: Scope) -> str:
    """Return the path below which clients reach the service through a proxy that removes it; usually empty."""
    application = scope.get("app")
    return application.services.settings.public_path if application else ""


def request_id_of(scope: Scope) -> str:
    """Return the id of the request, as text."""
    return context_of(scope).id.decode()
