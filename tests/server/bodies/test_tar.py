"""Archives of other writers (Python's tarfile, GNU tar), in every format, cut at any byte; and refusals."""

import io
import random
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoslice.defaults import MAX_FILES
from protoslice.errors import CorruptModel, InvalidInput, LimitExceeded, ProtosliceError, Unsupported
from protoslice.server.bodies.raw import Event, FileEnd, FileStart
from protoslice.server.bodies.tar import TarReader

Format = Literal[0, 1, 2]
FORMATS: list[Format] = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
FILES = {"model.onnx": bytes(range(256)) * 5, "empty": b"", "variables/variables.index": b"i" * 512, "ä/b": b"x" * 513}


def events(pieces: Iterable[bytes]) -> Iterator[Event]:
    reader = TarReader()
    for piece in pieces:
        yield from reader.feed(piece)
    yield from reader.finish()


def read(pieces: Iterable[bytes]) -> dict[str, bytes]:
    found, open_path = dict[str, bytes](), None
    for event in events(pieces):
        if isinstance(event, FileStart):
            assert open_path is None
            open_path = event.path
            found[open_path] = b""
        elif isinstance(event, FileEnd):
            open_path = None
        else:
            assert event
            assert open_path is not None
            found[open_path] += event
    assert open_path is None
    return found


def cut(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def archive(
    files: dict[str, bytes],
    format: Format = tarfile.PAX_FORMAT,
    **changes: object,
) -> bytes:
    """Return an archive by tarfile; `changes` are set on every member."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            for name, value in changes.items():
                setattr(member, name, value)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def resealed(data: bytes, field: slice, value: bytes, block: int = 0) -> bytes:
    """Return `data` with a changed field in one header, and with that header's checksum corrected."""
    header = bytearray(data[block : block + 512])
    assert len(header[field]) == len(value)
    header[field] = value
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return data[:block] + header + data[block + 512 :]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("size", [1, 7, 511, 512, 513, 10**6])
def test_tarfile_writes_it(format: Format, size: int) -> None:
    assert read(cut(archive(FILES, format), size)) == FILES


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names(format: Format) -> None:
    files = {"/".join(["d" * 60] * n) + "/f" * 3: b"%d" % n for n in range(1, 16)}
    assert read(cut(archive(files, format), 100)) == files


def test_names_split_into_prefix_and_name() -> None:
    files = {"d" * 150 + "/" + "f" * 100: b"x"}
    data = archive(files, tarfile.USTAR_FORMAT)
    assert data[345:495] == b"d" * 150
    assert read([data]) == files


segment = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S"), exclude_characters="/\\"), min_size=1)
paths = st.lists(segment.filter(lambda text: text not in {".", ".."}), min_size=1, max_size=4).map("/".join)
trees = st.dictionaries(paths.filter(lambda path: len(path.encode()) <= 1024), st.binary(max_size=1500), min_size=1)


@given(trees, st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]), st.integers(1, 3000))
def test_any_tree_in_any_cut(files: dict[str, bytes], format: Format, size: int) -> None:
    assert read(cut(archive(files, format), size)) == files


@pytest.mark.parametrize("format", ["v7", "oldgnu", "gnu", "ustar", "pax", "posix"])
@pytest.mark.parametrize("size", [1, 300, 10**6])
def test_gnu_tar_writes_it(tmp_path: Path, format: str, size: int) -> None:
    files = {f"{name}": content for name, content in FILES.items() if format != "v7" or name.isascii()}
    if format not in {"v7", "ustar"}:
        files["long" * 50] = b"long"
    for path, content in files.items():
        (tmp_path / "in" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / path).write_bytes(content)
    made = subprocess.run(
        ["tar", "--create", f"--format={format}", f"--directory={tmp_path / 'in'}", "."],
        capture_output=True,
        check=True,
    )
    assert read(cut(made.stdout, size)) == files


@pytest.mark.parametrize("size", [1 << 33, (1 << 63) - 1])
@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_sizes_beyond_octal(size: int, format: Format) -> None:
    member = tarfile.TarInfo("big")
    member.size = size
    reader = TarReader()
    assert list(reader.feed(member.tobuf(format))) == [FileStart("big")]
    seen = 0
    for _ in range(3):
        seen += sum(len(event) for event in reader.feed(bytes(1 << 16)) if isinstance(event, bytes))
    assert seen == 3 << 16
    with pytest.raises(CorruptModel, match="ends before"):
        list(reader.finish())


