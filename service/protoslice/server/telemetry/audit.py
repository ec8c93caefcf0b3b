"""Audit log: one line of JSON for every change and every refusal, without secrets.

`docs/deployment.md` (Audit) documents the members. Requests that only read, and are let in, have no line.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Final

from protoslice.server.context import RequestContext, shown_path
from protoslice.server.http.disconnect import CLIENT_GONE

NAME: Final = "protoslice.audit"
"""Name of the logger, and member `logger` of its lines."""
_encode = json.JSONEncoder(separators=(",", ":")).encode
_REFUSED: Final = frozenset({401, 403})


class AuditLog:
    """Writes the audit line of a request that changed something, or was refused."""

    def __init__(self) -> None:
        self._log = logging.getLogger(NAME)

    def __call__(self, context: RequestContext) -> None:
        """Write a line if the request needs one."""
        refused = context.refused or context.status in _REFUSED
        if context.changes or refused:
            self._log.info(_line(context, "refused" if refused else _outcome(context.status)))


def _outcome(status: int) -> str:
    """Outcome of a request that was let in, by its status."""
    if status >= 500 or status in {0, CLIENT_GONE}:
        return "unknown"  # the change may have been made before the answer was lost
    return "failed" if status >= 400 else "done"


def _line(context: RequestContext, outcome: str) -> str:
    principal = None if context.principal_id is None else {"id": context.principal_id, "name": context.principal}
    return _encode(
        {
            "logger": NAME,
            "event": "audit",
            "timestamp": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "request_id": context.id.decode(),
            "principal": principal,
            "client": context.client,
            "space": context.space,
            "method": context.method,
            "route": context.route,
            "path": shown_path(context.path),
            "tags": list(context.tags),
            "store": context.store,
            "outcome": outcome,
            "problem": context.problem,
            "status": context.status,
        }
    )
