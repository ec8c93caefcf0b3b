"""`doctor` against proxies that disturb requests, each in one way."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
from tests.support.serve import serve
from tests.support.wire import in_a_thread

from protoslice.cli.commands import probes
from protoslice.client import Client

PATIENCE_SECONDS = 2.0
PAUSE_SECONDS = 1.0
UNREAD_SECONDS = 0.5
PROMISES = {
    "": "",
    "buffer": "uploads are streamed",
    "gather": "chunked uploads are streamed",
    "stale": "changes are visible at once",
    "lost": "uploads can be resumed",
    "cut out": "ranges are served by the service",
    "limit": "large uploads are accepted",
    "impatient": "uploads may pause",
    "no patch": "uploads may pause",
    "hoard": "responses to slow clients are not buffered",
    "no ranges": "ranges are exact",
    "strip": "entity tags stay strong",
    "weaken": "entity tags stay strong",
    "digest": "digests are passed on",
    "gzip": "binaries are not compressed",
    "slashes": "paths are passed on unchanged",
    "decode": "paths are passed on unchanged",
    "rename": "links lead to this address",
    "name": "clients are distinguished",
}


class _Proxy(BaseHTTPRequestHandler):
    """A proxy that forwards requests and disturbs them."""

    protocol_version = "HTTP/1.1"
    upstream = ""
    meddling = ""
    kept: dict[str, tuple[int, dict[str, str], bytes]]

    def handle(self) -> None:
        with suppress(OSError, http.client.HTTPException):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.close_connection = True
        length = int(self.headers.get("content-length", "0"))
        if self.meddling == "limit" and length > 1 << 20:
            self._say(413, {"content-type": "text/html"}, b"too large")
            return
        if self.meddling == "no patch" and self.command == "PATCH":
            self._say(501, {}, b"")
            return
        if self.meddling == "gather" and "transfer-encoding" in self.headers:
            while self.rfile.readline().strip() not in {b"0", b""}:
                pass
            return
        if self.meddling == "stale" and self.command == "GET" and self.path in self.kept:
            self._say(*self.kept[self.path])
            return
        place = urlsplit(self.upstream)
        source = ("127.0.0.2", 0) if self.meddling in {"elsewhere", "behind"} else None
        with closing(
            http.client.HTTPConnection(str(place.hostname), place.port, timeout=20, source_address=source)
        ) as upstream:
            self._pass(upstream, length)

    def _pass(self, upstream: http.client.HTTPConnection, length: int) -> None:
        body = self._whole(length) if self.meddling == "buffer" else b""
        upstream.putrequest(self.command, self._path(), skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() == "host" and self.meddling == "rename":
                upstream.putheader("host", "localhost:80")
            elif not (name.lower() == "range" and self.meddling == "no ranges"):
                upstream.putheader(name, value)
        if self.meddling in {"name", "behind"}:
            upstream.putheader("x-forwarded-for", str(self.client_address[0]))
        upstream.endheaders(body)
        relay = threading.Thread(target=self._relay, args=(upstream.sock, 0 if body else length), daemon=True)
        relay.start()
        with closing(upstream.getresponse()) as answer:
            headers = {name.lower(): value for name, value in answer.getheaders()}
            if self.meddling != "hoard" and (answer.length or 0) > 8 << 20:
                self._stream(answer, headers)
            else:
                self._pass_on(answer.status, headers, answer.read())
        relay.join(10)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET  # noqa: N815 - as the library asks for them

    def _path(self) -> str:
        path = self.path
        if self.meddling == "decode":
            path = path.replace("%2F", "/")
        return re.sub("//+", "/", path) if self.meddling in {"slashes", "decode"} else path

    def _whole(self, length: int) -> bytes:
        body = b""
        while len(body) < length and (piece := self.rfile.read(min(length - len(body), 1024))):
            body += piece
        if len(body) < length:
            raise ConnectionError("the client has left")
        return body

    def _stream(self, answer: http.client.HTTPResponse, headers: dict[str, str]) -> None:
        self.send_response_only(answer.status)
        self.send_header("content-length", headers["content-length"])
        self.end_headers()
        while piece := answer.read1(1 << 16):
            self.wfile.write(piece)

    def _relay(self, upstream: socket.socket, length: int) -> None:
        if self.meddling == "impatient":
            self.connection.settimeout(PAUSE_SECONDS / 2)
        with suppress(OSError, ValueError):
            while length > 0 and (piece := self.rfile.read1(min(length, 65536))):
                upstream.sendall(piece)
                length -= len(piece)
        if length > 0:
            with suppress(OSError):
                upstream.shutdown(socket.SHUT_RDWR)

    def _pass_on(self, status: int, headers: dict[str, str], body: bytes) -> None:
        for name in ("transfer-encoding", "connection", "date", "server"):
            headers.pop(name, None)
        if self.meddling == "strip":
            headers.pop("etag", None)
        if self.meddling == "weaken" and "etag" in headers:
            headers["etag"] = f"W/{headers['etag']}"
        if self.meddling == "digest":
            headers.pop("repr-digest", None)
        if self.meddling == "gzip" and status == 200 and "gzip" in self.headers.get("accept-encoding", ""):
            body, headers["content-encoding"] = gzip.compress(body), "gzip"
        if self.meddling == "stale" and "/tags/" in self.path and self.command == "GET" and status == 200:
            self.kept[self.path] = status, headers, body
        if self.meddling == "lost" and "location" in headers:
            headers["location"] = headers["location"].replace("/v1/", "/elsewhere/")
        if self.meddling == "cut out":
            headers = {name: text.replace("boundary=", "boundary=0000") for name, text in headers.items()}
        self._say(status, headers, body)

    def _say(self, status: int, headers: dict[str, str], body: bytes) -> None:
        if self.command != "HEAD" and status not in {204, 304}:
            headers["content-length"] = str(len(body))
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def meddling_proxy(upstream: str, meddling: str, kind: type[_Proxy] = _Proxy) -> Iterator[str]:
    handler = type("Proxy", (kind,), {"upstream": upstream, "meddling": meddling, "kept": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = False  # each connection ends and frees its resources
    with in_a_thread(server) as address:
        yield f"http://{address}"


@pytest.mark.parametrize("meddling", PROMISES)
def test_each_kind_of_meddling_is_told_with_what_to_change(
    call: Any, service: str, store: str, meddling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "PATIENCE_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(probes, "PAUSE_SECONDS", PAUSE_SECONDS)
    if meddling != "hoard":  # a proxy that accepts everything needs a while
        monkeypatch.setattr(probes, "UNREAD_SECONDS", UNREAD_SECONDS)
    with meddling_proxy(service, meddling) as url:
        told = json.loads(call("doctor", url, "--json", code=3 if meddling else 0).stdout)
    bad = {check["check"] for check in told["checks"] if check["found"]}
    assert bad == ({PROMISES[meddling]} if meddling else set())
    assert told["well"] == (not meddling)
    assert all(check["advice"].count(";") for check in told["checks"] if check["found"])
    with Client(service) as client:
        assert not [each for each in client.stores(tag="doctor-")], "nothing is left behind"


def test_people_get_lines(call: Any, service: str, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "PAUSE_SECONDS", PAUSE_SECONDS)
    *shown, blank, last = call("doctor").stdout.splitlines()
    assert len(shown) == len(probes.CHECKS)
    assert all(line.startswith("OK    ") for line in shown)
    assert (blank, last) == ("", f"All checks passed for {service}")
    with meddling_proxy(service, "gzip") as url:
        shown = call("doctor", url, "--store", "model:1", code=3).stdout.splitlines()
    at = shown.index("BAD   binaries are not compressed")
    assert "(gzip)" in shown[at + 1]
    assert shown[at + 2] == "      nginx: gzip off; and no sub_filter"
    assert (
        shown[shown.index("?     changes are visible at once") + 1]
        == "      not tested with --store, because that would add a tag to the store"
    )
    assert shown[-1] == f"1 of {len(probes.CHECKS)} checks failed for {url}"


TOLD_APART = "clients are distinguished"


@pytest.mark.parametrize(
    ("trusted", "meddling", "expected"),
    [
        ("127.0.0.2", "behind", {"found": None, "untold": None}),
        (
            "127.0.0.2",
            "elsewhere",
            {"found": "the proxy does not name the client: all clients share the limits of one client", "untold": None},
        ),
        (
            "127.0.0.3",
            "behind",
            {
                "found": "the service does not trust the proxy: all clients share the limits of one client",
                "untold": None,
            },
        ),
        (
            "127.0.0.3",
            "elsewhere",
            {
                "found": None,
                "untold": "the service sees 127.0.0.2 instead of 127.0.0.1: a proxy does not name the client, or the "
                "network translates addresses",
            },
        ),
    ],
)
def test_doctor_tells_if_clients_are_told_apart(trusted: str, meddling: str, expected: dict[str, str | None]) -> None:
    (check,) = (each for each in probes.CHECKS if each.title == TOLD_APART)
    with serve(auth="open", trusted_proxies=(trusted,)) as live, meddling_proxy(live.url, meddling) as url:
        target, untold = probes.Target(url, "", "", 0, None, None), None
        try:
            found = check.fault(target)
        except probes.Inconclusive as error:
            found, untold = None, str(error)
    assert {"found": found, "untold": untold} == expected


class _Reached(BaseHTTPRequestHandler):
    """A stand-in for a service that reports that `client` reached it without a proxy."""

    client: str | None = None

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        body = json.dumps({"url": "", "client": self.client, "proxy": None}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("::ffff:127.0.0.1", None),
        (None, "the proxy does not name the client: all clients share the limits of one client"),
    ],
    ids=["a mapped address", "a Unix socket"],
)
def test_doctor_knows_addresses_of_other_kinds(client: str | None, expected: str | None) -> None:
    (check,) = (each for each in probes.CHECKS if each.title == TOLD_APART)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Reached", (_Reached,), {"client": client}))
    with in_a_thread(server) as address:
        assert check.fault(probes.Target(f"http://{address}", "", "", 0, None, None)) == expected


class _Quiet(_Proxy):
    """A proxy that keeps the service's metrics private, as it should."""

    def do_GET(self) -> None:
        if self.path.startswith("/metrics"):
            self._say(404, {}, b"")
            return
        super().do_GET()


