"""The shortest way: small reads of opened stores, answered while the request is being parsed.

A task, a cycle of events and a chain of coroutines cost more than reading 4 KiB from the page cache. So a plain GET of
a view at hand, whole or one range of it, is answered at once: by the same table of views, the same plan of the answer
and the same verified reads as everything else. What does not depend on the range is prepared once for each target.
Whatever is less simple, or fails, goes the ordinary way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Final
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from protoslice.errors import ProtosliceError
from protoslice.ranges import ByteRange, Unsatisfiable, Whole, select
from protoslice.server.http.headers import Headers
from protoslice.server.http.plan import Answer, Terms, plan_answer
from protoslice.server.http.view_router import Lane
from protoslice.server.middleware.context import RequestContext
from protoslice.server.middleware.origin_policy import Sites
from protoslice.server.middleware.request import Write
from protoslice.server.services import Services
from protoslice.stores import OpenStore, Representation

__all__ = ["Express"]

LARGEST: Final = 64 << 10
_MOST_PREPARED: Final = 256
"""Targets of one store."""
_WITHOUT_WEIGHT: Final = frozenset(
    {b"user-agent", b"accept-encoding", b"accept-language", b"cache-control", b"pragma", b"referer"}
    | {b"forwarded", b"x-forwarded-for", b"x-forwarded-proto"}  # who asks is for the log alone
)
_USUAL: Final = frozenset({(b"accept", b"*/*"), (b"connection", b"keep-alive"), (b"connection", b"Keep-Alive")})
_OF_THE_RANGE: Final = frozenset({b"content-range", b"content-length"})


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What the answers to one target have in common, as long as no more is known of the store."""

    store: str
    facts: int
    route: str
    path: str
    rope: Representation
    whole: bytes
    """The head of the whole, as far as it does not depend on the request."""
    part: bytes
    """The head of a part, likewise."""


class Express:
    """Answers requests without waiting, where it can."""

    def __init__(self, lane: Lane, services: Services, sites: Sites, log: Write) -> None:
        self._lane = lane
        self._sites = sites
        self._services = services
        self._log = log
        # Goes with the store: what is prepared holds files open.
        self._prepared: WeakKeyDictionary[OpenStore, dict[bytes, _Prepared]] = WeakKeyDictionary()
        self._defaults: Headers = []
        self._default_lines = b""

    def answer(self, target: bytes, headers: Headers, client: str | None, defaults: Headers) -> bytes | None:
        """The whole answer to a GET, as it goes over the wire; none when that takes more than this."""
        asked = self._read(headers)
        if asked is None:
            return None
        wanted, given_id = asked
        context = RequestContext(given_id, method="GET", client=self._services.clients.address(client, headers))
        try:
            prepared = self._find(target)
            if prepared is None:
                return None
            return self._answer(prepared, wanted, context, defaults)
        except ProtosliceError:
            # It will happen again on the ordinary way, where failures are answered.
            return None

    def _read(self, headers: Headers) -> tuple[str | None, bytes | None] | None:
        """The Range and the id of a request whose headers say nothing else of weight; none for any other."""
        wanted = given_id = None
        hosts = 0
        for name, value in headers:
            if name == b"range" and wanted is None and b"," not in value:
                wanted = value.decode("latin-1")
            elif name == b"x-request-id":
                given_id = value
            elif name == b"host":
                hosts += 1
                if not self._sites.is_ours(value):
                    return None
            elif name not in _WITHOUT_WEIGHT and (name, value) not in _USUAL:
                return None
        return (wanted, given_id) if hosts == 1 else None

    def _answer(
        self, prepared: _Prepared, wanted: str | None, context: RequestContext, defaults: Headers
    ) -> bytes | None:
        rope = prepared.rope
        selection = select(wanted, rope.size)
        if isinstance(selection, Unsatisfiable):
            return None
        whole = isinstance(selection, Whole)
        span = ByteRange(0, rope.size) if isinstance(selection, Whole) else selection.ranges[0]
        body = rope.at_hand(span.start, span.end) if span.length <= LARGEST else None
        if body is None:
            return None
        self._record(context, prepared, 200 if whole else 206, span.length)
        if defaults is not self._defaults:
            self._defaults, self._default_lines = defaults, _lines(defaults)
        head = prepared.whole if whole else prepared.part + _range_lines(span, rope.size)
        return b"".join((head, self._default_lines, b"x-request-id: ", context.id, b"\r\n\r\n", body))

    def _find(self, target: bytes) -> _Prepared | None:
        """What was prepared for the target, or is prepared now, if its store is at hand."""
        stores, parts = self._services.opened, target.split(b"/", 4)
        store = stores.at_hand(parts[3].decode("latin-1")) if stores is not None and len(parts) == 5 else None
        if store is None:
            return None
        kept = self._prepared.setdefault(store, {})
        prepared = kept.get(target)
        if prepared is not None and prepared.facts == store.facts_known:
            return prepared
        prepared = self._prepare(store, target)
        if prepared is not None:
            if len(kept) >= _MOST_PREPARED:
                kept.clear()
            kept[target] = prepared
        return prepared

    def _prepare(self, store: OpenStore, target: bytes) -> _Prepared | None:
        found = self._lane.find(target.decode("ascii")) if _is_plain(target) else None
        if found is None:
            return None
        view, rest = found[0].view, found[2]
        if view.at_hand is None:
            return None
        facts, rope = store.facts_known, view.at_hand(store, rest)
        terms = Terms(negotiated=view.rendered, versioned=view.versioned)
        whole, part = (plan_answer("GET", fields, rope, terms) for fields in ({}, {b"range": "bytes=0-0"}))
        path = target.decode("ascii")
        return _Prepared(store.info.id, facts, view.path, path, rope, whole=_head(whole), part=_head(part))

    def _record(self, context: RequestContext, prepared: _Prepared, status: int, sent: int) -> None:
        context.path = prepared.path
        context.route = prepared.route
        context.store = prepared.store
        context.status = status
        context.bytes_out = sent
        seconds = perf_counter() - context.started
        self._services.metrics.record(context, seconds)
        self._log(context, seconds)


def _is_plain(target: bytes) -> bool:
    """Whether the target is a path that needs no decoding."""
    return target.isascii() and not any(mark in target for mark in b"%?#")


def _head(answer: Answer) -> bytes:
    """Status and headers; of a part, without those that say which."""
    own = _OF_THE_RANGE if answer.status == 206 else ()
    return STATUS_LINE[answer.status] + _lines(header for header in answer.headers if header[0] not in own)


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%b: %b\r\n" % header for header in headers)


def _range_lines(span: ByteRange, size: int) -> bytes:
    return b"content-range: %b\r\ncontent-length: %d\r\n" % (span.content_range(size).encode(), span.length)
