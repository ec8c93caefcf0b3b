"""The fast path: answers small reads of opened stores while the request is being parsed.

A task, a turn of the event loop and a chain of coroutines cost more than reading 4 KiB from the page cache. The fast
path decides nothing itself: it passes a plain GET to the same policy, resolver, planner and recorder that the
application uses. It declines a request if the response would have to wait, would fail, or depends on an unknown header.
It ignores the limit on a client's running requests, because its requests end at once, and a refusal would cost as much.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final, NamedTuple
from weakref import ref

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from protoslice.errors import ProtosliceError
from protoslice.server.api.view_router import FoundView, ViewRoutes, rendered_form
from protoslice.server.auth.signatures import UrlSignature, signed_alone
from protoslice.server.auth.spaces import space_path
from protoslice.server.context import RequestContext, given_id
from protoslice.server.http.headers import HeaderMap, Headers, header_lines, join_fields
from protoslice.server.http.planner import ResponsePlan, ResponsePlanner, ResponsePolicy
from protoslice.server.http.security import OriginPolicy
from protoslice.server.problems import HttpProblem
from protoslice.server.registries.s3 import QuickObject, find_object
from protoslice.server.services import ServerState
from protoslice.server.telemetry.logs import Recorder
from protoslice.serving import OpenStore, Representation
from protoslice.views.chunks import digests_known

LARGEST_ANSWER: Final = 64 << 10
"""The length limit of a body in bytes. Writing a longer body takes so long that the cost of a task hardly matters."""
_LONGEST_TARGET: Final = 1024
_TARGETS: Final = 4096
"""The number of parsed targets that are kept. Each signed URL is a separate target."""
_PLANNED: Final = frozenset(
    {b"accept", b"authorization", b"host", b"range", b"if-range", b"if-match", b"if-none-match"}
    | {b"want-repr-digest", b"x-request-id", b"if-modified-since", b"if-unmodified-since"}
    | {b"x-amz-date", b"x-amz-content-sha256", b"x-amz-security-token", b"x-amz-checksum-mode"}
)
"""The headers that origin policy, authenticator, S3 signatures, planner and recorder read."""
_WITHOUT_EFFECT: Final = frozenset(
    {b"user-agent", b"accept-encoding", b"accept-language", b"cache-control", b"pragma", b"referer", b"connection"}
    | {b"forwarded", b"x-forwarded-for", b"x-forwarded-proto"}  # the client's address is only used in logs
    | {b"amz-sdk-invocation-id", b"amz-sdk-request"}
)
_KNOWN: Final = _PLANNED | _WITHOUT_EFFECT


MakeHead = Callable[[ResponsePlan, HeaderMap, RequestContext], bytes]
"""A function that makes the header lines of an answer."""


class _Prepared(NamedTuple):
    """The view or object that a target names in an opened store.

    The plan is valid until more digests of the store are known.
    """

    facts: int
    representation: Representation
    planner: ResponsePlanner
    head: MakeHead


class _View:
    """A view of a store. `QuickObject` is the equivalent for an object of S3."""

    any_host: Final = False

    def __init__(self, path: str, space: str, found: FoundView, signature: UrlSignature | None) -> None:
        self.path = path
        self.space = space
        self.route = found.view.path
        self.ref = found.ref
        self._found = found
        self._signature = signature

    def take_signature(self, fields: HeaderMap) -> UrlSignature | None:
        return self._signature

    def accepts(self, fields: HeaderMap, representation: Representation) -> bool:
        return rendered_form(self._found.view, fields, representation) is None

    def select(self, store: OpenStore) -> Representation | None:
        select = self._found.view.select_sync
        return None if select is None else select(store, self._found.rest)

    def policy(self, representation: Representation, services: ServerState) -> ResponsePolicy:
        return self._found.policy(representation.versioned, None, services)

    def head(self, store: OpenStore, representation: Representation) -> MakeHead:
        return _head


def _head(plan: ResponsePlan, fields: HeaderMap, context: RequestContext) -> bytes:
    return plan.common_headers.lines + header_lines(plan.headers)


class _Target:
    """The view or object that a target names, and its plan."""

    __slots__ = ("_opened", "_prepared", "source")

    def __init__(self, source: _View | QuickObject) -> None:
        self.source = source
        self._opened: ref[OpenStore] | None = None
        self._prepared: _Prepared | None = None

    def prepared(self, store: OpenStore, services: ServerState) -> _Prepared | None:
        """Return the plan for `store`. Return None for a view that cannot be planned without waiting."""
        facts, known = digests_known(store), self._prepared
        if known is not None and known.facts == facts and self._opened is not None and self._opened() is store:
            return known
        representation = self.source.select(store)
        if representation is None:
            return None
        planner = ResponsePlanner(representation, self.source.policy(representation, services))
        self._prepared = _Prepared(facts, representation, planner, self.source.head(store, representation))
        self._opened = ref(store, self._forget)  # the representation holds files open, so it is dropped with its store
        return self._prepared

    def _forget(self, gone: ref[OpenStore]) -> None:
        if self._opened is gone:
            self._prepared = None


class FastPath:
    """The fast path, which answers requests without waiting, if possible."""

    def __init__(self, router: ViewRoutes, policy: OriginPolicy, recorder: Recorder, services: ServerState) -> None:
        find = partial(_find, router, services)
        self._find = lru_cache(maxsize=_TARGETS)(find)
        self._policy = policy
        self._recorder = recorder
        self._services = services
        self._defaults: Headers = []
        self._default_lines = b""

    def answer(self, target: bytes, headers: Headers, client: str | None, defaults: Headers) -> bytes | None:
        """Return the complete response to a GET over HTTP/1.1 as bytes.

        Return None to leave the request to the application.
        """
        fields = join_fields(headers)
        if not fields.keys() <= _KNOWN or len(target) > _LONGEST_TARGET:
            return None
        context = RequestContext(given_id(headers) if b"x-request-id" in fields else None, method="GET")
        context.client = self._services.clients.address(client, headers)
        try:
            # The host matters only if it may name a bucket.
            wanted = self._find(target, fields.get(b"host", "") if self._services.settings.s3_domain else "")
            if wanted is None:
                return None
            source = wanted.source
            if not source.any_host:
                self._policy.check("GET", fields, "1.1")
            if not self._lets_in(source, fields, context):
                return None
            spaces = self._services.spaces
            stores = None if spaces is None else spaces.opened(source.space)
            store = stores.view_if_open(source.ref) if stores is not None else None
            view = wanted.prepared(store, self._services) if store is not None else None
            if store is None or view is None or not source.accepts(fields, view.representation):
                return None
            plan = view.planner.plan("GET", fields)
            body = _cached_body(view.representation, plan)
        except (ProtosliceError, HttpProblem):
            return None  # the application fails in the same way, and makes the answer to the failure
        if body is None:
            return None
        context.path, context.route, context.store = source.path, source.route, store.info.id
        context.status, context.bytes_out = plan.status, plan.length
        self._recorder.record(context)
        if defaults is not self._defaults:
            self._defaults, self._default_lines = defaults, header_lines(defaults)
        head = (STATUS_LINE[plan.status], self._default_lines, view.head(plan, fields, context))
        return b"".join((*head, b"x-request-id: ", context.id, b"\r\n\r\n", body))

    def _lets_in(self, source: _View | QuickObject, fields: HeaderMap, context: RequestContext) -> bool:
        """Return True if a known token or signature may read in the space.

        If the service requires no tokens, return True unless the request is signed.
        """
        authenticator, signature = self._services.authenticator, source.take_signature(fields)
        if not authenticator.closed:
            return signature is None
        context.auth = authenticator.cached_reader(fields.get(b"authorization"), signature, source.space)
        return context.auth is not None


def _find(router: ViewRoutes, services: ServerState, target: bytes, host: str) -> _Target | None:
    """Return the view or the S3 object that a target names. Return None for any other target.

    The path of a view must not have encoded characters. A signature is removed, because it must not be logged.
    """
    quick = find_object(target, host, services)
    if quick is not None:
        return _Target(quick)
    signature = None
    if b"?" in target:
        signed = signed_alone(target)
        if signed is None:
            return None
        target, signature = signed
    if not target.isascii() or any(mark in target for mark in b"%?#"):
        return None
    path = target.decode("ascii")
    place = space_path(path)
    found = router.find(place.path)
    if found is None or (signature is not None and not found.view.rule.signed):
        return None
    return _Target(_View(path, place.space, found, signature))


def _cached_body(rope: Representation, plan: ResponsePlan) -> bytes | memoryview | None:
    """Return the verified body.

    Return None if the body is long, has several parts, or is not available without waiting.
    """
    if not plan.parts:
        return b""
    if plan.length > LARGEST_ANSWER or len(plan.parts) > 1:
        return None
    _, start, end = plan.parts[0]
    return rope.read_cached(start, end)
