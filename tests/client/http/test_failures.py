"""Failures: the client raises the exceptions that the library raises too, with the service's message.

Clients of a hostile service raise errors of `protoslice.errors`, and no others.
"""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from tests.support.serve import LiveServer
from tests.support.wire import Fault, FaultyProxy, in_a_thread

from protoslice import errors, facts
from protoslice.client import Client
from protoslice.client.http.connection import FailuresInRow, RetryPolicy
from protoslice.client.http.decoding import decode
from protoslice.client.http.errors import error_of_answer, error_of_transport, is_transient
from protoslice.errors import IntegrityError, ProtosliceError
from protoslice.facts import ChunkEntry, Node, Store
from protoslice.server.problems import BY_SLUG, PROBLEMS, HttpProblem, problem_response


def answered(problem: Any, **members: Any) -> errors.ProtosliceError:
    answer = problem_response(HttpProblem(problem, "it failed", **members), request_id="abcdefgh")
    return error_of_answer(problem.status, answer.headers, bytes(answer.body))


KIND_OF_SLUG = {kind.slug: kind for kind in reversed(errors.WITH_SLUG)} | {
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
    assert type(error) is KIND_OF_SLUG[problem.slug]
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


DEEP: Final = b'{"a":' * 100_000
NESTED: Final = b'{"items": [' + b'{"children": [' * 330 + b"]}" * 330 + b"]}"
VALUES: Final[list[Any]] = [
    None, True, 0, -1, 1 << 80, 1.5, float("nan"), float("inf"), "", "\ud800", "\x1b[2J", "9999-99-99", [], [[]], {},
    {"\udc00": 1}, [None], ["\ud800"],
]  # fmt: skip
BODIES: Final = [
    b"", b"\xff\xfe", b"{", b"[" * 100_000, DEEP, NESTED, b'"\\ud800"', b'{"items": ["\\ud800"], "next": "\\ud800"}',
    b'{"items": {}, "next": 1}', b'{"items": [null, 1, "a", {}], "next": null}', b"1" * 5000, b"null", b"[]", b"{}",
    b'{"detail": "\\ud800", "title": 1, "type": {"a": []}, "path": [], "offset": 1e999, "request_id": "\\udc00"}',
    b'{"authorization_servers": [], "client_id": {}, "scopes_supported": 1}',
    b'{"authorization_servers": {"a": 1}, "client_id": "a", "scopes_supported": ["a"]}',
    b'{"dtype": "STRING", "values": ["\\u00e9"], "shape": [1e999]}', b'{"dtype": "STRING", "values": 7, "shape": "x"}',
    b'{"letters": "x"}',
]  # fmt: skip
HEADERS: Final[list[dict[str, str]]] = [
    {"Content-Type": "application/json"},
    {
        "Content-Type": "application/problem+json",
        "Retry-After": "Fri, 31 Dec 9999 23:59:59 -2359",
        "Repr-Digest": "sha-256=:x:",
        "ETag": '"x',
        "X-Tensor-Shape": "9" * 30,
        "X-Tensor-Dtype": "F32",
        "Content-Range": "bytes 0-9/" + "9" * 30,
    },
]
ARGUMENTS: Final[dict[str, Any]] = {"scopes": ["read"], "views": ["tensors"], "chunk": 0, "files": {"a": "file:///a"}}


class Hostile(BaseHTTPRequestHandler):
    """A server that sends the same answer to every request."""

    status, body, headers_sent = 200, b"", HEADERS[0]

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        self.send_response(self.status)
        for name, value in self.headers_sent.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        with suppress(ConnectionError):
            self.wfile.write(b"" if self.command == "HEAD" else self.body)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


@contextmanager
def hostile(status: int, body: bytes, headers: dict[str, str]) -> Iterator[str]:
    kind = type("Kind", (Hostile,), {"status": status, "body": body, "headers_sent": headers})
    with in_a_thread(ThreadingHTTPServer(("127.0.0.1", 0), kind)) as place:
        yield f"http://{place}"


def calls(folder: Path) -> Iterator[tuple[str, list[Any]]]:
    """Return every public call of a client, with arguments."""
    for name, method in inspect.getmembers(Client, inspect.isfunction):
        if name.startswith("_") or name == "close":
            continue
        given: list[Any] = []
        for parameter in list(inspect.signature(method).parameters.values())[1:]:
            if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                bytes_wanted = "bytes" in str(parameter.annotation)
                given.append(ARGUMENTS.get(parameter.name, b"data" if bytes_wanted else "0" * 64))
        if name in {"download", "download_view"}:
            given = [*given[:1], folder / name]
        yield name, given


def faults(url: str, folder: Path) -> list[str]:
    found = []
    with Client(url, attempts=1, timeout_seconds=5) as client:
        for name, given in calls(folder):
            try:
                made = getattr(client, name)(*given)
                if isinstance(made, Iterator):
                    for _, _ in zip(range(3), made, strict=False):
                        pass
            except ProtosliceError as error:
                f"{error} {error.request_id}".encode()  # the error can be printed
            except Exception as error:
                found.append(f"{name}: {type(error).__name__} {error!r:.200}")
    return found


@pytest.mark.parametrize("status", [200, 404])
def test_calls_raise_errors_of_the_library_alone(status: int, tmp_path: Path) -> None:
    wrong = []
    for body in BODIES:
        for headers in HEADERS:
            with hostile(status, body, headers) as url:
                wrong += [f"{body[:40]!r}: {fault}" for fault in faults(url, tmp_path)]
    assert wrong == [], "\n".join(dict.fromkeys(wrong))


FACTS: Final = [each for each in vars(facts).values() if isinstance(each, type) and is_dataclass(each)]
"""The facts that responses are read as."""


@pytest.mark.parametrize("kind", FACTS)
def test_facts_of_other_values_are_refused(kind: type[Any]) -> None:
    for field in fields(kind):
        for value in VALUES:
            with suppress(IntegrityError):
                decode(kind, {each.name: value if each is field else "x" for each in fields(kind)})


@pytest.mark.parametrize("body", [DEEP, b'{"id": "\\ud800"}', b'{"detail": "\\ud800\\u001b[2J"}', NESTED])
@pytest.mark.parametrize("status", [200, 400])
def test_the_command_line_prints_one_line(body: bytes, status: int) -> None:
    with hostile(status, body, HEADERS[0]) as url:
        for words in (["ls"], ["info", f"{url}/v1/stores/{'0' * 64}"]):
            more = ["--url", url] if words == ["ls"] else []
            command = [sys.executable, "-m", "protoslice.cli", *words, *more]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode not in {0, 1}
            assert "Traceback" not in done.stderr
            assert len(done.stderr.strip().splitlines()) == 1
            assert "\x1b" not in done.stderr
