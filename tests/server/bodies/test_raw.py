"""Bodies that are one file, and the headers of all bodies.

Bodies of any size are read in constant memory. For recipes, the service's time for copying does not count against the
client.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import tarfile
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

import httpx
import pytest
from tests.support.serve import serve
from tests.support.stores import field, onnx

from protoslice.errors import InvalidInput, ProtosliceError, Unsupported, UnsupportedMediaType
from protoslice.recipes import MEDIA_TYPE, Copy, RecipeWriter
from protoslice.server import services
from protoslice.server.bodies.ingest import files_of
from protoslice.server.bodies.raw import filename_in, parse_value
from protoslice.server.request import body as request_body
from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.storage.wrappers import InterceptedStorage


async def stream(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def first(body: AsyncIterator[bytes]) -> bytes:
    return await anext(body)


def collect(
    content_type: str | None, *pieces: bytes, disposition: str | None = None, filename: str | None = None
) -> list[tuple[str, list[bytes]]]:
    async def run() -> list[tuple[str, list[bytes]]]:
        files = files_of(content_type, disposition, filename, stream(pieces))
        return [(file.path, [piece async for piece in file.pieces]) async for file in files]

    return asyncio.run(run())


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "application/protobuf",
        "Application/X-Protobuf",
        "application/x-protobuffer",
        "application/octet-stream",
        "application/x-riegeli",
        'application/protobuf; messageType="onnx.ModelProto"; charset=x',
        "application/protobuf ; proto=onnx.ModelProto;",
    ],
)
def test_a_body_is_one_file(content_type: str | None) -> None:
    assert collect(content_type, b"ab", b"", b"c") == [("model.pb", [b"ab", b"c"])]


def test_an_empty_body_is_an_empty_file() -> None:
    assert collect("application/protobuf") == [("model.pb", [])]
    assert collect("application/protobuf", b"", b"") == [("model.pb", [])]


@pytest.mark.parametrize(
    ("filename", "disposition", "path"),
    [
        ("model.onnx", None, "model.onnx"),
        ("variables/variables.index", 'attachment; filename="other"', "variables/variables.index"),
        ("./a/b", None, "a/b"),
        ("././/b", None, "b"),
        ("", None, "model.pb"),
        (None, "attachment", "model.pb"),
        (None, 'attachment; filename=""', "model.pb"),
        (None, "attachment; filename=model.onnx", "model.onnx"),
        (None, 'ATTACHMENT ; FileName = "a b;c.pb"', "a b;c.pb"),
        (None, r'attachment; filename="a\"b.pb"', 'a"b.pb'),
        (None, r'attachment; filename="C:\models\m.pb"', "m.pb"),
        (None, 'attachment; filename="/etc/m.pb"', "m.pb"),
        (None, "attachment; filename=\"EUR.pb\"; filename*=UTF-8''%e2%82%ac.pb", "€.pb"),
        (None, "attachment; filename*=iso-8859-1'en'%A3.pb; filename=x", "£.pb"),
        (None, "attachment; filename*=UTF-8''a%2Fb%27c.pb", "b'c.pb"),
        (None, 'attachment; filename="näh.pb"', "näh.pb"),
        (None, 'attachment; filename="näh.pb"'.encode().decode("latin-1"), "näh.pb"),
        (None, 'attachment; name="a; filename=b"; filename=c', "c"),
        (None, "attachment; filename=e\u0301", "e\u0301"),
    ],
)
def test_the_name(filename: str | None, disposition: str | None, path: str) -> None:
    assert collect("application/protobuf", b"x", disposition=disposition, filename=filename) == [(path, [b"x"])]


@pytest.mark.parametrize(
    ("filename", "disposition"),
    [
        ("../a", None),
        ("/a", None),
        ("a/", None),
        ("a//b", None),
        ("a/./b", None),
        ("./", None),
        ("a\0b", None),
        ("a\u202eb", None),
        (r"a\b", None),
        ("\ud800", None),
        ("x" * 1025, None),
        (None, "attachment; filename=.."),
        (None, 'attachment; filename="a'),
        (None, "attachment; filename=a b"),
        (None, "attachment; filename=a; filename=b"),
        (None, "attachment filename=a"),
        (None, "attachment, filename=a"),
        (None, '"attachment"'),
        (None, "attachment; filename*=UTF-8'a.pb"),
        (None, "attachment; filename*=UTF-16''a.pb"),
        (None, "attachment; filename*=UTF-8''%ff.pb"),
        (None, "attachment; filename=" + "a" * 8192),
    ],
)
def test_bad_names_are_refused(filename: str | None, disposition: str | None) -> None:
    with pytest.raises(InvalidInput):
        collect("application/protobuf", b"x", disposition=disposition, filename=filename)


@pytest.mark.parametrize(
    "content_type", ["application/x-www-form-urlencoded", "text/plain", "multipart/mixed; boundary=a", "tar"]
)
async def test_other_types_are_refused_before_the_body_is_read(content_type: str) -> None:
    body = stream([b"x"])
    with pytest.raises(UnsupportedMediaType, match="application/protobuf") as caught:
        files_of(content_type, None, None, body)
    assert isinstance(caught.value, Unsupported)
    with pytest.raises(InvalidInput):
        files_of("///", None, None, body)
    assert await first(body) == b"x"


def test_parameters() -> None:
    assert parse_value("a/b;c=d;;e=\"f\\\\g\\h\" ; i='j'", "X") == ("a/b", {"c": "d", "e": r"f\g\h", "i": "'j'"})
    assert filename_in({"filename": "a", "filename*": "utf-8''b"}, "X") == "b"
    assert filename_in({}, "X") is None


async def test_pieces_are_to_be_taken_before_the_next_file() -> None:
    async def run() -> None:
        async for _ in files_of(None, None, None, stream([b"a", b"b"])):
            pass

    with pytest.raises(RuntimeError, match=r"'model\.pb'"):
        await run()


async def test_pieces_end_once() -> None:
    async for file in files_of(None, None, None, stream([b"a"])):
        assert [piece async for piece in file.pieces] == [b"a"]
        assert [piece async for piece in file.pieces] == []


async def test_what_the_body_raises_comes_through() -> None:
    class Gone(Exception):
        pass

    async def body() -> AsyncIterator[bytes]:
        yield b"a"
        raise Gone

    async def run() -> None:
        async for file in files_of(None, None, None, body()):
            async for _ in file.pieces:
                pass

    with pytest.raises(Gone):
        await run()


def test_errors_are_of_the_tree() -> None:
    assert issubclass(UnsupportedMediaType, ProtosliceError)


SIZE = 64 << 20


def tar_frame() -> tuple[bytes, bytes]:
    member = tarfile.TarInfo("big")
    member.size = SIZE
    return member.tobuf(), bytes(1024)


def form_frame() -> tuple[bytes, bytes]:
    return b'--b\r\nContent-Disposition: form-data; filename="big"\r\n\r\n', b"\r\n--b--"


@pytest.mark.parametrize(
    ("content_type", "frame"),
    [
        ("application/protobuf", (b"", b"")),
        ("application/x-tar", tar_frame()),
        ("multipart/form-data; boundary=b", form_frame()),
    ],
)
async def test_a_large_file(content_type: str, frame: tuple[bytes, bytes]) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield frame[0]
        for n in range(SIZE >> 16):
            yield bytes([n % 256]) * (1 << 16)
        yield frame[1]

    async def run() -> tuple[int, io.BytesIO]:
        taken, sample = 0, io.BytesIO()
        async for file in files_of(content_type, None, "big", body()):
            assert file.path == "big"
            async for piece in file.pieces:
                taken += len(piece)
                sample.write(piece[:1])
        return taken, sample

    tracemalloc.start()
    try:
        taken, sample = await run()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken == SIZE
    assert set(sample.getvalue()) == {*range(256)}
    assert peak < 4 << 20


T = TypeVar("T")
MODEL = onnx(2_000_000)


class SlowStorage(InterceptedStorage):
    """A storage in which every read takes minutes, by the clock that it holds."""

    def __init__(self) -> None:
        super().__init__(MemoryStorage())
        self.clock = 0.0
        self.copied = threading.Event()

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        if name == "get_ranges":
            self.clock += 600
            self.copied.set()
        return await call()


def test_a_long_copy_is_not_taken_for_a_slow_client(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = SlowStorage()
    monkeypatch.setattr(request_body, "monotonic", lambda: time.monotonic() + storage.clock)
    monkeypatch.setattr(services, "open_storage", lambda *_: storage)

    def recipe(store: str) -> Iterator[bytes]:
        writer, more = RecipeWriter(), field(2, b"more")
        ahead = field(2, bytes(2 << 20))  # more bytes than the service reads of a recipe before it executes the recipe
        yield writer.file("model.onnx") + writer.copy(Copy(store, "model.onnx", 0, len(MODEL)))
        yield writer.literal(len(ahead)) + ahead
        assert storage.copied.wait(20)
        yield writer.literal(len(more))
        for at in range(len(more)):  # in small pieces, so that some of it arrives before the end does
            time.sleep(0.02)
            yield more[at : at + 1]
        made = MODEL + ahead + more
        yield writer.end(len(made), hashlib.sha256(made).hexdigest()) + writer.done()

    with (
        serve(body_min_bytes_per_second=1000) as live,
        httpx.Client(base_url=live.url, timeout=30) as client,
    ):
        made = client.post("/v1/stores?filename=model.onnx", content=MODEL).json()["id"]
        sent = client.post("/v1/stores", content=recipe(made), headers={"content-type": MEDIA_TYPE})
        assert sent.status_code == 201, sent.text
