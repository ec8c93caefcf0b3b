"""The record of a finished request: its metrics and its lines, whichever way the answer took."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TypeAlias

from protoslice.errors import IntegrityError
from protoslice.server.context import RequestContext
from protoslice.server.telemetry.audit import AuditLog
from protoslice.server.telemetry.metrics import Metrics

WriteLine: TypeAlias = Callable[[RequestContext, float], None]


class Recorder:
    """Records requests."""

    def __init__(self, metrics: Metrics, write_line: WriteLine) -> None:
        self.metrics = metrics
        self._write_line = write_line
        self._audit = AuditLog()

    def record(self, context: RequestContext) -> None:
        """Count and log a request that has just ended."""
        seconds = perf_counter() - context.started
        if isinstance(context.cause, IntegrityError):
            self.metrics.damaged.inc()
        self.metrics.record(context, seconds)
        self._write_line(context, seconds)
        self._audit(context)
