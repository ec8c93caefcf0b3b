"""Bodies that are one file, and the headers that all bodies go by."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest

from protoslice.errors import InvalidInput, ProtosliceError, Unsupported, UnsupportedMediaType
from protoslice.server.bodies.ingest import files_of
from protoslice.server.bodies.raw import filename_in, parse_value


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
