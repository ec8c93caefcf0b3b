"""Log lines as JSON or text, without secrets. Each request, change and refusal has a line, and libraries log too.

The line of a request has its route's template and its path, but never its query, headers or body.
`docs/how-to/operate/monitoring.md` documents the members, and `docs/how-to/operate/audit.md` documents the members of
audit lines.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, TextIO

import orjson

from protoslice.errors import IntegrityError, ProtosliceError
from protoslice.server.context import RequestContext, shown_path
from protoslice.server.http.disconnect import CLIENT_GONE
from protoslice.server.telemetry.metrics import Metrics

FLUSH_SECONDS: Final = 0.1
REQUESTS: Final = "protoslice.requests"
"""The name of the logger for request lines."""
AUDIT: Final = "protoslice.audit"
"""The name of the logger for audit lines. Each change and each refusal has such a line, which is always JSON."""
ACCESS: Final = "protoslice.access"
"""The name of the logger for the line about access to the service."""
START: Final = "protoslice.start"
"""The name of the logger for the line about the version that starts."""
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_TRACE_FRAMES: Final = 12
_REFUSED: Final = frozenset({401, 403})

Facts = Mapping[str, Any]


def configure_logs(form: str, level: str, stream: TextIO | None = None) -> Callable[[], None]:
    """Send log lines, including the lines of libraries, to `stream` or standard error.

    Return a function for a final flush.
    """
    lines = _Lines(stream or sys.stderr)
    handler = _Handler(lines, _json if form == "json" else _text)
    for name in ("protoslice", "uvicorn", "opentelemetry"):
        _set(name, handler, max(_LEVELS[level], logging.WARNING))
    _set(REQUESTS, handler, _LEVELS[level])
    for name in (ACCESS, START):  # the lines about access and version are logged at every level
        _set(name, handler, logging.INFO)
    # Audit lines are always JSON, and no level drops them.
    _set(AUDIT, _Handler(lines, None), logging.INFO)
    # python_multipart logs malformed forms, but the service already answers such forms with a problem.
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
    return lines.flush


def _set(name: str, handler: logging.Handler, level: int) -> None:
    logger = logging.getLogger(name)
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level)


class _Lines:
    """A buffer of lines, which are written a few times a second. A system call for each line would be slow."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lines: list[str] = []
        atexit.register(self.flush)

    def write(self, line: str) -> None:
        """Add a line."""
        self._lines.append(line)
        if len(self._lines) > 1:
            return
        try:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        except RuntimeError:
            self.flush()

    def flush(self) -> None:
        """Write the buffered lines. Lines that cannot be written are lost, and the service continues."""
        lines, self._lines = self._lines, []
        if lines:
            with suppress(OSError, ValueError):
                self._out.write("\n".join(lines) + "\n")
                self._out.flush()


