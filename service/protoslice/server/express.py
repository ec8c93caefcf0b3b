"""The shortest way: small reads of opened stores, answered while the request is being parsed.

A task, a cycle of events and a chain of coroutines cost more than reading 4 KiB from the page cache. So what can be
answered without waiting is answered at once, by the same table of views, the same plan of the answer and the same
verified reads as everything else; whatever is less simple returns None, and goes the ordinary way.
"""

from __future__ import annotations

from time import perf_counter
from typing import Final

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from protoslice.errors import ProtosliceError
from protoslice.server.answers import Answer, Terms, plan_answer
from protoslice.server.context import RequestContext
from protoslice.server.edge import Write
from protoslice.server.fields import Fields, read_fields
from protoslice.server.lane import Lane
from protoslice.server.problems import HttpProblem
from protoslice.server.services import Services
from protoslice.server.views import View

__all__ = ["Express"]

LARGEST: Final = 64 << 10
_SIMPLE: Final = frozenset(
    {
        b"host", b"range", b"accept", b"user-agent", b"accept-encoding", b"accept-language", b"connection", b"if-range",
        b"x-request-id", b"if-none-match", b"if-match", b"cache-control", b"pragma", b"referer",
    }
)  # fmt: skip
_PERSISTENT: Final = frozenset({"keep-alive", ""})

Headers = list[tuple[bytes, bytes]]


class Express:
    """Answers requests without waiting, where it can."""

    def __init__(self, lane: Lane, services: Services, log: Write) -> None:
        self._lane = lane
        self._services = services
        self._log = log

    def answer(self, scope: Scope, default_headers: Headers) -> bytes | None:
        """The whole answer to a GET, as it goes over the wire; none when that takes more than this."""
        found = self._lane.find(scope["path"])
        if found is None or found[0].view.at_hand is None or scope["query_string"]:
            return None
        fields = read_fields(scope)
        if not _SIMPLE.issuperset(fields) or fields.get(b"connection", "").lower() not in _PERSISTENT:
            return None
        started = perf_counter()
        endpoint, ref, rest = found
        try:
            made = self._make(endpoint.view, ref, rest, fields)
        except (ProtosliceError, HttpProblem):
            # It will happen again on the ordinary way, where failures are answered.
            return None
        if made is None:
            return None
        answer, body = made
        context = self._record(scope, fields, endpoint.view, answer, started)
        context.store = ref
        self._log(scope, context, perf_counter() - started)
        return _on_the_wire(answer, body, default_headers, context.id)

    def _make(self, view: View, ref: str, rest: str, fields: Fields) -> tuple[Answer, bytes | memoryview] | None:
        store = self._services.opened.at_hand(ref) if self._services.opened is not None else None
        if store is None or view.at_hand is None or (view.rendered and fields.get(b"accept", "*/*") != "*/*"):
            return None
        rope = view.at_hand(store, rest)
        terms = Terms(negotiated=view.rendered, max_ranges=self._services.settings.max_ranges)
        answer = plan_answer("GET", fields, rope, terms)
        if answer.length > LARGEST or len(answer.parts) > 1:
            return None
        if not answer.length:
            return answer, b""
        body = rope.at_hand(answer.parts[0].start, answer.parts[0].end)
        return None if body is None or len(body) != answer.length else (answer, body)

    def _record(self, scope: Scope, fields: Fields, view: View, answer: Answer, started: float) -> RequestContext:
        given = fields.get(b"x-request-id")
        context = RequestContext(None if given is None else given.encode("latin-1"))
        context.route = view.path
        context.status = answer.status
        context.bytes_out = answer.length
        self._services.metrics.record(
            view.path, "GET", answer.status, seconds=perf_counter() - started, received=0, sent=answer.length
        )
        return context


def _on_the_wire(answer: Answer, body: bytes | memoryview, default_headers: Headers, request_id: bytes) -> bytes:
    lines: list[bytes | memoryview] = [STATUS_LINE[answer.status]]
    for name, value in (*default_headers, *answer.headers):
        lines += (name, b": ", value, b"\r\n")
    lines += (b"x-request-id: ", request_id, b"\r\n\r\n", body)
    return b"".join(lines)
