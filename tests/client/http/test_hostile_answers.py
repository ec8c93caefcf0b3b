"""A hostile service: clients raise errors of `protoslice.errors`, and nothing else."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.wire import in_a_thread

from protoslice import facts
from protoslice.client import Client
from protoslice.client.http.decoding import decode
from protoslice.errors import IntegrityError, ProtosliceError

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
    """Answers every request with the same."""

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
    """Every public call of a client, with arguments."""
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
                f"{error} {error.request_id}".encode()  # can be printed
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


KINDS: Final = [each for each in vars(facts).values() if isinstance(each, type) and is_dataclass(each)]
"""Facts that responses are read as."""


@pytest.mark.parametrize("kind", KINDS)
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
