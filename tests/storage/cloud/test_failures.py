"""Buckets that fail: the errors, and the remaining content.

Streams from a bucket: one request, which is continued where an answer breaks off, of one version only. Options of
buckets: all known ones are accepted, others are refused by name, and obstore never panics.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from urllib.parse import parse_qs, urlsplit

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError, UnauthenticatedError, UnknownConfigurationKeyError
from obstore.store import from_url
from tests.support.wire import in_a_thread

from protoslice.errors import (
    Conflict,
    IntegrityError,
    InvalidInput,
    LimitExceeded,
    NotFound,
    ProtosliceError,
    StorageDenied,
    StorageFull,
    StorageUnavailable,
)
from protoslice.storage import Buffer, ObjectKey, open_storage
from protoslice.storage.bucket import CONNECTION, STORES, CloudStorage, CloudWriter, explained, sort_options

KEY = ObjectKey("a/b.pb")
SECRET = "Error performing GET https://host/bucket?X-Signature=abcdef - Server returned non-2xx status code: "


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError(SECRET + "404"), NotFound),
        (PermissionDeniedError(SECRET + "403"), StorageDenied),
        (UnauthenticatedError(SECRET + "401"), StorageDenied),
        (GenericError(SECRET + "507 Insufficient Storage"), StorageFull),
        (GenericError(SECRET + "503 Slow Down"), StorageUnavailable),
        (GenericError("no status"), StorageUnavailable),
        (OSError("broken"), StorageUnavailable),
        (ValueError("broken"), StorageUnavailable),
    ],
)
def test_errors_are_told_without_their_texts(error: Exception, kind: type[ProtosliceError]) -> None:
    with pytest.raises(kind) as caught, explained("read", KEY):
        raise error
    assert type(caught.value) is kind
    assert "a/b.pb" in str(caught.value)
    assert "X-Signature" not in str(caught.value)
    assert caught.value.__suppress_context__, "nor in a traceback"


def test_our_own_errors_pass() -> None:
    with pytest.raises(InvalidInput, match="as it was"), explained("read", KEY):
        raise InvalidInput("as it was")


def test_nobody_listening_is_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        options = {
            "endpoint": f"http://127.0.0.1:{taken.getsockname()[1]}",
            "region": "x",
            "access_key_id": "x",
            "secret_access_key": "a-secret",
        }

        async def work() -> None:
            async with CloudStorage.from_uri("s3://bucket", options) as storage:
                with pytest.raises(StorageUnavailable) as caught:
                    await storage.stat(KEY)
                assert "127.0.0.1" not in str(caught.value)

        asyncio.run(work())


class Target(CloudStorage):
    """A bucket in memory whose uploads fail at a chosen part."""

    part_bytes = 10

    def __init__(self, *, fail_at: int = 0) -> None:
        self.fail_at = fail_at
        self.made: dict[str, list[bytes]] = {}

    async def put(self, key: ObjectKey, data: Buffer) -> str:
        self.made[key.text] = [bytes(data)]
        return "one"

    async def put_parts(self, key: ObjectKey, parts: AsyncIterator[Buffer]) -> str:
        taken: list[bytes] = []
        async for part in parts:
            taken.append(bytes(part))
            if len(taken) == self.fail_at:
                raise StorageUnavailable("the upload broke")
        self.made[key.text] = taken
        return "many"


@pytest.mark.parametrize(
    ("size", "parts"), [(0, [0]), (9, [9]), (10, [10]), (11, [10, 1]), (20, [10, 10]), (35, [10, 10, 10, 5])]
)
@pytest.mark.parametrize("step", [1, 7, 100])
async def test_parts_are_full_but_the_last(size: int, parts: list[int], step: int) -> None:
    target = Target()
    data = bytes(range(size))
    async with CloudWriter(target, KEY) as writer:
        for at in range(0, size, step):
            await writer.write(data[at : at + step])
        assert await writer.commit() == ("many" if len(parts) > 1 else "one")
    assert [len(part) for part in target.made[KEY.text]] == parts
    assert b"".join(target.made[KEY.text]) == data


@pytest.mark.parametrize("fail_at", [1, 2, 3])
async def test_an_upload_that_breaks_ends_the_writer(fail_at: int) -> None:
    target = Target(fail_at=fail_at)
    async with asyncio.timeout(20), CloudWriter(target, KEY) as writer:
        with pytest.raises(StorageUnavailable, match="broke"):
            await _finish(writer)
        with pytest.raises(InvalidInput):
            await writer.write(b"more")
    assert target.made == {}


async def _finish(writer: CloudWriter) -> None:
    for _ in range(3):
        await writer.write(bytes(10))
        await asyncio.sleep(0)
    await writer.commit()


async def test_an_abort_in_the_middle_makes_nothing() -> None:
    for size in (0, 5, 15, 95):
        target = Target()
        writer = CloudWriter(target, KEY)
        await writer.write(bytes(size))
        async with asyncio.timeout(20):
            await writer.abort()
        assert target.made == {}


async def test_more_parts_than_a_bucket_takes_are_refused_at_once() -> None:
    target = Target()
    async with CloudWriter(target, KEY) as writer:
        await writer.write(bytes(90_000))
        with pytest.raises(LimitExceeded):
            await writer.write(bytes(10_001))
    assert target.made == {}


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("gs://bucket/folder", {"skip_signature": "true"}),
        ("az://container/folder", {"account_name": "account", "skip_signature": "true"}),
        ("s3://bucket", {"region": "x", "skip_signature": "true"}),
    ],
)
def test_every_cloud_opens_without_asking_anyone(uri: str, options: dict[str, str]) -> None:
    assert isinstance(open_storage(uri, options), CloudStorage)


@pytest.mark.parametrize(("status", "code"), [("400 Bad Request", "InvalidBucketName"), ("503 Slow Down", "SlowDown")])
def test_the_code_of_the_storage_is_told(status: str, code: str) -> None:
    body = f": <?xml?><Error><Code>{code}</Code><Resource>/bucket?X-Signature=abcdef</Resource></Error>"
    with pytest.raises(StorageUnavailable) as caught, explained("read", KEY):
        raise GenericError(SECRET + status + body)
    assert str(caught.value) == f"cannot read 'a/b.pb': the storage failed, it responded with {status[:3]} ({code})"
    with pytest.raises(StorageDenied, match=r"\(AccessDenied\)$"), explained("read", KEY):
        raise PermissionDeniedError(SECRET + "403: <Error><Code>AccessDenied</Code></Error>")
    no_bucket = pytest.raises(StorageUnavailable, match=r"does not exist \(NoSuchBucket\)$")
    with no_bucket, explained("list", KEY, missing=StorageUnavailable):
        raise FileNotFoundError(SECRET + "404: <Error><Code>NoSuchBucket</Code></Error>")


def test_a_storage_that_takes_a_request_and_never_answers_is_given_up() -> None:
    async def work(options: dict[str, str]) -> None:
        async with CloudStorage.from_uri("s3://bucket", options, read_seconds=0.2) as storage:
            for call in (
                lambda: storage.stat(KEY),
                lambda: storage.get_range(KEY, 0, 10),
                lambda: storage.get_range(KEY, 0, 0),
                lambda: storage.list(),
                lambda: storage.get(KEY),
                lambda: anext(storage.stream(KEY, 0, 10)),
            ):
                with pytest.raises(StorageUnavailable, match="it did not respond in time"):
                    await call()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(work(_access(f"127.0.0.1:{silent.getsockname()[1]}")))


def test_a_page_of_a_listing_is_one_request() -> None:
    """The server has 1 500 objects and lists 1 000 of them in an answer, as buckets do."""
    names, asked = [f"object-{number:04}" for number in range(1500)], list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            query = parse_qs(urlsplit(self.path).query)
            after = query.get("continuation-token", query.get("start-after", [""]))[0]
            left = [name for name in names if name > after]
            self._send("".join(map(_listed, left[:1000])), left[999] if len(left) > 1000 else None)

        def _send(self, contents: str, last: str | None) -> None:
            token = "" if last is None else f"<NextContinuationToken>{last}</NextContinuationToken>"
            truncated = f"<IsTruncated>{str(last is not None).lower()}</IsTruncated>"
            body = f"<ListBucketResult>{truncated}{token}{contents}</ListBucketResult>"
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    async def work(options: dict[str, str]) -> list[str]:
        async with CloudStorage.from_uri("s3://bucket", options) as storage:
            return [item.key.text async for item in storage.iterate()]

    with in_a_thread(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        assert asyncio.run(work(_access(address))) == names
    assert len(asked) == 2


def _access(address: str) -> dict[str, str]:
    """Return the options of a server at an address."""
    return {"endpoint": f"http://{address}", "region": "x", "access_key_id": "x", "secret_access_key": "x"}


def _listed(name: str) -> str:
    """Return an object's element in a listing."""
    return (
        f"<Contents><Key>{name}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        '<ETag>"a"</ETag><Size>1</Size></Contents>'
    )


