"""A corpus of requests gets the same bytes, log lines and metrics with the fast path and without it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from io import StringIO
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import httpx
import pytest
from tests.server.registries.s3.test_signatures import Keys, Made
from tests.support.serve import LiveServer, logs_to, serve
from tests.support.views import FILE, PLAIN, STREAM

from protoslice.server.app import Application, create_app
from protoslice.server.http import planner as plan
from protoslice.server.settings import Settings
from protoslice.server.transport.run import fast_path

HOST = "host: localhost:8000"
VIEWS = [*(quote(case.path, safe="/?=&:[]") for case in PLAIN),
    "files/empty", "files/nothing", "files/", "files", f"files/{quote(FILE, safe='')}", "files//x", "chunks/2",
    "chunks/99", "chunks/x", "chunks/", "chunks", "chunks/1/", "chunks/1?x=1", "chunks/1?", "chunks/%31",
    "chunks/\u0661", "merge?path=nowhere", "tensors/big", "tensors/big?slice=0:9", "tensors/none", "records",
    "records/0", "records?file=small&framing=delimited", "records/0?file=small&framing=delimited",
    "nothing", ""]  # fmt: skip
CORE = [[], ["range: bytes=1-99"], ["range: bytes=0-4095", "accept: */*"], ["if-none-match: *"], ["dnt: 1"]]
RANGES = ["bytes=0-0", "bytes=10-300", "bytes=-70", "bytes=7-", "BYTES=7-8", "bytes=65530-65541", "bytes=0-65535",
    "bytes=0-65536", "bytes=0-1,200-300", "bytes=0-1,", "bytes=,3-4", "bytes=0-1,2-3", "bytes=99999999-", "bytes=-0",
    "bytes=5-2", "bytes=x-y", "bytes", "items=0-1", "bytes= 1-2", "bytes=1-2 ", "bytes=+1-2", "", "bytes=1-" + "9" * 40,
    "bytes=" + ",".join(f"{n * 500}-{n * 500}" for n in range(70))]  # fmt: skip
HEADERS = [
    *([f"range: {wanted}"] for wanted in RANGES),
    *(["range: bytes=0-9", more] for more in (
        'if-range: "other"', "if-range: {etag}", 'if-range: W/"x"', "if-range: Wed, 21 Oct 2015 07:28:00 GMT",
        'if-match: "other"', "if-match: *", "if-match: {etag}", 'if-none-match: "other"', "if-none-match: {etag}",
        "if-none-match: W/{etag}", 'if-none-match: "a", {etag}', "if-none-match: broken",
        "if-modified-since: Wed, 21 Oct 2015 07:28:00 GMT", "if-unmodified-since: Wed, 21 Oct 2015 07:28:00 GMT",
        "want-repr-digest: sha-256=0", "want-repr-digest: sha-256=5", "want-repr-digest: md5=1",
        "want-content-digest: sha-256=1", "accept: application/octet-stream", "accept: application/json",
        "accept: text/plain;q=0.5, */*;q=0.1", "accept: */*;q=0", "accept: ", "accept: image/png", "Accept: */*",
        "connection: close", "connection: keep-alive", "connection: Keep-Alive, x", "connection: upgrade",
        "expect: 100-continue", "upgrade: websocket", "content-length: 0", "transfer-encoding: chunked",
        "origin: https://page.example", "sec-fetch-site: cross-site", "x-forwarded-for: 192.0.2.1", "forwarded: for=x",
        "x-forwarded-host: other.example", "x-http-method-override: DELETE", "cookie: a=b", "authorization: Bearer x",
        "range: bytes=5-6", "user-agent: \xff\xfe", "referer: http://x/", "accept-encoding: gzip", "te: trailers",
        "x-request-id: short", "X-Request-Id: another-id-of-mine", "priority: u=1", "traceparent: 00-1-2-01",
    )),
]  # fmt: skip
HOSTS = [[], ["host: localhost", "host: localhost"], ["host: other.example"], ["host: "], ["host: a b"],
    ["host: 127.0.0.1"], ["host: [::1]:80"], ["host: LOCALHOST."], ["host: \xff"], ["host: a,b"]]  # fmt: skip
OTHERS = ["/livez", "/nowhere", "/v1", "/v1/stores", "/v1/stores/", "//v1/stores/{id}/files/small", "/v1/tags", "*",
    "/v1/stores//files/a", "/v1/stores/{id}", "/V1/stores/{id}/files/small",
    "/v1/stores/" + "0" * 64 + "/files/small"]  # fmt: skip
OBJECT, DOMAIN = "/s3/default/stores/{id}/small", "s3.example"
OBJECTS = [f"{OBJECT}{query}" for query in (
    "", "?", "?x-id=GetObject", "?versionId=null", "?versionId=1", "?partNumber=1", "?partNumber=2", "?acl", "?x=1",
    "?response-content-type=text/plain", "?X-Amz-Expires=1", "?X-Amz-Expires=1&X-Amz-Expires=1", "/", "?uploads",
)] + [f"/s3/default/{key}" for key in (
    "tags/one:tag/small", "stores/{id}/none", "stores/{id}/@onnx/model.onnx", "stores/{id:.12}/small", "stores/{id}",
    "stores/%7Bid%7D/small", "stores/{id}/sm%61ll", "stores/{id}/s%2Fmall", "stores/{id}/%ff", "", "stores/{id}//small",
)] + ["/s3/other/stores/{id}/small", "/s3/De/stores/{id}/small", "/S3/default/stores/{id}/small"]  # fmt: skip
BY_HOST = [
    ("default." + DOMAIN, "/stores/{id}/small"), (DOMAIN, "/default/stores/{id}/small"), (DOMAIN, "/"),
    ("Default.S3.Example:80", "/stores/{id}/small"), ("other." + DOMAIN, "/stores/{id}/small"),
    ("a.default." + DOMAIN, "/stores/{id}/small"), (DOMAIN, OBJECT), ("default." + DOMAIN, OBJECT),
    ("default." + DOMAIN, "/v1/stores/{id}/files/small"), ("xs3.example", "/default/stores/{id}/small"),
]  # fmt: skip
METHODS = ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"]


class Asked(NamedTuple):
    """A request: its line and its headers; `{id}` and `{etag}` are replaced by those of the store and of the view."""

    line: str
    headers: list[str]


def corpus() -> list[Asked]:
    found = [
        Asked(f"GET /v1/stores/{ref}/{view} HTTP/1.1", [HOST, *headers])
        for ref, headers in [*(("{id}", headers) for headers in CORE), ("one:tag", CORE[1]), ("{id:.12}", CORE[1])]
        for view in VIEWS
    ]
    small, large, mixed = (f"/v1/stores/{{id}}/{view}" for view in ("files/small", "chunks/1", "chunks/0"))
    for path in (small, large, mixed):
        found += [Asked(f"GET {path} HTTP/1.1", [HOST, *headers]) for headers in HEADERS]
        found += [Asked(f"{method} {path} HTTP/1.1", [HOST, *CORE[1]]) for method in METHODS]
    found += [Asked(f"GET {small} HTTP/1.1", [*hosts, "range: bytes=0-9"]) for hosts in HOSTS]
    found += [Asked(f"GET {small} HTTP/1.0", [*hosts, "range: bytes=0-9"]) for hosts in HOSTS[:2]]
    found += [Asked(f"GET http://{host}{small} HTTP/1.1", [HOST]) for host in ("localhost", "other.example", "")]
    found += [Asked(f"GET {path} HTTP/1.1", [HOST, "range: bytes=0-9"]) for path in OTHERS]
    found += [Asked(f"GET {OBJECT} HTTP/1.1", [HOST, *headers]) for headers in HEADERS]
    found += [Asked(f"{method} {OBJECT} HTTP/1.1", [HOST, *CORE[1]]) for method in METHODS]
    found += [Asked(f"GET {path} HTTP/1.1", [HOST, "range: bytes=0-9"]) for path in OBJECTS]
    found += [Asked(f"GET {path} HTTP/1.1", [f"host: {host}", "range: bytes=0-9"]) for host, path in BY_HOST]
    found += [Asked("GET /v1/stores/{damaged}/files/model.pb HTTP/1.1", [HOST, f"range: {r}"]) for r in RANGES[:7]]
    return found


class Service:
    """One of the two services: its server, its log, and the number of answers of its fast path."""

    def __init__(self, app: Application, live: LiveServer, log: StringIO, write_log: Callable[[], None]) -> None:
        self.app = app
        self.live = live
        self.log = log
        self.write_log = write_log
        self.at_once = 0

    def ask(self, request: bytes) -> bytes:
        """Return the bytes of the answer, with masked date and ids; `<end>` is added if the connection ends."""
        with self.live.connect() as connection:
            connection.sendall(request)
            received = b""
            while not _is_complete(received, head_only=request.startswith(b"HEAD ")):
                more = connection.recv(1 << 20)
                if not more:
                    received += b"<end>"
                    break
                received += more
        return re.sub(rb"\b[0-9a-f]{24}\b", b"<made id>", re.sub(rb"(?m)^date: [^\r]+", b"date: now", received))


def _is_complete(received: bytes, *, head_only: bool) -> bool:
    head, end, body = received.partition(b"\r\n\r\n")
    if not end or re.search(rb"(?m)^connection: close\r?$", head):
        return False
    length = re.search(rb"(?m)^content-length: (\d+)\r?$", head)
    return head_only or length is None or len(body) >= int(length[1])


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    """Run a service with the fast path and one without it, over the same files."""
    folder = tmp_path_factory.mktemp("both")
    with ExitStack() as stack:
        yield _serve(stack, folder, fast=True), _serve(stack, folder, fast=False)


def _serve(stack: ExitStack, folder: Path, *, fast: bool, auth: Literal["open", "tokens"] = "open") -> Service:
    log = StringIO()
    write_log = stack.enter_context(logs_to(log, "json", "info"))
    settings = Settings(storage=folder.as_uri(), space_watermark_bytes=0, trust_seconds=60, s3_domain=DOMAIN, auth=auth)
    app = create_app(settings)
    quick = fast_path(app)

    def answer(*request: Any) -> bytes | None:
        if not fast or quick is None:
            return None
        given = quick(*request)
        service.at_once += given is not None
        return given

    live = stack.enter_context(serve(app=app, answerer=answer))
    service = Service(app, live, log, write_log)
    return service


@pytest.fixture(scope="module")
def names(services: tuple[Service, Service], model: bytes) -> dict[str, str]:
    """Return a store, a store with a damaged block, and the entity tag of a file, after both services opened them."""
    contents = {FILE: model, **STREAM, "small": bytes(range(256)) * 40, "empty": b""}
    files = [("file", item) for item in contents.items()]
    url = services[0].live.url
    made = httpx.post(f"{url}/v1/stores?tag=one:tag", files=files)
    assert made.status_code == 201, made.text
    damaged = httpx.put(f"{url}/v1/stores", content=b"\x0a\x80\x40" + b"d" * 8192)
    known = {"id": made.json()["id"], "damaged": damaged.json()["id"]}
    storage = services[0].app.services.settings.storage.removeprefix("file://")
    for path in Path(storage).glob("objects/*/file-0"):
        if path.read_bytes().endswith(b"d" * 8192):
            path.write_bytes(path.read_bytes().replace(b"dd", b"de", 1))
    for service in services:
        opened = httpx.get(f"{service.live.url}/v1/stores/{known['id']}/files/small", headers={"range": "bytes=0-0"})
        httpx.get(f"{service.live.url}/v1/stores/{known['damaged']}/files/model.pb")
    return known | {"etag": opened.headers["etag"]}


def test_a_corpus_of_requests_is_answered_alike(
    services: tuple[Service, Service], names: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "token_hex", lambda size: "b" * size)
    asked = list[bytes]()
    for line, headers in corpus():
        lines = [line.format(**names), *(header.replace("{etag}", names["etag"]) for header in headers)]
        text = "\r\n".join([*lines, "x-request-id: the-same-for-both", "", ""])
        asked.append(text.encode("latin-1" if line.isascii() else "utf-8"))
    assert len(asked) > 500
    check_alike(services, asked)
    assert services[0].at_once > 120, "the corpus exercises the fast path"


def check_alike(services: tuple[Service, Service], asked: Sequence[bytes]) -> None:
    """Raise an error unless both services give the same answers, log lines and metrics."""
    counts, logged = [_tallies(each) for each in services], [len(_lines(each)) for each in services]
    for request in asked:
        fast, ordinary = (service.ask(request) for service in services)
        assert fast == ordinary, request
    assert services[1].at_once == 0
    fast_lines, ordinary_lines = (_lines(service)[first:] for service, first in zip(services, logged, strict=True))
    assert len(fast_lines) > len(asked) * 3 // 4
    assert fast_lines == ordinary_lines
    counted = [_difference(_tallies(service), before) for service, before in zip(services, counts, strict=True)]
    assert counted[0] == counted[1]


def signed_corpus(keys: Keys, id: str) -> list[bytes]:
    """Return requests to a bucket that are signed in their headers, and by presigned URLs."""
    found = list[bytes]()
    ranges = [{}, {"range": "bytes=0-9"}, {"range": "bytes=99999999-"}, {"x-amz-checksum-mode": "ENABLED"}]
    places = [("localhost", f"/s3/default/stores/{id}/small"), (f"default.{DOMAIN}", f"/stores/{id}/small")]
    other = Keys(keys.id, "0" * 64)
    for host, path in places:
        for wanted in ranges:
            for signer, more in ((keys, {}), (other, {}), (keys, {"dnt": "1"}), (keys, {"cookie": "a=b"})):
                made = Made(signer, path=path, headers={**wanted, "host": host})
                found.append(_request(path, {**made.sent(), **more}))
        tampered = Made(keys, path=path, headers={"host": host}).sent()
        found.append(_request(f"{path}x", tampered))
        found.append(_request(path, {**tampered, "x-amz-meta-a": "unsigned"}))
        found.append(_request(path, {name: value for name, value in tampered.items() if name != "x-amz-date"}))
    path = places[0][1]
    for made in (Made(keys, path=path), Made(other, path=path), Made(keys, path=path, date=time.time() - 3600)):
        target = made.presigned()
        for more in ({}, {"range": "bytes=0-9"}, {"authorization": "Bearer x"}):
            found.append(_request(target, {"host": "localhost", **more}))
        found.append(_request(target.replace("Expires=60", "Expires=61"), {"host": "localhost"}))
        found.append(_request(target, {"host": f"default.{DOMAIN}"}))
    return found


def _request(target: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "x-request-id: the-same-for-both", "", ""]).encode()


def test_signed_requests_are_answered_alike(tmp_path: Path) -> None:
    with ExitStack() as stack:
        fast = _serve(stack, tmp_path, fast=True, auth="tokens")
        token = fast.app.services.initial_admin_token
        assert token is not None
        services = fast, _serve(stack, tmp_path, fast=False, auth="tokens")
        bearer = {"authorization": f"Bearer {token.text}"}
        stored = httpx.put(f"{fast.live.url}/v1/stores?filename=small", content=bytes(range(256)), headers=bearer)
        made = httpx.post(f"{fast.live.url}/v1/s3-keys", headers=bearer).raise_for_status().json()
        keys, id = Keys(made["access_key_id"], made["secret_access_key"]), stored.raise_for_status().json()["id"]
        for service in services:  # they know the store and the signer from now on
            service.ask(_request(path := f"/s3/default/stores/{id}/small", Made(keys, path=path).sent()))
        check_alike(services, signed_corpus(keys, id))
        assert fast.at_once >= 8, "by header and by URL, on each host"


def _tallies(service: Service) -> dict[str, float]:
    """Return the requests and bytes, by route, method and status."""
    shown = service.app.services.metrics.render().decode().splitlines()
    wanted = re.compile(r"protoslice_(requests|received_bytes|sent_bytes|damaged_reads|broken_answers)_total")
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in shown if wanted.match(line))}


def _difference(now: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    return {name: value - before.get(name, 0) for name, value in now.items() if value != before.get(name, 0)}


def _lines(service: Service) -> list[dict[str, Any]]:
    """Return the lines of requests, without their times."""
    service.write_log()
    found = [json.loads(line) for line in service.log.getvalue().splitlines() if '"event":"request"' in line]
    for each in found:
        del each["seconds"], each["timestamp"]
        each["request_id"] = re.sub(r"^[0-9a-f]{24}$", "<made id>", each["request_id"])
    return found
