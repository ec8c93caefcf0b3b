"""The fast path: small reads of opened stores, answered while the request is being parsed.

A task, a cycle of events and a chain of coroutines cost more than reading 4 KiB from the page cache. The fast path
decides nothing: it hands a plain GET to the same policy, resolver, planner and recorder as the ordinary way, and
declines any request whose answer would have to wait, fails, or depends on a header that it does not know. The limit of
a client's requests under way does not concern it: its answers never are, and a refusal would cost as much.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from protoslice.errors import ProtosliceError
from protoslice.server.api.view_router import FoundView, ViewRouter, rendered_form
from protoslice.server.api.views import StoreView
from protoslice.server.auth.places import place_of
from protoslice.server.auth.signatures import UrlSignature, signed_alone
from protoslice.server.context import RequestContext, given_id
from protoslice.server.http.answers.plan import Answer, AnswerPlanner
from protoslice.server.http.headers import Fields, Headers, header_lines, join_fields
from protoslice.server.problems import HttpProblem
from protoslice.server.request.origin_policy import OriginPolicy
from protoslice.server.services import Services
from protoslice.server.telemetry.logs import Recorder
from protoslice.stores import OpenStore, Representation
from protoslice.stores.reading.chunks import digests_known

LARGEST_ANSWER: Final = 64 << 10
"""The longest body in bytes: writing a longer one takes so long that a task no longer shows."""
_LONGEST_TARGET: Final = 1024
_MOST_PLANNERS: Final = 256
"""Planners kept for one store."""
_PLANNED: Final = frozenset(
    {b"accept", b"authorization", b"host", b"range", b"if-range", b"if-match", b"if-none-match"}
    | {b"want-repr-digest", b"x-request-id", b"if-modified-since", b"if-unmodified-since"}
)
"""Headers that policy, gate, planner and record read."""
_WITHOUT_EFFECT: Final = frozenset(
    {b"user-agent", b"accept-encoding", b"accept-language", b"cache-control", b"pragma", b"referer", b"connection"}
    | {b"forwarded", b"x-forwarded-for", b"x-forwarded-proto"}  # the client's address is for the log alone
)
_UNTOLD: Final = b"referrer-policy: no-referrer\r\n"
"""Header of answers to signed URLs, as on the ordinary way."""
_KNOWN: Final = _PLANNED | _WITHOUT_EFFECT


class _Planned(NamedTuple):
    """A view of an opened store, as long as no more is known of the store."""

    facts: int
    store: str
    view: StoreView
    route: str
    path: str
    rope: Representation
    planner: AnswerPlanner


class FastPath:
    """Answers requests without waiting, where that can be."""

    def __init__(self, router: ViewRouter, policy: OriginPolicy, recorder: Recorder, services: Services) -> None:
        self._find = lru_cache(maxsize=1024)(lambda target: _find(router, target))
        self._signed = lru_cache(maxsize=1024)(signed_alone)
        self._policy = policy
        self._recorder = recorder
        self._services = services
        # A planner's representation holds files open, so planners go with their store.
        self._planned: WeakKeyDictionary[OpenStore, dict[bytes, _Planned]] = WeakKeyDictionary()
        self._defaults: Headers = []
        self._default_lines = b""

    def answer(self, target: bytes, headers: Headers, client: str | None, defaults: Headers) -> bytes | None:
        """Complete response to a GET over HTTP/1.1, as bytes; None for a request to be answered elsewhere."""
        fields = join_fields(headers)
        if not fields.keys() <= _KNOWN or len(target) > _LONGEST_TARGET:
            return None
        # A signature is taken off first: it belongs neither into the log nor into the key of a planner.
        signed = self._signed(target) if b"?" in target else None
        target, signature = (target, None) if signed is None else signed
        context = RequestContext(given_id(headers) if b"x-request-id" in fields else None, method="GET")
        context.client = self._services.clients.address(client, headers)
        try:
            self._policy.check("GET", fields, "1.1")
            found = self._find(target)
            if found is None or not self._lets_in(found, fields, signature, context):
                return None
            planned = self._plan(found, target)
            if planned is None or rendered_form(planned.view, fields, planned.rope) is not None:
                return None
            answer = planned.planner.answer("GET", fields)
            body = _cached_body(planned.rope, answer)
        except (ProtosliceError, HttpProblem):
            return None  # the ordinary way fails likewise, and answers failures
        if body is None:
            return None
        context.path, context.route, context.store = planned.path, planned.route, planned.store
        context.status, context.bytes_out = answer.status, answer.length
        self._recorder.record(context)
        if defaults is not self._defaults:
            self._defaults, self._default_lines = defaults, header_lines(defaults)
        own = header_lines(answer.own) + (_UNTOLD if signature is not None else b"") + b"x-request-id: " + context.id
        head = STATUS_LINE[answer.status]
        return b"".join((head, self._default_lines, answer.shared.lines, own, b"\r\n\r\n", body))

    def _lets_in(self, found: _Found, fields: Fields, signature: UrlSignature | None, context: RequestContext) -> bool:
        """True where nobody is asked, and for a token, or the signature of one, that may read in the space."""
        gate = self._services.gate
        if not gate.closed:
            return signature is None
        if signature is not None and not found.signed:
            return False
        principal = gate.reader(fields.get(b"authorization"), signature, found.space)
        context.principal = None if principal is None else principal.name
        return principal is not None

    def _plan(self, found: _Found, target: bytes) -> _Planned | None:
        """The view with its planner, if its store is open under its very id and the view takes no planning."""
        spaces = self._services.spaces
        stores = None if spaces is None else spaces.opened(found.space)
        store = stores.view_if_open(found.view.ref) if stores is not None else None
        if store is None:
            return None
        kept = self._planned.get(store)
        if kept is None:
            kept = self._planned[store] = {}
        planned = kept.get(target)
        if planned is not None and planned.facts == digests_known(store):
            return planned
        if len(kept) >= _MOST_PLANNERS:
            kept.clear()
        planned = self._planned_anew(found.view, store, target)
        if planned is not None:
            kept[target] = planned
        return planned

    def _planned_anew(self, found: FoundView, store: OpenStore, target: bytes) -> _Planned | None:
        view = found.view
        if view.select_sync is None:
            return None
        facts, rope = digests_known(store), view.select_sync(store, found.rest)
        planner = AnswerPlanner(rope, found.terms(rope.versioned, None, self._services))
        return _Planned(facts, store.info.id, view, view.path, target.decode("ascii"), rope, planner)


class _Found(NamedTuple):
    """A view, and the space it is asked of."""

    space: str
    view: FoundView
    signed: bool
    """True when a signed URL may open the view."""


def _find(router: ViewRouter, target: bytes) -> _Found | None:
    """The view at a target that is a path without anything to decode; None at any other."""
    if not target.isascii() or any(mark in target for mark in b"%?#"):
        return None
    place = place_of(target.decode("ascii"))
    view = router.find(place.path)
    return None if view is None else _Found(place.space, view, view.view.rule.signed)


def _cached_body(rope: Representation, answer: Answer) -> bytes | memoryview | None:
    """The body, verified; None when it is long, lies in several places, or has to be waited for."""
    if not answer.parts:
        return b""
    if answer.length > LARGEST_ANSWER or len(answer.parts) > 1:
        return None
    _, start, end = answer.parts[0]
    return rope.read_cached(start, end)