DATA = Random(0).randbytes(5 << 20)


class Bucket:
    """A bucket of one object, whose answers break off after the byte counts in `cuts`, one for each answer."""

    def __init__(self, cuts: list[int | None], etags: list[str] | None = None) -> None:
        self.cuts = cuts
        self.etags = etags or []
        self.asked: list[tuple[int, int]] = []

    @contextmanager
    def served(self) -> Iterator[dict[str, str]]:
        """Return the options of a storage over the bucket."""
        bucket = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._head(200, 0, len(DATA))

            def do_GET(self) -> None:
                found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["range"])
                assert found is not None
                start, end = int(found[1]), min(int(found[2]) + 1, len(DATA))
                if start >= len(DATA):
                    self._head(416, 0, 0)
                    return
                bucket.asked.append((start, end))
                cut = bucket.cuts.pop(0) if bucket.cuts else None
                self._head(206, start, end)
                self.wfile.write(DATA[start : end if cut is None else min(end, start + cut)])
                self.close_connection = cut is not None

            def _head(self, status: int, start: int, end: int) -> None:
                self.send_response(status)
                self.send_header("etag", bucket.etags.pop(0) if bucket.etags else '"one"')
                self.send_header("last-modified", self.date_time_string())
                self.send_header("content-length", str(end - start))
                if status == 206:
                    self.send_header("content-range", f"bytes {start}-{end - 1}/{len(DATA)}")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        with in_a_thread(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
            yield {"endpoint": f"http://{address}", "region": "x", "access_key_id": "x", "secret_access_key": "x"}


def streamed(bucket: Bucket, start: int, end: int, etag: str | None = None) -> bytes:
    """Return the bytes of a span, as they are streamed."""

    async def work(options: dict[str, str]) -> bytes:
        async with CloudStorage.from_uri("s3://bucket", options) as storage:
            return b"".join([bytes(piece) async for piece in storage.stream(KEY, start, end, if_etag=etag)])

    with bucket.served() as options:
        return asyncio.run(work(options))


@pytest.mark.parametrize(("start", "end"), [(0, len(DATA)), (5, len(DATA) - 5), (7, 8)])
def test_a_span_is_one_request(start: int, end: int) -> None:
    bucket = Bucket([])
    assert streamed(bucket, start, end) == DATA[start:end]
    assert bucket.asked == [(start, end)]


def test_what_breaks_off_goes_on_where_it_was() -> None:
    bucket = Bucket([2 << 20, 0, 1 << 20])
    assert streamed(bucket, 5, len(DATA)) == DATA[5:]
    assert bucket.asked[0] == (5, len(DATA))
    assert len(bucket.asked) > 1
    assert all(start > 5 for start, _ in bucket.asked[1:])


def test_another_version_is_never_mixed_in() -> None:
    for etag in (None, '"one"'):
        with pytest.raises(Conflict):
            streamed(Bucket([2 << 20], ['"one"', *['"two"'] * 30]), 0, len(DATA), etag)


def test_an_answer_that_never_comes_is_an_error() -> None:
    with pytest.raises(StorageUnavailable):
        streamed(Bucket([0] * 1000), 0, len(DATA))


def test_a_span_beyond_the_end_is_an_error() -> None:
    with pytest.raises(IntegrityError, match=f"ends at {len(DATA)}"):
        streamed(Bucket([]), 0, len(DATA) + 1)


URIS = {"s3": "s3://bucket", "gs": "gs://bucket", "az": "az://container"}


@pytest.mark.parametrize(("scheme", "name"), [(scheme, name) for scheme in URIS for name in sorted(STORES[scheme])])
def test_obstore_knows_every_name_of_the_table(scheme: str, name: str) -> None:
    refused: Exception | None = None
    try:
        from_url(URIS[scheme], config={name: "1"})  # type: ignore[call-overload]
    except Exception as error:  # of the value
        refused = error
    assert not isinstance(refused, UnknownConfigurationKeyError)


@pytest.mark.parametrize("scheme", URIS)
@pytest.mark.parametrize("name", sorted(CONNECTION))
def test_options_of_connections_go_to_connections(scheme: str, name: str) -> None:
    """As options of the store, they would end in a panic."""
    assert sort_options(scheme, {name: "1"}) == ({}, {name: "1"})
    with suppress(InvalidInput):  # of the value
        CloudStorage.from_uri(URIS[scheme], {name: "no such value"})


@pytest.mark.parametrize("scheme", URIS)
def test_an_option_nobody_knows_is_named_with_those_there_are(scheme: str) -> None:
    with pytest.raises(InvalidInput, match="Unknown option 'acess_key' of ") as caught:
        open_storage(URIS[scheme], {"acess_key": "hush"})
    assert all(name in str(caught.value) for name in STORES[scheme] | CONNECTION)
    assert "hush" not in str(caught.value)


def test_names_may_be_those_of_the_environment() -> None:
    assert sort_options("s3", {"AWS_REGION": "r", "aws_allow_http": "true"}) == (
        {"region": "r"},
        {"allow_http": "true"},
    )
    assert sort_options("az", {"AZURE_STORAGE_ACCOUNT_NAME": "n"}) == ({"account_name": "n"}, {})
    with pytest.raises(InvalidInput, match="'region' is given twice"):
        sort_options("s3", {"AWS_REGION": "a", "region": "b"})


@pytest.mark.parametrize(
    ("uri", "options", "unsigned"),
    [
        ("s3://bucket", {}, "true"),
        ("s3://bucket", {"endpoint": "https://example.com"}, "true"),
        ("s3://bucket", {"endpoint": "http://127.0.0.1:9"}, None),
        ("s3://bucket", {"allow_http": "true"}, None),
        ("s3://bucket", {"allow_invalid_certificates": "true"}, None),
        ("s3://bucket", {"unsigned_payload": "false"}, "false"),
        ("s3://bucket", {"AWS_UNSIGNED_PAYLOAD": "false"}, "false"),
        ("s3://bucket", {"endpoint": "http://127.0.0.1:9", "unsigned_payload": "true"}, "true"),
        ("gs://bucket", {}, None),
        ("az://container", {"account_name": "name"}, None),
    ],
)
def test_bodies_that_tls_guards_are_not_digested_for_signatures(
    uri: str, options: dict[str, str], unsigned: str | None
) -> None:
    store = CloudStorage.from_uri(uri, {"region": "r"} | options if uri.startswith("s3") else options)._store
    found = getattr(store, "config", {}).get("unsigned_payload")
    assert (None if found is None else str(found).lower()) == unsigned


def test_a_variable_of_the_operators_decides_about_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_UNSIGNED_PAYLOAD", "false")
    found = CloudStorage.from_uri("s3://bucket", {"region": "r"})._store.config  # type: ignore[union-attr]
    assert str(found.get("unsigned_payload", False)).lower() == "false"
