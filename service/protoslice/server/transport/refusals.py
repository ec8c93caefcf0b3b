"""Refusals of what never becomes a request: whole answers, the last of their connection."""

from __future__ import annotations

import json

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from protoslice.server.http.headers import Headers, header_lines
from protoslice.server.http.safety import secured
from protoslice.server.problems import FOR_NOW, MEDIA_TYPE, RETRY_AFTER_SECONDS, Problem


def refusal(problem: Problem, detail: str, request_id: bytes, defaults: Headers, base: str = "") -> bytes:
    """Return the response with a problem that closes the connection; `defaults` are headers of every response.

    Clients reach the pages of the service below the path `base`.
    """
    members = {"type": problem.type_below(base), "title": problem.title, "status": problem.status, "detail": detail}
    body = json.dumps(members | {"request_id": request_id.decode()}).encode()
    headers = [
        *defaults,
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
        (b"x-request-id", request_id),
    ]
    if problem.status in FOR_NOW:
        headers.append((b"retry-after", b"%d" % RETRY_AFTER_SECONDS))
    lines = header_lines(secured(headers, private=False))
    return b"".join((STATUS_LINE[problem.status], lines, b"\r\n", body))
