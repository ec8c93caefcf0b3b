"""Log lines of requests and libraries, as JSON and as text."""

from __future__ import annotations

import json
import logging
from io import StringIO

import pytest
from tests.support.serve import logs_to

from protoslice.errors import IntegrityError
from protoslice.server.context import RequestContext
from protoslice.server.telemetry.logs import Recorder
from protoslice.server.telemetry.metrics import Metrics


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
