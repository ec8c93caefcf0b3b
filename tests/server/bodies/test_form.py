"""Forms, cut at every byte, and forms that must be refused."""

import random
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoslice.defaults import MAX_FILES
from protoslice.errors import InvalidInput, LimitExceeded, ProtosliceError
from protoslice.server.bodies.form import FormReader
from protoslice.server.bodies.raw import Event, FileEnd, FileStart

BOUNDARY = "----x'()+_,-./:=?x"
FILES = [
    ("model.onnx", bytes(range(256)) * 5),
    ("empty", b""),
    ("variables/variables.index", b"\r\n--" + BOUNDARY.encode()[:-1] + b"\r\n--"),
    ("ä b", b"\r\n" * 40 + b"-" * 40 + b"\r"),
]


def part(content: bytes, *headers: str) -> bytes:
    return b"\r\n".join([f"--{BOUNDARY}".encode(), *(line.encode() for line in headers), b"", content, b""])


def file_part(path: str, content: bytes, *more: str) -> bytes:
    return part(content, f'Content-Disposition: form-data; name="file"; filename="{path}"', *more)


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def events(pieces: Iterable[bytes], boundary: str = BOUNDARY) -> Iterator[Event]:
    reader = FormReader(boundary)
    for piece in pieces:
        yield from reader.feed(piece)
    yield from reader.finish()


def read(pieces: Iterable[bytes]) -> list[tuple[str, bytes]]:
    found, open_path = list[tuple[str, bytes]](), None
    for event in events(pieces):
        if isinstance(event, FileStart):
            assert open_path is None
            open_path, content = event.path, b""
        elif isinstance(event, FileEnd):
            assert open_path is not None
            found.append((open_path, content))
            open_path = None
        else:
            assert event
            content += event
    assert open_path is None
    return found


def cut(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 17, 22, 23, 24, 100, 10**6])
def test_parts_with_a_filename_are_files(size: int) -> None:
    data = form(*(file_part(path, content, "Content-Type: application/protobuf") for path, content in FILES))
    assert read(cut(data, size)) == FILES


letters = st.sampled_from([b"\r", b"\n", b"--", b"-", BOUNDARY.encode(), f"\r\n--{BOUNDARY[:9]}".encode(), b"a", b"\0"])
contents = (
    st.lists(letters, max_size=30).map(b"".join).filter(lambda data: f"\r\n--{BOUNDARY}".encode() not in b"\r\n" + data)
)


@given(st.lists(contents, min_size=1, max_size=5), st.integers(1, 200))
def test_any_content_in_any_cut(contents: list[bytes], size: int) -> None:
    files = [(f"f{n}", content) for n, content in enumerate(contents)]
    assert read(cut(form(*(file_part(path, content) for path, content in files)), size)) == files


@pytest.mark.parametrize(
    ("disposition", "path"),
    [
        ("form-data; name=file; filename=plain.pb", "plain.pb"),
        ('Form-Data; filename="./a/b.pb"; name="x"', "a/b.pb"),
        ('form-data; name="x"; filename="say %22hi%22.pb"', 'say "hi".pb'),
        (r'form-data; name="x"; filename="say \"hi\".pb"', 'say "hi".pb'),
        ('form-data; name="x"; filename="100%25.pb"', "100%25.pb"),
        ("form-data; name=\"x\"; filename*=utf-8''%C3%A4.pb", "ä.pb"),
        ('form-data; name="a; filename=b"; filename="ä"', "ä"),
    ],
)
def test_names_as_clients_write_them(disposition: str, path: str) -> None:
    assert read([form(part(b"x", f"content-disposition:{disposition}"))]) == [(path, b"x")]


def test_blank_lines_and_text_around_the_parts() -> None:
    data = form(file_part("a", b"1"))
    assert read([b"\r\n", data, b"epilogue"]) == [("a", b"1")]


def test_what_is_no_file_is_refused_by_name() -> None:
    field = part(b"onnx.ModelProto", 'Content-Disposition: form-data; name="type"')
    with pytest.raises(InvalidInput, match=r"'type' is not a file.*query") as caught:
        read([form(file_part("a", b"1"), field)])
    assert caught.value.offset == len(file_part("a", b"1")) + field.index(b"onnx")