def test_folders_and_leading_dots() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ["./", "./a/", "a/b/"]:
            folder = tarfile.TarInfo(name)
            folder.type = tarfile.DIRTYPE
            tar.addfile(folder)
        member = tarfile.TarInfo("./a/b/c")
        tar.addfile(member)
    assert read([out.getvalue()]) == {"a/b/c": b""}


def test_folders_of_the_oldest_kind() -> None:
    data = archive({"d/": b"", "d/f": b"1"}, tarfile.USTAR_FORMAT, type=tarfile.AREGTYPE)
    assert read([data]) == {"d/f": b"1"}


def test_signed_checksums() -> None:
    data = bytearray(archive({"\xe9": b"1"}, tarfile.USTAR_FORMAT))
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(byte - 256 if byte > 127 else byte for byte in data[:512])
    assert read([bytes(data)]) == {"\xe9": b"1"}


def test_global_and_own_records() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "c" * 3000}) as tar:
        member = tarfile.TarInfo("short")
        member.pax_headers = {"path": "own/name", "mtime": "1.5", "SCHILY.xattr.user.a": "b=\nc"}
        tar.addfile(member)
        tar.addfile(tarfile.TarInfo("other"))
    assert list(read([out.getvalue()])) == ["own/name", "other"]


@pytest.mark.parametrize(
    ("type", "word"),
    [
        (tarfile.LNKTYPE, "hard link.*--hard-dereference"),
        (tarfile.SYMTYPE, "symbolic link.*--dereference"),
        (tarfile.CHRTYPE, "character device"),
        (tarfile.BLKTYPE, "block device"),
        (tarfile.FIFOTYPE, "pipe"),
        (tarfile.GNUTYPE_SPARSE, "sparse"),
        (b"V", "volume label"),
        (b"A", "unknown type"),
    ],
)
@pytest.mark.parametrize("format", FORMATS)
def test_other_members_are_refused_by_name(type: bytes, word: str, format: Format) -> None:
    with pytest.raises(Unsupported, match=f"Unsupported archive member: 'evil' is .*{word}") as caught:
        read([archive({"good": b"1"} | {"evil": b""}, format)[:1024] + archive({"evil": b""}, format, type=type)])
    assert caught.value.offset == 1024


@pytest.mark.parametrize("version", ["0.0", "0.1", "1.0"])
def test_sparse_files_are_refused(tmp_path: Path, version: str) -> None:
    with (tmp_path / "holes").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"end")
    command = ["tar", "--create", "--sparse", "--format=pax", f"--sparse-version={version}", f"-C{tmp_path}", "holes"]
    data = subprocess.run(command, capture_output=True, check=True).stdout
    with pytest.raises(Unsupported, match=r"holes.* is a sparse file"):
        read([data])


@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../b", "a//b", "a/./b", "..", "./", "a\\b", "a\nb"])
@pytest.mark.parametrize("type", [tarfile.REGTYPE, tarfile.DIRTYPE])
def test_paths_that_lead_elsewhere(name: str, type: bytes) -> None:
    if name == "./":
        name = "." if type == tarfile.REGTYPE else "./.."
    data = archive({"first": b"", name: b""}, type=type)
    data = resealed(data, slice(156, 157), b"0")
    with pytest.raises(InvalidInput) as caught:
        read([data])
    assert caught.value.offset is not None
    assert caught.value.offset >= 512


def test_names_that_are_no_text() -> None:
    data = resealed(archive({"name": b""}), slice(0, 4), b"\xff\xfe\xfd\xfc")
    with pytest.raises(InvalidInput, match="UTF-8"):
        read([data])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (slice(124, 136), b"12345678x90\0", "octal"),
        (slice(124, 136), b"-0000000001\0", "octal"),
        (slice(124, 136), b"\xff" * 12, "negative"),
        (slice(124, 136), b"\x80" + b"\0" * 3 + b"\x80" + b"\0" * 7, "beyond"),
    ],
)
def test_bad_sizes(field: slice, value: bytes, message: str) -> None:
    with pytest.raises(CorruptModel, match=message) as caught:
        read([resealed(archive({"a": b"1"}), field, value)])
    assert caught.value.offset == 124


def test_a_folder_with_bytes() -> None:
    with pytest.raises(CorruptModel, match="folder 'a'"):
        read([resealed(archive({"a": b"1"}), slice(156, 157), b"5")])


