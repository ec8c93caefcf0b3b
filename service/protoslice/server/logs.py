"""Log lines: one for each request, structured, with nothing in them that could be a secret.

What a request asked for is logged as its route's template and path, never its query, headers or body.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import sys
import traceback
from typing import Any, TextIO

import structlog
from starlette.types import Scope

from protoslice.errors import ProtosliceError
from protoslice.server.context import RequestContext

__all__ = ["RequestLog", "configure_logs"]

FLUSH_SECONDS = 0.1
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure_logs(form: str, level: str, stream: TextIO | None = None) -> None:
    """Send our log lines and those of uvicorn to `stream`, standard error by default."""
    out = stream or sys.stderr
    shared: list[Any] = [structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso", utc=True)]
    last: Any = structlog.processors.JSONRenderer() if form == "json" else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[*shared, last],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_: _Lines(out),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=[_strip, last], foreign_pre_chain=shared))
    root = logging.getLogger("uvicorn")
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(max(_LEVELS[level], logging.WARNING))


def _strip(_: Any, __: str, event: Any) -> Any:
    return structlog.stdlib.ProcessorFormatter.remove_processors_meta(_, __, event)


class _Lines:
    """Gathers lines and writes them together, a few times a second: a system call for each would be dear."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lines: list[str] = []
        atexit.register(self.flush)

    def msg(self, message: str) -> None:
        """Take a line."""
        self._lines.append(message)
        if len(self._lines) > 1:
            return
        try:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        except RuntimeError:
            self.flush()

    log = debug = info = warning = warn = error = critical = exception = fatal = failure = err = msg

    def flush(self) -> None:
        """Write what there is."""
        lines, self._lines = self._lines, []
        if lines:
            self._out.write("\n".join(lines) + "\n")
            self._out.flush()


class RequestLog:
    """Writes the line of a request."""

    def __init__(self) -> None:
        self._log = structlog.get_logger().bind()

    def __call__(self, scope: Scope, context: RequestContext, seconds: float) -> None:
        """Write one line."""
        line: dict[str, Any] = {
            "request_id": context.id.decode(),
            "method": scope["method"],
            "route": context.route,
            "path": scope["path"][:500],
            "status": context.status,
            "seconds": round(seconds, 6),
            "received": context.bytes_in,
            "sent": context.bytes_out,
            "client": scope["client"][0] if scope.get("client") else None,
        }
        if context.store is not None:
            line["store"] = context.store
        if context.cause is None:
            self._log.info("request", **line)
        else:
            self._log.error("request", **line, **_explain(context.cause))


def _explain(error: BaseException) -> dict[str, Any]:
    """An error for the operator. Ours say what is wrong by themselves; of others the way there is needed."""
    said: dict[str, Any] = {"error": type(error).__name__, "message": str(error)[:1000]}
    if not isinstance(error, ProtosliceError):
        said["trace"] = [
            f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)
        ][-12:]
    return said