class _Handler(logging.Handler):
    """A handler that encodes facts as lines. Without an encoder, the messages are the lines."""

    def __init__(self, lines: _Lines, encode: Callable[[Facts], str] | None) -> None:
        super().__init__()
        self._lines = lines
        self._encode = encode

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line of `record`."""
        try:
            if self._encode is None:
                self._lines.write(record.getMessage())
                return
            facts = {"event": record.getMessage(), "level": record.levelname.lower(), "logger": record.name}
            if record.exc_info is not None and record.exc_info[0] is not None:
                facts["exception"] = "".join(traceback.format_exception(*record.exc_info)).rstrip()
            self.write(facts)
        except Exception:
            self.handleError(record)

    def write(self, facts: dict[str, Any]) -> None:
        """Write a line of `facts` with the time. This function is faster than a log record."""
        facts["timestamp"] = _now()
        assert self._encode is not None
        self._lines.write(self._encode(facts))


def _json(facts: Facts) -> str:
    try:
        return orjson.dumps(facts).decode()
    except TypeError:  # a path may have bytes that are not UTF-8
        return json.dumps(facts, default=repr, separators=(",", ":"))


def _text(facts: Facts) -> str:
    """Return time, level and event, then all other facts as `name=value`."""
    rest = dict(facts)
    time_, level, event = (rest.pop(name) for name in ("timestamp", "level", "event"))
    exception = rest.pop("exception", None)
    more = " ".join(f"{name}={_word(value)}" for name, value in rest.items())
    line = f"{time_} {level:<7} {event if event.isprintable() else json.dumps(event)} {more}"
    return line if exception is None else f"{line}\n{exception}"


def _word(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if text.isprintable() and " " not in text and text else json.dumps(value)


def _now() -> str:
    seconds = time.time()
    return f"{_second(int(seconds))}.{int(seconds % 1 * 1e6):06d}Z"


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


class Recorder:
    """A recorder of finished requests.

    The recorder counts requests, and writes their lines to the handlers that `configure_logs` sets up.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        logger = logging.getLogger(REQUESTS)
        self._handler = next((each for each in logger.handlers if isinstance(each, _Handler)), None)
        self._all = logger.isEnabledFor(logging.INFO)
        self._audit = logging.getLogger(AUDIT)

    def record(self, context: RequestContext) -> None:
        """Count and log a request that has just ended. Permitted reads have no audit line."""
        seconds = time.perf_counter() - context.started
        if isinstance(context.cause, IntegrityError):
            self.metrics.damaged.inc()
        self.metrics.record(context, seconds)
        if self._handler is not None and (self._all or context.cause is not None):
            self._handler.write(_facts(context, seconds))
        refused = context.refused or context.status in _REFUSED
        if context.changes or refused:
            self._audit.info(_audit_line(context, "refused" if refused else _outcome(context.status)))


def _outcome(status: int) -> str:
    """Return the outcome of a permitted change. The status of the answer determines the outcome."""
    if status >= 500 or status in {0, CLIENT_GONE}:
        return "unknown"  # the change may have been made before the answer was lost
    return "failed" if status >= 400 else "done"


def _audit_line(context: RequestContext, outcome: str) -> str:
    auth = context.auth
    principal = None if auth is None or auth.id is None else {"id": auth.id, "name": auth.name}
    return _json(
        {
            "logger": AUDIT,
            "event": "audit",
            "timestamp": _now(),
            "request_id": context.id.decode(),
            "principal": principal,
            "client": context.client,
            "space": context.space,
            "method": context.method,
            "route": context.route,
            "path": shown_path(context.path),
            "tags": [] if auth is None else list(auth.tags),
            "store": context.store,
            "outcome": outcome,
            "problem": context.problem,
            "status": context.status,
        }
    )


def _facts(context: RequestContext, seconds: float) -> dict[str, Any]:
    facts = {
        "request_id": context.id.decode(),
        "method": context.method,
        "route": context.route,
        "path": shown_path(context.path),
        "status": context.status,
        "seconds": round(seconds, 6),
        "received": context.bytes_in,
        "sent": context.bytes_out,
        "client": context.client,
        "event": "request",
        "level": "info" if context.cause is None else "error",
    }
    if context.store is not None:
        facts["store"] = context.store
    if context.reason is not None:
        facts["problem"], facts["reason"] = context.problem, context.reason
    if context.auth is not None:
        facts["principal"] = context.auth.name
    if context.trace is not None:
        facts["trace_id"], facts["span_id"] = context.trace
    if context.cause is not None:
        facts |= _explain(context.cause)
    return facts


def _explain(error: BaseException) -> dict[str, Any]:
    """Describe an error for the operator.

    The description has a message. For errors that are not the library's, it also has a traceback.
    """
    facts: dict[str, Any] = {"error": type(error).__name__, "message": str(error)[:1000]}
    if not isinstance(error, ProtosliceError):
        frames = traceback.extract_tb(error.__traceback__)[-_TRACE_FRAMES:]
        facts["trace"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return facts