def test_what_cannot_be_told_accuses_nobody(call: Any, service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "PAUSE_SECONDS", PAUSE_SECONDS)
    with meddling_proxy(service, "", _Quiet) as url:
        told = json.loads(call("doctor", url, "--json").stdout)
    untold = {check["check"]: check["untold"] for check in told["checks"] if check["untold"]}
    assert untold == {
        "responses to slow clients are not buffered": "not tested, because /metrics is not reachable here"
    }


def test_a_service_that_is_away(call: Any) -> None:
    assert "Cannot connect" in call("doctor", "http://127.0.0.1:1", "--store", "any", code=6).stderr


class _Elsewhere(BaseHTTPRequestHandler):
    """A proxy that begins uploads at another address, and records the received credentials."""

    place = ""
    told: ClassVar[list[tuple[str, str | None]]]

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))  # unread bytes would make the close a reset
        self.told.append((self.command, self.headers.get("authorization")))
        self.send_response(201 if self.command == "POST" else 200)
        self.send_header("location", f"{self.place}/v1/uploads/x")
        self.send_header("content-length", "0")
        self.end_headers()

    do_HEAD = do_DELETE = do_PATCH = do_POST  # noqa: N815 - as the library asks for them


def test_credentials_do_not_follow_an_upload_to_another_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOSLICE_AUTHORIZATION", "Bearer of-good-news")
    monkeypatch.delenv("PROTOSLICE_URL", raising=False)

    class Ours(_Elsewhere):
        told: ClassVar[list[tuple[str, str | None]]] = []

    class Theirs(_Elsewhere):
        told: ClassVar[list[tuple[str, str | None]]] = []

    with (
        in_a_thread(ThreadingHTTPServer(("127.0.0.1", 0), Ours)) as here,
        in_a_thread(ThreadingHTTPServer(("127.0.0.1", 0), Theirs)) as there,
    ):
        Ours.place = f"http://{there}"
        service = probes.Target(f"http://{here}", "/v1/stores/x", "/files/y", 1, None, None)
        with service.upload(2) as place:
            service.send_slowly(place, b"ab", 0)
    assert Ours.told == [("POST", "Bearer of-good-news")]
    assert Theirs.told == [("HEAD", None), ("PATCH", None), ("DELETE", None)]
