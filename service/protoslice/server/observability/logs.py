"""Log lines: one for each request, structured, with nothing in them that could be a secret.

What a request asked for is logged as its route's template and path, never its query, headers or body.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, TextIO

import structlog

from protoslice.errors import ProtosliceError
from protoslice.server.middleware.context import RequestContext
from protoslice.server.observability.audit import NAME as AUDIT

FLUSH_SECONDS = 0.1
_encode = json.JSONEncoder(default=repr, separators=(",", ":")).encode
_quoted = lru_cache(maxsize=1024)(_encode)
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure_logs(form: str, level: str, stream: TextIO | None = None) -> Callable[[], None]:
    """Send our log lines and those of libraries to `stream` or standard error; returns the final flush."""
    out = stream or sys.stderr
    shared: list[Any] = [structlog.processors.add_log_level, _stamp]
    last: Any = _render if form == "json" else structlog.dev.ConsoleRenderer(colors=False)
    lines = _Lines(out)
    structlog.configure(
        processors=[*shared, last],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    plain = [_strip, last] if form == "text" else [_strip, structlog.processors.format_exc_info, last]
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=plain, foreign_pre_chain=shared))
    for name in ("protoslice", "uvicorn", "opentelemetry"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(max(_LEVELS[level], logging.WARNING))
    # Lines of the audit are JSON in every form, and no level leaves one out.
    audit = logging.getLogger(AUDIT)
    audit.handlers[:] = [_Lined(lines)]
    audit.propagate = False
    audit.setLevel(logging.INFO)
    # python_multipart logs malformed forms, which are answered with a problem already.
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
    return lines.flush


def _stamp(_: Any, __: str, event: Any) -> Any:
    event["timestamp"] = _now()
    return event


def _now() -> str:
    seconds = time.time()
    return f"{_second(int(seconds))}.{int(seconds % 1 * 1e6):06d}Z"


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _render(_: Any, __: str, event: Any) -> str:
    return _encode(event)


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
        """Write what there is. Where that cannot be, it is lost: nobody would hear of it, and serving goes on."""
        lines, self._lines = self._lines, []
        if lines:
            with suppress(OSError):
                self._out.write("\n".join(lines) + "\n")
                self._out.flush()


class _Lined(logging.Handler):
    """Handler whose records are whole lines, which go the way of all others."""

    def __init__(self, lines: _Lines) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.msg(record.getMessage())


class RequestLog:
    """Writes the line of a request."""

    def __init__(self) -> None:
        self._log = structlog.get_logger().bind()
        # Most lines say that all went well. With nobody to see them they are not even made up.
        self._wanted = self._log.is_enabled_for(logging.INFO)
        made = structlog.get_config()
        self._lines: _Lines | None = made["logger_factory"]() if made["processors"][-1] is _render else None

    def __call__(self, context: RequestContext, seconds: float) -> None:
        """Write one line."""
        if context.cause is None and not self._wanted:
            return
        line = _line(context, seconds)
        if self._lines is not None:
            self._lines.msg(line)
        else:
            facts = json.loads(line)
            del facts["timestamp"]
            getattr(self._log, facts.pop("level"))(facts.pop("event"), **facts)


def _line(context: RequestContext, seconds: float) -> str:
    """The line of a request as JSON. By hand: an encoder of a mapping takes four times as long."""
    more = "" if context.store is None else f'"store":"{context.store}",'
    if context.principal is not None:
        more += f'"principal":{_quoted(context.principal)},'
    if context.trace is not None:
        more += f'"trace_id":"{context.trace[0]}","span_id":"{context.trace[1]}",'
    if context.cause is not None:
        more += _encode(_explain(context.cause))[1:-1] + ","
    return (
        f'{{"request_id":"{context.id.decode()}","method":"{context.method}","route":{_quoted(context.route)},'
        f'"path":{_quoted(context.path[:500])},"status":{context.status},"seconds":{seconds:.6f},'
        f'"received":{context.bytes_in},"sent":{context.bytes_out},"client":{_quoted(context.client)},{more}'
        f'"event":"request","level":"{"info" if context.cause is None else "error"}","timestamp":"{_now()}"}}'
    )


def _explain(error: BaseException) -> dict[str, Any]:
    """An error for the operator. Ours say what is wrong by themselves; of others the way there is needed."""
    said: dict[str, Any] = {"error": type(error).__name__, "message": str(error)[:1000]}
    if not isinstance(error, ProtosliceError):
        said["trace"] = [
            f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)
        ][-12:]
    return said
