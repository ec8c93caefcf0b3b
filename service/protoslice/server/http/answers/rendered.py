"""Answers made in memory: rendered messages and JSON, with validators and conditions, without ranges."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache
from typing import Final

import google.protobuf
from starlette.types import Scope, Send

from protoslice.schema.types import bundled_bytes
from protoslice.server.http.answers.plan import AnswerPlanner, Facts, Terms
from protoslice.server.http.headers import Fields
from protoslice.server.http.negotiation import JSON, JSON_LINES, PROTOBUF_JSON, TEXT
from protoslice.serving.representation import Head
from protoslice.versions import RENDERING
from protoslice.views.texts import TextView

_MARKS: Final = {PROTOBUF_JSON: "pbjson", JSON: "json", TEXT: "text", JSON_LINES: "jsonl"}
_ENDINGS: Final = {TEXT: "txtpb", JSON_LINES: "jsonl"}


@cache
def _made_by() -> str:
    """Versions that a rendered form depends on: ours, the runtime's, and that of types in an `Any`."""
    bundled = hashlib.sha256(bundled_bytes()).hexdigest()[:16]
    return f"{RENDERING}-{google.protobuf.__version__}-{bundled}"


async def send_rendered(
    scope: Scope,
    send: Send,
    facts: Facts,
    render: Callable[[str], Awaitable[TextView]],
    *,
    media_type: str,
    fields: Fields,
    terms: Terms,
) -> None:
    """Answer with what `render` gives for an entity tag; not called when the client's copy is current."""
    ending = _ENDINGS.get(media_type, "json")
    terms = replace(terms, versioned=True, max_ranges=0)
    shown = Head(
        f"{facts.etag}-{_MARKS[media_type]}-{_made_by()}",
        f"{facts.filename.rpartition('.')[0] or facts.filename}.{ending}",
        f"{media_type}; charset=utf-8",
        facts.message_type,
    )
    # Conditions first: a 304 must not cost a rendering.
    answer = AnswerPlanner(shown, terms).answer(scope["method"], fields)
    body = b""
    if answer.status == 200:
        made = await render(shown.etag)
        body, known = made.text, replace(shown, size=len(made.text), sha256=made.sha256)
        answer = AnswerPlanner(known, terms).answer(scope["method"], fields)
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
