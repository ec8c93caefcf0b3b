"""OpenTelemetry spans, when an endpoint is set. FastAPI makes them; here they get somewhere to go."""

from __future__ import annotations

from protoslice.errors import Unsupported

__all__ = ["configure_tracing"]


def configure_tracing(endpoint: str | None) -> None:
    """Send spans to `endpoint` over OTLP/HTTP; without one, there are none."""
    if endpoint is None:
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise Unsupported("spans need the extra: pip install 'protoslice[otel]'") from error
    provider = TracerProvider(resource=Resource.create({"service.name": "protoslice"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")))
    trace.set_tracer_provider(provider)
