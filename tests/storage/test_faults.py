"""Storages that fail on purpose, and their metrics.

Refusals and failures of a bucket: each call raises their class, with the code of the bucket's answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.support.interrupted import FaultyStorage, InjectedFault
from tests.support.wire import in_a_thread

from protoslice.errors import NotFound, ProtosliceError, StorageDenied, StorageUnavailable
from protoslice.server.problems import problem_of_error
from protoslice.storage import Call, MemoryStorage, MeteredStorage, ObjectKey, Storage
from protoslice.storage import bucket as backend
from protoslice.storage.bucket import CloudStorage

KEY = ObjectKey("a/b")
STEPS = ["writer", "write", "write", "commit", "abort", "stat", "stream", "stream", "delete"]


async def work(storage: Storage) -> None:
    async with await storage.writer(KEY) as writer:
        await writer.write(b"one")
        await writer.write(b"two")
        await writer.commit()
    await storage.stat(KEY)
    async with aclosing(storage.stream(KEY)) as pieces:
        assert [piece async for piece in pieces] == [b"onetwo"]
    await storage.delete(KEY)


def test_every_call_fails_once_and_then_none() -> None:
    failed = []
    for fail_at in range(1, 100):
        storage = FaultyStorage(MemoryStorage(), fail_at)
        try:
            asyncio.run(work(storage))
        except InjectedFault:
            failed.append(storage.calls[fail_at - 1])
        else:
            break
    assert failed == STEPS
    assert storage.calls == STEPS
    assert not storage.failed


@pytest.mark.parametrize(("after", "there"), [(False, False), (True, True)])
async def test_a_fault_comes_before_the_work_or_after_it(after: bool, there: bool) -> None:
    inner = MemoryStorage()
    with pytest.raises(InjectedFault):
        await FaultyStorage(inner, 1, after=after).put(KEY, b"x")
    assert bool((await inner.list()).items) == there


async def test_a_storage_may_stay_down() -> None:
    for stays_down, second in ((True, InjectedFault), (False, NotFound)):
        storage = FaultyStorage(MemoryStorage(), 1, stays_down=stays_down)
        with pytest.raises(InjectedFault):
            await storage.stat(KEY)
        with pytest.raises(second):
            await storage.stat(KEY)


def test_calls_are_told_with_what_they_gave_and_how_they_failed() -> None:
    calls: list[Call] = []

    async def run() -> None:
        storage = MeteredStorage(MemoryStorage(), calls.append)
        await storage.put(KEY, b"0123456789")
        await storage.get_range(KEY, 0, 4)
        await storage.get_ranges(KEY, [(0, 4), (5, 8)])
        async with aclosing(storage.stream(KEY)) as pieces:
            assert [piece async for piece in pieces] == [b"0123456789"]
        with pytest.raises(NotFound):
            await storage.stat(ObjectKey("missing"))

    asyncio.run(run())
    assert [(call.name, call.bytes_read, call.error) for call in calls] == [
        ("put", 0, None),
        ("get_range", 4, None),
        ("get_ranges", 7, None),
        ("stream", 10, None),
        ("stream", 0, None),
        ("stat", 0, "NotFound"),
    ]
    assert all(call.seconds >= 0 for call in calls)


REFUSED = ObjectKey("a/b.pb")
CALLS: dict[str, Callable[[CloudStorage], Awaitable[object]]] = {
    "get_range": lambda storage: storage.get_range(REFUSED, 0, 1000),
    "get": lambda storage: storage.get(REFUSED),
    "stream": lambda storage: anext(storage.stream(REFUSED, 0, 1000)),
    "list": lambda storage: storage.list(),
    "put": lambda storage: storage.put(REFUSED, b"x"),
    "delete": lambda storage: storage.delete(REFUSED),
}


@contextmanager
def bucket(status: int, body: bytes, length: int) -> Iterator[dict[str, str]]:
    """Return the options of a storage whose every request gets the same answer, which ends after `body`."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.send_response(status)
            self.send_header("etag", '"one"')
            self.send_header("last-modified", self.date_time_string())
            self.send_header("content-length", str(length))
            if status == 206:
                self.send_header("content-range", f"bytes 0-{length - 1}/{length}")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with in_a_thread(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield {"endpoint": f"http://{address}", "region": "x", "access_key_id": "x", "secret_access_key": "x"}


def failure(call: str, options: dict[str, str]) -> ProtosliceError:
    """Return the error of a call, without retries."""

    async def work() -> None:
        async with CloudStorage.from_uri("s3://bucket", options, read_seconds=5) as storage:
            await CALLS[call](storage)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "_RETRY", {"max_retries": 0})
        with pytest.raises(ProtosliceError) as caught:
            asyncio.run(work())
    return caught.value


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("status", "code", "kind", "slug"),
    [
        (403, "RequestTimeTooSkewed", StorageDenied, "storage-denied"),
        (403, "AccessDenied", StorageDenied, "storage-denied"),
        (404, "NoSuchBucket", StorageUnavailable, "storage-unavailable"),
        (503, "SlowDown", StorageUnavailable, "storage-unavailable"),
    ],
)
def test_a_refusal_has_its_own_problem_and_the_code_of_the_bucket(
    call: str, status: int, code: str, kind: type[ProtosliceError], slug: str
) -> None:
    body = f"<Error><Code>{code}</Code><Message>a-secret</Message></Error>".encode()
    with bucket(status, body, len(body)) as options:
        error = failure(call, options)
    assert type(error) is kind
    assert str(error).endswith(f"({code})")
    assert "a-secret" not in str(error)
    assert problem_of_error(error).problem.slug == slug


@pytest.mark.parametrize("call", ["get_range", "get", "stream"])
def test_an_answer_that_is_cut_is_never_a_shorter_object(call: str) -> None:
    with bucket(206, bytes(500), 1000) as options:
        assert type(failure(call, options)) is StorageUnavailable
