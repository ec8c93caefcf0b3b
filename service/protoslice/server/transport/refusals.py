"""Refusals of what never becomes a request: whole answers, the last of their connection."""

from __future__ import annotations

import json
from binascii import hexlify
from os import urandom

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from protoslice.server.api.problems import FOR_NOW, MEDIA_TYPE, RETRY_AFTER_SECONDS, Problem
from protoslice.server.http.headers import Headers, header_lines
from protoslice.server.http.safety import secured


def refusal(problem: Problem, detail: str, defaults: Headers) -> bytes:
    """The answer that tells of a problem and closes the connection; `defaults` stand in every answer."""
    members = {"type": problem.type, "title": problem.title, "status": problem.status, "detail": detail}
    body = json.dumps(members | {"request_id": hexlify(urandom(12)).decode()}).encode()
    headers = [
        *defaults,
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
    ]
    if problem.status in FOR_NOW:
        headers.append((b"retry-after", b"%d" % RETRY_AFTER_SECONDS))
    lines = header_lines(secured(headers, private=False))
    return b"".join((STATUS_LINE[problem.status], lines, b"\r\n", body))
