"""Streams from a bucket: one request, taken up where an answer breaks off, of one version alone."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

import pytest
from tests.support.wire import in_a_thread

from protoslice.errors import Conflict, IntegrityError, StorageUnavailable
from protoslice.storage import ObjectKey
from protoslice.storage.bucket import CloudStorage

KEY = ObjectKey("a/b.pb")
DATA = Random(0).randbytes(5 << 20)


class Bucket:
    """One object, whose answers break off after so many bytes, each by the next number in `cuts`."""

    def __init__(self, cuts: list[int | None], etags: list[str] | None = None) -> None:
        self.cuts = cuts
        self.etags = etags or []
        self.asked: list[tuple[int, int]] = []

    @contextmanager
    def served(self) -> Iterator[dict[str, str]]:
        """Options of a storage over the bucket."""
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
    """The bytes of a span, as they are streamed."""

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