@pytest.mark.parametrize(
    "records",
    [
        b"x path=a\n",
        b"7 path=a\n",
        b"99 path=a\n",
        b"9 path=a ",
        b"7 path\n",
        b"0 path=a\n",
        b"2 a=b\n",
        b"9" * 30 + b" a=b\n",
        b"10 size=a\n",
        b"11 size=-1\n",
        b"11 size=1 \n",
        b"28 size=9223372036854775808\n",
    ],
)
def test_bad_pax_records(records: bytes) -> None:
    extension = archive({"pax": records}, tarfile.USTAR_FORMAT, type=b"x")[:1024]
    with pytest.raises(CorruptModel, match="pax") as caught:
        read([extension + archive({"a": b"1"})])
    assert caught.value.offset is not None


def test_extensions_are_bounded() -> None:
    header = archive({"pax": b""}, tarfile.USTAR_FORMAT, type=b"x")[:512]
    for type in (b"x", b"g", b"L", b"K"):
        grown = resealed(resealed(header, slice(124, 136), b"00100000000\0"), slice(156, 157), type)
        with pytest.raises(LimitExceeded, match="extended header"):
            read([grown])


def test_an_extension_needs_its_member() -> None:
    extension = archive({"pax": b"9 path=a\n"}, tarfile.USTAR_FORMAT, type=b"x")[:1024]
    with pytest.raises(CorruptModel, match="without its member"):
        read([archive({"a": b""})[:512] + extension + bytes(1024)])


def test_files_are_counted() -> None:
    header = archive({"a": b""}, tarfile.USTAR_FORMAT)[:512]
    assert read([header * MAX_FILES, bytes(1024)]) == {"a": b""}
    with pytest.raises(LimitExceeded, match="files"):
        read([header * (MAX_FILES + 1)])


def test_an_archive_without_files() -> None:
    with pytest.raises(InvalidInput, match="contains no files"):
        read([bytes(1024)])


def test_truncation_is_noticed_everywhere() -> None:
    data = archive(FILES, tarfile.USTAR_FORMAT)
    end = len(data.rstrip(b"\0")) + 1
    end += -end % 512
    for length in {*range(0, end + 1024, 97), end, end + 512, end + 1023}:
        with pytest.raises(CorruptModel, match="ends before") as caught:
            read([data[:length]])
        assert caught.value.offset == length
    assert read([data[: end + 1024]]) == FILES


def test_nothing_may_follow_the_end() -> None:
    data = archive({"a": b"1"})
    assert read([data, bytes(777)]) == {"a": b"1"}
    with pytest.raises(CorruptModel, match="after its end") as caught:
        read([data, bytes(1000), b"x"])
    assert caught.value.offset == len(data) + 1000
    with pytest.raises(CorruptModel, match="a block of zeros, which ends an archive, is followed by data") as caught:
        read([archive({"a": b"1"})[:1536], archive({"b": b"1"})])
    assert caught.value.offset == 1536


def test_every_flipped_bit_of_a_header_is_noticed() -> None:
    data = archive({"a": b"1"}, tarfile.USTAR_FORMAT)
    assert data[148:149] == b"0"
    for position in {*range(512)} - {148}:  # there, bit 4 makes a leading zero a leading space: the same number
        broken = bytearray(data)
        broken[position] ^= 1 << position % 8
        with pytest.raises(CorruptModel):
            read([bytes(broken)])


def failure(data: bytes, size: int) -> ProtosliceError | None:
    try:
        read(cut(data, size))
    except ProtosliceError as error:
        return error
    return None


def test_mutated_archives_raise_nothing_else() -> None:
    chance = random.Random(20261121)
    samples = [archive(FILES | {"n" * 300: b"1"}, format) for format in FORMATS[1:]]
    for _ in range(1500):
        data = bytearray(chance.choice(samples))
        header = chance.randrange(0, len(data) - 512, 512)
        for _ in range(chance.randrange(1, 6)):
            data[min(header + chance.randrange(512), len(data) - 1)] = chance.choice(b"\0\xff 0179=\nxgLKS5/.")
        if chance.random() < 0.8 and header:
            data = bytearray(resealed(bytes(data), slice(0, 0), b"", header))
        error = failure(bytes(data), chance.choice([100, 512, 4096]))
        assert error is None or 0 <= (error.offset or 0) <= len(data)
