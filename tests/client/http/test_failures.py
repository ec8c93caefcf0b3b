"""Failures are the exceptions that the library raises too, with what the service said of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest
from tests.support.serve import LiveServer
from tests.support.wire import Fault, FaultyProxy

from protoslice import errors
from protoslice.client import Client
from protoslice.client.http.connection import FailuresInRow, RetryPolicy
from protoslice.client.http.decoding import decode
from protoslice.client.http.errors import error_of_answer, error_of_transport, is_transient
from protoslice.facts import ChunkEntry, Node, Store
from protoslice.server.problems import BY_SLUG, PROBLEMS, HttpProblem, problem_response


def answered(problem: Any, **members: Any) -> errors.ProtosliceError:
    answer = problem_response(HttpProblem(problem, "it failed", **members), request_id="abcdefgh")
    return error_of_answer(problem.status, answer.headers, bytes(answer.body))


KINDS = {kind.slug: kind for kind in reversed(errors.WITH_SLUG)} | {
    "digest-mismatch": errors.ChecksumMismatch,
    "corrupt-model": errors.CorruptModel,
    "bad-request": errors.InvalidInput,
    "no-resource": errors.NotFound,
    "cross-site": errors.StorageDenied,
    "forbidden": errors.StorageDenied,
    "method-not-allowed": errors.Unsupported,
    "not-acceptable": errors.Unsupported,
    "request-timeout": errors.StorageUnavailable,
    "precondition-required": errors.Conflict,
    "range-not-satisfiable": errors.InvalidInput,
    "misdirected-request": errors.InvalidInput,
    "header-too-large": errors.LimitExceeded,
    "internal": errors.StorageError,
    "not-ready": errors.StorageUnavailable,
}


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: str(problem.slug))
def test_every_problem_is_an_exception(problem: Any) -> None:
    error = answered(problem, path="graph.node[3]", offset=17)
    assert type(error) is KINDS[problem.slug]
    assert (error.message, error.path, error.offset, error.request_id) == ("it failed", "graph.node[3]", 17, "abcdefgh")


@pytest.mark.parametrize("kind", errors.WITH_SLUG)
def test_what_the_service_raises_is_what_the_client_raises(kind: type[errors.ProtosliceError]) -> None:
    assert type(answered(BY_SLUG[kind.slug])) is (errors.NotFound if kind is errors.SpaceRemoved else kind)


def test_a_damaged_object_is_named() -> None:
    problem = next(problem for problem in PROBLEMS if problem.slug == "damaged-object")
    error = answered(problem, object="objects/a/file-0")
    assert isinstance(error, errors.IntegrityError)
    assert error.object == "objects/a/file-0"
    assert not is_transient(error)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (403, errors.StorageDenied),
        (404, errors.NotFound),
        (418, errors.InvalidInput),
        (429, errors.StorageUnavailable),
        (502, errors.StorageUnavailable),
        (599, errors.StorageError),
    ],
)
def test_what_something_between_answers(status: int, kind: type[errors.ProtosliceError]) -> None:
    for body in (b"<html>", b"[1]", b'{"detail": 3, "offset": -1, "path": []}'):
        error = error_of_answer(status, {"content-type": "application/json"}, body)
        assert type(error) is kind
        assert (error.offset, error.path) == (None, None)


@pytest.mark.parametrize(
    ("value", "seconds"), [("7", 7.0), ("0", 0.0), ("999999999999", 3600.0), ("soon", None), ("-1", None), (None, None)]
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    error = error_of_answer(503, {} if value is None else {"retry-after": value}, b"")
    assert error.retry_after_seconds == seconds


def test_retry_after_a_date() -> None:
    then = datetime.now(UTC) + timedelta(seconds=100)
    error = error_of_answer(503, {"retry-after": format_datetime(then, usegmt=True)}, b"")
    assert 50 < (error.retry_after_seconds or 0) <= 100


def test_patience_honours_the_service_and_ends() -> None:
    policy = RetryPolicy(attempts=3, first_seconds=1, longest_seconds=2, longest_retry_after_seconds=60)
    failures = FailuresInRow(policy)
    plain, asked, long = (errors.StorageUnavailable("away") for _ in range(3))
    asked.retry_after_seconds, long.retry_after_seconds = 30, 61
    assert 0.5 <= (failures.pause(plain) or 0) <= 1
    assert 1 <= (failures.pause(plain) or 0) <= 2
    assert failures.pause(plain) is None
    failures.progressed()
    assert failures.pause(asked) == 30
    for hopeless in (long, errors.NotFound("no")):
        assert FailuresInRow(policy).pause(hopeless) is None


def test_a_service_that_is_not_there() -> None:
    with Client("http://127.0.0.1:9", attempts=2, backoff_seconds=0.001) as client:
        with pytest.raises(errors.StorageUnavailable, match="Cannot connect"):
            client.store("x")
        with pytest.raises(errors.StorageUnavailable):
            client.download("x", "never")


def test_every_exception_of_httpx_is_one_of_ours() -> None:
    kinds = [kind for kind in vars(httpx).values() if isinstance(kind, type) and issubclass(kind, httpx.HTTPError)]
    assert len(kinds) > 15
    for kind in kinds:
        error = kind.__new__(kind)
        Exception.__init__(error, "said")
        assert isinstance(error_of_transport(error, "http://host"), errors.ProtosliceError)


def test_requests_that_must_not_be_repeated_are_not(service: LiveServer, proxy: FaultyProxy) -> None:
    with Client(service.url) as direct, Client(proxy.url, backoff_seconds=0.001) as ours:
        store = direct.push(b"\x0a\x03del", filename="del.pb").store
        for call in (
            lambda: ours.tag("cas:1", store.id, create=True),
            lambda: ours.remove(store.id),
            lambda: ours.untag("cas:1"),
        ):
            proxy.script[:], proxy.done[:] = [Fault("reset")], []
            with pytest.raises(errors.ProtosliceError):
                call()
            assert len(proxy.done) == 1


def test_busy_is_waited_out(service: LiveServer, proxy: FaultyProxy) -> None:
    with Client(proxy.url, backoff_seconds=0.001) as ours:
        proxy.script[:], proxy.done[:] = [Fault("busy"), Fault("bad gateway"), Fault("reset")], []
        assert list(ours.schemas()) == []
        assert len(proxy.done) == 4


GOOD = {
    "id": "0" * 64, "type": "t", "root": "r", "size": 1, "chunks": 1, "min_chunk": 1, "max_chunk": 1,
    "created": "2026-11-21T10:00:00Z", "tags": ["a"], "files": [{"path": "r", "size": 1, "sha256": None}],
    "source": "upload", "schema": None, "planner": 1, "news": "from the future",
}  # fmt: skip


def test_json_is_read() -> None:
    store = decode(Store, json.loads(json.dumps(GOOD)))
    assert store.files[0].sha256 is None
    assert store.created == datetime(2026, 11, 21, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": -1}, {"size": "1"}, {"size": True}, {"size": 1 << 64}, {"id": None}, {"created": "yesterday"},
        {"tags": "a"}, {"tags": [1]}, {"files": [1]}, {"files": [{"path": "r"}]}, {"files": None},
    ],
)  # fmt: skip
def test_json_that_is_not_as_agreed(wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.IntegrityError):
        decode(Store, GOOD | wrong)


def test_json_that_is_something_else() -> None:
    others: tuple[object, ...] = ([], None, {}, "store")
    for data in others:
        with pytest.raises(errors.IntegrityError):
            decode(ChunkEntry, data)
    node = {"path": "a", "field": 1, "name": None, "kind": "message", "type": None, "count": None, "size": 0}
    more = {"deeper": True, "text": None, "children": [node | {"deeper": False, "text": "x"}], "more": 2}
    read = decode(Node, node | more)
    assert (read.children[0].text, read.more) == ("x", 2)
