"""OpenTelemetry traces: one span for each request, if an endpoint is configured.

The framework's own spans are off. The framework does not see requests on the fast path. The framework would also export
queries, which may hold secrets.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Thread
from typing import Final, Protocol

from fastapi.telemetry import TelemetryConfig
from starlette.types import ASGIApp, Receive, Scope, Send

from protoslice.build import build
from protoslice.errors import Unsupported, missing_extra
from protoslice.server.context import TRACE, RequestContext, context_of, shown_path
from protoslice.server.http.disconnect import CLIENT_GONE

FRAMEWORK_SPANS_OFF: Final[TelemetryConfig] = {"tracing": False, "metrics": False, "logs": False}
FLUSH_SECONDS: Final = 3
_GONE: Final = "client disconnected"


class _Span(Protocol):
    """The methods of a span that the service uses."""

    def update_name(self, name: str) -> None: ...
    def set_attribute(self, key: str, value: str | int) -> None: ...


def configure_tracing(endpoint: str | None) -> Callable[[], None]:
    """Send spans to `endpoint` over OTLP/HTTP.

    Make no spans if `endpoint` is None. Return a function that flushes spans.
    """
    if endpoint is None:
        return lambda: None
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise Unsupported(missing_extra("To export traces", "otel")) from error
    name = os.environ.get("OTEL_SERVICE_NAME") or "protoslice"
    resource = Resource.create({"service.name": name, "service.version": build()})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")))
    trace.set_tracer_provider(provider)

    def flush() -> None:
        """Flush spans, but only for a limited time, because a collector may not respond."""
        last = Thread(target=provider.shutdown, daemon=True)
        last.start()
        last.join(FLUSH_SECONDS)

    return flush


class Traced:
    """The ASGI middleware that makes a span for each request. It wraps the whole application."""

    def __init__(self, app: ASGIApp) -> None:
        from opentelemetry import propagate, trace

        self._app = app
        self._tracer = trace.get_tracer("protoslice")
        self._kind = trace.SpanKind.SERVER
        self._parent = propagate.extract
        self._failed = trace.StatusCode.ERROR

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request within a span. If the request names another span, that span becomes the parent."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        parent = self._parent({name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]})
        with self._tracer.start_as_current_span(
            scope["method"], parent, self._kind, _asked(scope), record_exception=False, set_status_on_exception=False
        ) as span:
            ids = span.get_span_context()
            scope[TRACE] = (f"{ids.trace_id:032x}", f"{ids.span_id:016x}")
            try:
                await self._app(scope, receive, send)
            finally:
                context = context_of(scope)
                _tell(span, scope["method"], context)
                if _failure(context) not in {None, _GONE}:
                    span.set_status(self._failed)


def _asked(scope: Scope) -> dict[str, str | int]:
    """Return the attributes of a request before it runs.

    OpenTelemetry's semantic conventions define the attributes' names.
    """
    attributes: dict[str, str | int] = {
        "http.request.method": scope["method"],
        "url.scheme": scope["scheme"],
        "url.path": shown_path(scope["path"]),
        "network.protocol.version": scope["http_version"],
    }
    for name, value in scope["headers"]:
        if name == b"user-agent":
            attributes["user_agent.original"] = value.decode("latin-1")[:500]
    for side in ("server", "client"):
        if scope.get(side):
            attributes[f"{side}.address"], attributes[f"{side}.port"] = scope[side]
    return attributes


def _tell(span: _Span, method: str, context: RequestContext) -> None:
    """Record the outcome of the request."""
    if context.route != "unmatched":
        span.update_name(f"{method} {context.route}")
        span.set_attribute("http.route", context.route)
    if context.status != CLIENT_GONE:
        span.set_attribute("http.response.status_code", context.status)
    span.set_attribute("http.request.body.size", context.bytes_in)
    span.set_attribute("http.response.body.size", context.bytes_out)
    span.set_attribute("protoslice.request_id", context.id.decode())
    if context.store is not None:
        span.set_attribute("protoslice.store", context.store)
    if failure := _failure(context):
        span.set_attribute("error.type", failure)


def _failure(context: RequestContext) -> str | None:
    if context.cause is not None:
        return type(context.cause).__name__
    if context.status == CLIENT_GONE:
        return _GONE
    return str(context.status) if context.status >= 500 and not context.refused else None