def test_empty_fields_and_file_inputs_without_a_file_are_passed_over() -> None:
    charset = part(b"utf-8", 'Content-Disposition: form-data; name="_charset_"')
    button = part(b"", 'Content-Disposition: form-data; name="submit"')
    no_file = part(b"", 'Content-Disposition: form-data; name="file"; filename=""', "Content-Type: text/plain")
    assert read([form(charset, button, no_file, file_part("a", b"1"))]) == [("a", b"1")]
    with pytest.raises(InvalidInput, match="no file"):
        read([form(charset, button, no_file)])
    with pytest.raises(InvalidInput, match="contains no files"):
        read([form()])


def test_ignored_fields_are_bounded() -> None:
    header = 'Content-Disposition: form-data; name="_charset_"'
    with pytest.raises(LimitExceeded, match="_charset_"):
        read(cut(form(part(b"x" * 65537, header), file_part("a", b"1")), 1000))
    assert read(cut(form(part(b"x" * 65536, header), file_part("a", b"1")), 1000)) == [("a", b"1")]
    with pytest.raises(LimitExceeded, match="1000 fields"):
        read([form(*[part(b"", header)] * 1001)])
    with pytest.raises(LimitExceeded, match="files"):
        read([form(*[file_part("a", b"")] * (MAX_FILES + 1))])


@pytest.mark.parametrize(
    "filename", ["/etc/passwd", "../up", "a//b", "C:\\\\dos", "C:\\dos", "a/", "tab\tbed", "x" * 1025]
)
def test_paths_that_lead_elsewhere(filename: str) -> None:
    first = file_part("a", b"1" * 99)
    with pytest.raises(InvalidInput) as caught:
        read([form(first, file_part(filename, b"x"))])
    assert caught.value.offset is not None
    assert caught.value.offset > len(first)


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ("Content-Type: application/protobuf",),
        ('Content-Disposition: attachment; filename="a"',),
        ('Content-Disposition: form-data; filename="a',),
        ('Content-Disposition: form-data; filename="a"', 'content-disposition: form-data; filename="b"'),
        ('Content-Disposition: form-data; filename="a"', "Content-Transfer-Encoding: base64"),
        ("Content-Disposition: form-data; filename*=UTF-7''a",),
        ("no colon",),
        (": no name",),
        ('Content-Disposition: form-data; filename="' + "a" * 9000 + '"',),
        tuple(f"X-{n}: a" for n in range(17)),
    ],
)
def test_bad_headers(headers: tuple[str, ...]) -> None:
    first = file_part("a", b"1" * 99)
    for size in (1, 10**6):
        with pytest.raises(InvalidInput) as caught:
            read(cut(form(first, part(b"x", *headers)), size))
        assert caught.value.offset is not None
        assert caught.value.offset > len(first) or not headers


def test_names_that_are_no_text() -> None:
    with pytest.raises(InvalidInput, match="UTF-8"):
        read([form(file_part("name", b"x")).replace(b"name.", b"\xff").replace(b'"name"', b'"\xff"')])


@pytest.mark.parametrize("boundary", [None, "", "a" * 71, "a ", "ä", "a\r\nb", 'a"b'])
def test_bad_boundaries(boundary: str | None) -> None:
    with pytest.raises(InvalidInput, match="boundary"):
        FormReader(boundary)


def test_truncation_is_noticed_everywhere() -> None:
    data = form(*(file_part(path, content) for path, content in FILES))
    whole = len(data) - 2  # the line end after the closing boundary may be missing
    for length in range(0, whole, 7):
        with pytest.raises(InvalidInput, match="ends before") as caught:
            read([data[:length]])
        assert caught.value.offset == length
    assert read([data[:whole]]) == FILES


def test_a_preamble_is_refused_at_its_place() -> None:
    with pytest.raises(InvalidInput, match="Malformed") as caught:
        read([b"\r\n-", b"preamble"])
    assert caught.value.offset == 3


def test_mutated_forms_raise_nothing_else() -> None:
    chance = random.Random(20261121)
    sample = form(*(file_part(path, content[:200], "Content-Type: a/b") for path, content in FILES))
    for _ in range(3000):
        data = bytearray(sample)
        for _ in range(chance.randrange(1, 8)):
            place = chance.randrange(len(data))
            data[place : place + chance.choice([0, 1, 1, 1, 40])] = chance.choice(
                [b"", b"\r\n", b"--", b'"', b":", b"\xff"]
            )
        error = failure(bytes(data), chance.choice([1, 50, 4096]))
        assert error is None or 0 <= (error.offset or 0) <= len(data)


def failure(data: bytes, size: int) -> ProtosliceError | None:
    try:
        read(cut(data, size))
    except ProtosliceError as error:
        return error
    return None
