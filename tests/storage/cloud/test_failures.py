"""Buckets that fail: what is told, and what is left."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError, UnauthenticatedError
from tests.support.s3 import RawBucket, emulator
from tests.support.serving import in_a_thread

from protoslice.errors import (
    Conflict,
    InvalidInput,
    LimitExceeded,
    NotFound,
    ProtosliceError,
    StorageDenied,
    StorageFull,
    StorageUnavailable,
)
from protoslice.storage import Buffer, ObjectKey, open_storage
from protoslice.storage.cloud.backend import CloudStorage
from protoslice.storage.cloud.errors import explained
from protoslice.storage.cloud.writer import CloudWriter
from protoslice.testing import StorageConformance

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


@contextmanager
def bucket(puts: list[int], head: int) -> Iterator[dict[str, str]]:
    """A server that answers each PUT with the next status, and every HEAD with `head`; as options."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self._answer(puts.pop(0))

        def do_HEAD(self) -> None:
            self._answer(head)

        def _answer(self, status: int) -> None:
            self.send_response(status)
            for name, value in (
                ("etag", '"made"'),
                ("last-modified", self.date_time_string()),
                ("content-length", "0"),
            ):
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with in_a_thread(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield {"endpoint": f"http://{address}", "region": "x", "access_key_id": "x", "secret_access_key": "x"}


@pytest.mark.parametrize(
    ("puts", "head", "made"),
    [
        ([409, 409, 200], 404, '"made"'),
        ([412], 200, None),
        ([409], 200, None),
        ([409, 409, 409, 409], 404, None),
    ],
)
def test_a_key_that_is_being_removed_is_tried_again(puts: list[int], head: int, made: str | None) -> None:
    async def work(options: dict[str, str]) -> None:
        async with CloudStorage.from_uri("s3://bucket", options) as storage:
            if made is None:
                with pytest.raises(Conflict, match="exists"):
                    await storage.put_if_absent(KEY, b"new")
            else:
                assert await storage.put_if_absent(KEY, b"new") == made

    with bucket(puts, head) as options:
        asyncio.run(work(options))
    assert puts == []


class Target:
    """A bucket in memory whose uploads fail at a part, if told so."""

    part_bytes = 10

    def __init__(self, *, fail_at: int = 0, there: bool = False) -> None:
        self.fail_at = fail_at
        self.there = there
        self.made: dict[str, list[bytes]] = {}

    async def put_if_absent(self, key: ObjectKey, data: Buffer) -> str:
        self.made[key.text] = [bytes(data)]
        return "one"

    async def exists(self, key: ObjectKey) -> bool:
        return self.there

    async def put_parts(self, key: ObjectKey, parts: AsyncGenerator[bytes, None]) -> str:
        taken: list[bytes] = []
        async for part in parts:
            taken.append(part)
            if len(taken) == self.fail_at:
                raise StorageUnavailable("the upload broke")
        self.made[key.text] = taken
        return "many"


@pytest.mark.parametrize(
    ("size", "parts"), [(0, [0]), (9, [9]), (10, [10]), (11, [10, 1]), (20, [10, 10]), (35, [10, 10, 10, 5])]
)
@pytest.mark.parametrize("step", [1, 7, 100])
def test_parts_are_full_but_the_last(size: int, parts: list[int], step: int) -> None:
    async def work() -> None:
        target = Target()
        data = bytes(range(size))
        async with CloudWriter(target, KEY) as writer:
            for at in range(0, size, step):
                await writer.write(data[at : at + step])
            assert await writer.commit() == ("many" if len(parts) > 1 else "one")
        assert [len(part) for part in target.made[KEY.text]] == parts
        assert b"".join(target.made[KEY.text]) == data

    asyncio.run(work())


@pytest.mark.parametrize("fail_at", [1, 2, 3])
def test_an_upload_that_breaks_ends_the_writer(fail_at: int) -> None:
    async def work() -> None:
        target = Target(fail_at=fail_at)
        async with asyncio.timeout(20), CloudWriter(target, KEY) as writer:
            with pytest.raises(StorageUnavailable, match="broke"):
                await _finish(writer)
            with pytest.raises(InvalidInput):
                await writer.write(b"more")
        assert target.made == {}

    asyncio.run(work())


async def _finish(writer: CloudWriter) -> None:
    for _ in range(3):
        await writer.write(bytes(10))
        await asyncio.sleep(0)
    await writer.commit()


def test_an_object_that_came_meanwhile_is_not_replaced() -> None:
    async def work() -> None:
        target = Target(there=True)
        async with asyncio.timeout(20), CloudWriter(target, KEY) as writer:
            await writer.write(bytes(25))
            with pytest.raises(Conflict):
                await writer.commit()
        assert target.made == {}

    asyncio.run(work())


def test_an_abort_in_the_middle_makes_nothing() -> None:
    async def work() -> None:
        for size in (0, 5, 15, 95):
            target = Target()
            writer = CloudWriter(target, KEY)
            await writer.write(bytes(size))
            async with asyncio.timeout(20):
                await writer.abort()
            assert target.made == {}

    asyncio.run(work())


def test_more_parts_than_a_bucket_takes_are_refused_at_once() -> None:
    async def work() -> None:
        target = Target()
        async with CloudWriter(target, KEY) as writer:
            await writer.write(bytes(90_000))
            with pytest.raises(LimitExceeded):
                await writer.write(bytes(10_001))
        assert target.made == {}

    asyncio.run(work())


def test_conditional_writes_by_version() -> None:
    """Google's storage writes on conditions of versions; the emulator is of S3: this proves our half only."""

    async def work(raw: RawBucket, options: dict[str, str]) -> None:
        bodies = StorageConformance.bodies()
        storage = CloudStorage.from_uri(raw.uri, options, by_version=True)
        for name in ("test_compare_and_set", "test_a_counter_counts_every_step"):
            await bodies[name](None, storage, raw)
            await raw.remove(ObjectKey("folder/object.pb"))

    with emulator() as options:
        asyncio.run(work(RawBucket.make(options), options))


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
