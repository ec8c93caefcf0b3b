"""Spans, as a collector of OTLP over HTTP receives them.

Log lines of requests and libraries, as JSON and as text.
"""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from tests.support.calls import RULES
from tests.support.serve import ServiceProcess, logs_to, service_process
from tests.support.wire import in_a_thread

from protoslice.errors import IntegrityError
from protoslice.server.context import RequestContext
from protoslice.server.telemetry.logs import Recorder
from protoslice.server.telemetry.metrics import Metrics

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@dataclass(slots=True)
class Collector:
    """A collector of spans that answers with `status`, and keeps all received data."""

    status: int = 200
    url: str = ""
    bodies: list[bytes] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    came: Event = field(default_factory=Event)

    @property
    def spans(self) -> list[Span]:
        """Return all spans, in no order."""
        return [
            span
            for body in self.bodies
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@contextmanager
def collecting(status: int = 200) -> Iterator[Collector]:
    collector = Collector(status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.bodies.append(self.rfile.read(int(self.headers["content-length"])))
            collector.paths.add(self.path)
            collector.came.set()
            self.send_response(collector.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with in_a_thread(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        collector.url = f"http://{address}"
        yield collector


@contextmanager
def serving(storage: Path, settings: Mapping[str, str]) -> Iterator[ServiceProcess]:
    common = {"PROTOSLICE_SPACE_WATERMARK_BYTES": "0"}
    with service_process("--storage", storage.as_uri(), settings={**common, **settings}) as running:
        yield running


def ended(service: ServiceProcess) -> list[dict[str, Any]]:
    """Return the log lines of all requests, after the service has ended and sent its remaining spans."""
    service.running.terminate()
    service.running.wait(20)
    lines = [json.loads(line) for line in service.log.read_text().splitlines()]
    return [line for line in lines if line["event"] == "request"]


def attributes(span: Span) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value") or "") for each in span.attributes}


def test_ids_of_uploads_are_in_no_line_and_no_span(tmp_path: Path) -> None:
    """On an open service, a client that knows the id of an upload may write to the upload."""
    upload, session = "0068d1e2f3-5b0c8d7e9f1a2b3c4d5e", "c0ffee4217a9b8d6e5f40312233445ab"
    rows = [row.replace("{upload}", upload) for row in RULES if "{upload}" in row]
    rows += [row.replace("{session}", session if "/parts/" in row else upload) for row in RULES if "{session}" in row]
    assert len(rows) >= 10
    with collecting() as collector, serving(tmp_path, {"PROTOSLICE_OTEL_ENDPOINT": collector.url}) as service:
        with httpx.Client(base_url=service.url) as client:
            for row in rows:
                method, _, template = row.partition(" ")
                path = template.replace("{kind}", "models").replace(":repository}", "}/b")
                client.request(method, re.sub(r"{(\w+)(:\w+)?}", "x", path), content=b"")
            client.get(f"/{'a' * 440}/{upload}/{upload}")  # cut inside of the second id
        assert len([line for line in ended(service) if "..." in line["path"]]) > len(rows)
        texts = [service.log.read_bytes(), *collector.bodies]
    for rest in (upload[11:], session[10:]):
        assert not any(rest[:8].encode() in text for text in texts), rest


def test_each_request_is_a_span_with_the_ids_of_its_log_line(tmp_path: Path) -> None:
    with collecting() as collector, serving(tmp_path, {"PROTOSLICE_OTEL_ENDPOINT": f"{collector.url}/"}) as service:
        with httpx.Client(base_url=service.url, headers={"user-agent": "tester/1"}) as client:
            store = client.put("/v1/stores?tag=traced&filename=hush.pb", content=b"\x0a\x06traced").json()["id"]
            for _ in range(3):
                client.get(f"/v1/stores/{store}/chunks/0", headers={"range": "bytes=2-4", "authorization": "hush"})
            client.head("/v1/stores/traced/merge?path=1&hush=hush")
            client.get("/v1/stores/traced/files/none")
            client.get("/no/such/path")
            client.delete("/v1/tags/traced")
            client.get("/livez")
        lines = ended(service)
        spans = {span.span_id.hex(): span for span in collector.spans}
    assert collector.paths == {"/v1/traces"}
    assert len(spans) == len(lines) == 9
    for line in lines:
        span = spans[line["span_id"]]
        told = attributes(span)
        assert span.trace_id.hex() == line["trace_id"]
        assert span.kind == Span.SPAN_KIND_SERVER
        assert not span.parent_span_id
        assert span.end_time_unix_nano > span.start_time_unix_nano
        known = line["route"] != "unmatched"
        assert span.name == (f"{line['method']} {line['route']}" if known else line["method"])
        assert told.get("http.route") == (line["route"] if known else None)
        assert told["http.request.method"] == line["method"]
        assert told["http.response.status_code"] == line["status"]
        assert told["url.path"] == line["path"]
        assert told["protoslice.request_id"] == line["request_id"]
        assert told["http.request.body.size"] == line["received"]
        assert told["http.response.body.size"] == line["sent"]
        assert told.get("protoslice.store") == line.get("store")
        assert (told["client.address"], told["server.port"]) == (line["client"], service.server.port)
        assert told["user_agent.original"] == "tester/1"
        assert span.status.code == Status.STATUS_CODE_UNSET
    assert {"PUT /v1/stores", "GET /v1/stores/{ref}/chunks/{n}", "GET"} < {span.name for span in spans.values()}
    assert b"hush" not in b"".join(collector.bodies), "queries and headers stay here"
    first = ExportTraceServiceRequest.FromString(collector.bodies[0]).resource_spans[0].resource
    assert {each.key: each.value.string_value for each in first.attributes}["service.name"] == "protoslice"


def test_the_callers_trace_goes_on(tmp_path: Path) -> None:
    with collecting() as collector, serving(tmp_path, {"PROTOSLICE_OTEL_ENDPOINT": collector.url}) as service:
        for sent in (f"00-{TRACE}-{PARENT}-01", "00-0-0-01", "garbage"):
            assert httpx.get(f"{service.url}/livez", headers={"traceparent": sent}).status_code == 200
        # The caller has decided that this trace is not kept, but the log still has its id.
        httpx.get(f"{service.url}/livez", headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
        first, *others, last = ended(service)
        spans = {span.span_id.hex(): span for span in collector.spans}
    assert first["trace_id"] == last["trace_id"] == TRACE
    assert spans[first["span_id"]].parent_span_id.hex() == PARENT
    assert not [line for line in others if spans[line["span_id"]].parent_span_id or line["trace_id"] == TRACE]
    assert len(spans) == 3


def test_a_fault_is_an_error(tmp_path: Path) -> None:
    with collecting() as collector, serving(tmp_path, {"PROTOSLICE_OTEL_ENDPOINT": collector.url}) as service:
        store = httpx.put(f"{service.url}/v1/stores", content=b"\x0a\x07damaged\x12\x80\x28" + bytes(5120)).json()["id"]
        (damaged,) = (path for path in tmp_path.rglob("*") if path.is_file() and b"damaged" in path.read_bytes()[:20])
        damaged.write_bytes(damaged.read_bytes().replace(b"damaged", b"Damaged"))
        assert httpx.get(f"{service.url}/v1/stores/{store}/merge").status_code == 500
        ended(service)
        (failed,) = (span for span in collector.spans if span.status.code == Status.STATUS_CODE_ERROR)
    assert failed.name == "GET /v1/stores/{ref}/merge"
    assert attributes(failed)["error.type"] == "IntegrityError"
    assert attributes(failed)["http.response.status_code"] == 500


def test_nothing_is_sent_unless_we_are_told_where(tmp_path: Path) -> None:
    with collecting() as collector:
        general = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "FASTAPI_OTEL_AUTO_CONFIGURE": "true"}
        with serving(tmp_path, {**general, "OTEL_BSP_SCHEDULE_DELAY": "10"}) as service:
            httpx.get(f"{service.url}/livez", headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
            (line,) = ended(service)
        assert collector.bodies == []
    assert "trace_id" not in line


@pytest.mark.parametrize("fault", ["answers 500", "refuses", "is silent"])
@pytest.mark.long
def test_a_collector_that_fails_hurts_nobody(tmp_path: Path, fault: str) -> None:
    with collecting(status=500) as collector, socket.create_server(("127.0.0.1", 0)) as silent:
        _, port = silent.getsockname()
        if fault == "refuses":
            silent.close()
        url = collector.url if fault.startswith("answers") else f"http://127.0.0.1:{port}"
        settings = {"PROTOSLICE_OTEL_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "300", "OTEL_BSP_MAX_QUEUE_SIZE": "512"}
        with serving(tmp_path, settings) as service, httpx.Client(base_url=service.url) as client:
            store = client.put("/v1/stores", content=b"\x0a\x05spans").json()["id"]
            assert {client.get(f"/v1/stores/{store}/merge").content for _ in range(700)} == {b"\x0a\x05spans"}
            if fault.startswith("answers"):
                assert collector.came.wait(10)
            lines = ended(service)
            log = service.log.read_text().splitlines()
    assert len(lines) == 701
    others = [json.loads(line) for line in log if json.loads(line)["event"] != "request"]
    assert len(others) < len(lines) // 2, "the log is flooded"


def _written(form: str, level: str, context: RequestContext) -> str:
    out = StringIO()
    with logs_to(out, form, level) as flush:
        context.started -= 0.25
        Recorder(Metrics()).record(context)
        flush()
    return out.getvalue()


def test_a_request_is_one_line_of_json() -> None:
    context = RequestContext(method="GET", path="/v1/stores/\udcff\n")
    context.status, context.store = 200, "0" * 64
    line = json.loads(_written("json", "info", context))
    assert (line["event"], line["level"], line["status"]) == ("request", "info", 200)
    assert line["seconds"] >= 0.25
    assert (line["path"], line["store"]) == ("/v1/stores/\udcff\n", "0" * 64)
    assert line["timestamp"].endswith("Z")


def test_text_quotes_what_would_forge_a_line() -> None:
    context = RequestContext(method="GET", path='/a\n2026 info forged "x"')
    text = _written("text", "info", context)
    assert text.count("\n") == 1
    assert r'path="/a\n2026 info forged \"x\""' in text


@pytest.mark.parametrize("form", ["json", "text"])
def test_levels_above_info_log_failed_requests_only(form: str) -> None:
    context = RequestContext(method="GET", path="/")
    assert _written(form, "warning", context) == ""
    context.cause = ZeroDivisionError("a / 0")
    text = _written(form, "warning", context)
    assert "ZeroDivisionError" in text
    assert "trace" in text


def test_own_errors_are_logged_without_a_trace() -> None:
    context = RequestContext(method="GET", path="/")
    context.cause = IntegrityError("block 3 is damaged")
    line = json.loads(_written("json", "error", context))
    assert (line["error"], line["message"]) == ("IntegrityError", "block 3 is damaged")
    assert "trace" not in line


@pytest.mark.parametrize("form", ["json", "text"])
def test_lines_of_libraries_have_their_exception(form: str) -> None:
    out = StringIO()
    with logs_to(out, form, "info") as flush:
        try:
            raise KeyError("gone")
        except KeyError:
            logging.getLogger("uvicorn.error").exception("cannot serve %s", "this")
        logging.getLogger("uvicorn.error").info("too much detail")
        flush()
    text = out.getvalue()
    assert "cannot serve this" in text
    assert "KeyError: 'gone'" in text
    assert "too much detail" not in text


def test_a_stream_that_is_closed_loses_lines_and_nothing_else() -> None:
    out = StringIO()
    with logs_to(out, "json", "info") as flush:
        out.close()
        Recorder(Metrics()).record(RequestContext(method="GET", path="/"))
        flush()
