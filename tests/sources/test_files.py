"""Files, folders and ropes give exactly the requested bytes, or an error that names the file."""

from __future__ import annotations

import gc
import io
import os
import random
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.protos.writer import varint
from tests.support.stores import field

from protoslice import _core, open_model
from protoslice.errors import (
    CorruptModel,
    InvalidInput,
    LimitExceeded,
    NotFound,
    ProtosliceError,
    StorageDenied,
    StorageError,
)
from protoslice.sources import files as folders
from protoslice.sources import files as sources
from protoslice.sources.files import MOST_OPEN, BytesSource, FileObjectSource, FileSource, Folder
from protoslice.sources.opening import as_source
from protoslice.sources.ropes import Rope
from protoslice.sources.source import Closable, ClosedAtEnd, RangeSource

DATA = random.Random(7).randbytes(200_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(DATA)
    return path


KINDS: dict[str, Callable[[Path], RangeSource]] = {
    "path": as_source,
    "str": lambda path: as_source(str(path)),
    "bytes": lambda path: as_source(path.read_bytes()),
    "view": lambda path: as_source(memoryview(path.read_bytes())),
    "file": lambda path: as_source(io.BytesIO(path.read_bytes())),
}


@pytest.mark.parametrize("kind", KINDS)
def test_reads_exactly(kind: str, path: Path) -> None:
    source = KINDS[kind](path)
    assert source.size == len(DATA)
    for offset, length in [(0, 0), (0, 1), (5, 1000), (len(DATA) - 3, 3), (len(DATA), 0), (0, len(DATA))]:
        assert source.read(offset, length) == DATA[offset : offset + length]


@pytest.mark.parametrize("kind", KINDS)
def test_refuses_what_is_not_there(kind: str, path: Path) -> None:
    source = KINDS[kind](path)
    with pytest.raises(CorruptModel) as caught:
        source.read(len(DATA) - 1, 2)
    assert str(len(DATA)) in str(caught.value)
    with pytest.raises(InvalidInput):
        source.read(-1, 2)


def test_as_source_keeps_a_source() -> None:
    source = BytesSource(b"abc")
    assert as_source(source) is source


def test_as_source_refuses_other_things() -> None:
    with pytest.raises(InvalidInput, match="read\\(offset, length\\)"):
        as_source(3)  # type: ignore[arg-type]


def test_as_source_takes_files_that_know_their_size_for_files() -> None:
    class Sized(io.BytesIO):
        size = 3

    assert as_source(Sized(DATA)).size == len(DATA)


def test_as_source_refuses_text_and_pipes(path: Path) -> None:
    with path.open(encoding="latin-1") as text, pytest.raises(InvalidInput, match="binary"):
        as_source(text)  # type: ignore[arg-type]
    ends = os.pipe()
    with open(ends[0], "rb") as pipe, open(ends[1], "wb"), pytest.raises(InvalidInput, match="seekable"):
        as_source(pipe)


def test_short_reads_are_continued(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, at: pread(fd, min(n, 11), at))
    with FileSource(path) as source:
        assert source.read(3, 100) == DATA[3:103]


def test_a_file_that_shrank_is_an_error_with_its_name(path: Path) -> None:
    with FileSource(path) as source:
        path.write_bytes(DATA[:1000])
        with pytest.raises(StorageError, match=r"data\.bin"):
            source.read(900, 200)


def test_a_closed_file_is_an_error_with_its_name(path: Path) -> None:
    source = FileSource(path)
    source.close()
    source.close()
    with pytest.raises(InvalidInput, match=r"data\.bin is closed"):
        source.read(0, 1)


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nowhere\.bin"):
        FileSource(tmp_path / "nowhere.bin")


def test_file_objects_may_give_less_at_a_time() -> None:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(size or 0, 13))

    source = FileObjectSource(Slow(DATA))
    assert source.read(11, 1000) == DATA[11:1011]


def test_long_reads_take_several_calls(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_LONGEST_READ", 1000)
    with FileSource(path) as source:
        assert source.read(5, 10_000) == DATA[5:10_005]


def test_what_the_system_refuses_is_a_storage_error(path: Path) -> None:
    source = FileSource(path)
    os.close(source.fileno())
    with pytest.raises(StorageError, match=r"Cannot read .*data\.bin"):
        source.read(0, 1)
    source._fd = -1


def test_what_cannot_be_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError):
        FileSource(3)  # type: ignore[arg-type]
    with pytest.raises(StorageError, match="Is a directory"):
        FileSource(path.parent)

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StorageDenied, match=r"Cannot open .*data\.bin: Permission denied"):
        FileSource(path)


def test_a_file_object_that_ends_early_is_an_error() -> None:
    file = io.BytesIO(DATA)
    source = FileObjectSource(file)
    file.truncate(100)
    with pytest.raises(StorageError, match="shorter"):
        source.read(50, 100)


def test_a_file_left_open_is_closed_with_its_source(path: Path) -> None:
    source = FileSource(path)
    fd = source.fileno()
    del source
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


# Folders of files: as many files as a model has, and few of them open.

MANY = 4 * MOST_OPEN


def pair(key: bytes, value: bytes) -> bytes:
    return field(13, field(1, key) + field(2, value))


def onnx_in_files(folder: Path, count: int) -> None:
    """Return an ONNX model in which each tensor has a separate file."""
    graph = b""
    for number in range(count):
        (folder / f"weight-{number}.bin").write_bytes(b"%08d" % number)
        place = pair(b"location", b"weight-%d.bin" % number) + b"\x70\x01"
        graph += field(5, b"\x08" + varint(8) + b"\x10\x03" + field(8, b"weight-%d" % number) + place)
    (folder / "model.onnx").write_bytes(b"\x08\x08" + field(7, graph) + field(8, b"\x10\x11"))


def open_descriptors() -> int:
    gc.collect()  # files that other tests have left open
    return len(os.listdir("/proc/self/fd"))


def test_a_model_of_many_files_holds_few_descriptors(tmp_path: Path) -> None:
    onnx_in_files(tmp_path, MANY)
    before = open_descriptors()
    with open_model(tmp_path) as model:
        assert open_descriptors() - before <= 2 * MOST_OPEN + 2
        tensors = list(model)
        assert [bytes(model.read(tensor)) for tensor in tensors] == [b"%08d" % number for number in range(MANY)]
        assert open_descriptors() - before <= 2 * MOST_OPEN + 2
    del model, tensors  # the engine's file of the root is closed too
    assert open_descriptors() == before


def test_a_file_changed_while_it_was_not_open_is_told(tmp_path: Path) -> None:
    for number in range(MOST_OPEN + 1):
        (tmp_path / f"{number}").write_bytes(b"before")
    with Folder(tmp_path) as files:
        assert [file.read(0, 6) for file in files.values()] == [b"before"] * (MOST_OPEN + 1)
        (tmp_path / "new").write_bytes(b"after!")
        (tmp_path / "new").rename(tmp_path / "0")  # first in the order of the folder, so that it was closed
        with pytest.raises(StorageError, match="0 changed since"):
            files["0"].read(0, 6)


def test_a_closed_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"bytes")
    with Folder(tmp_path) as files:
        file = files["file"]
    with pytest.raises(InvalidInput, match="file is closed"):
        file.read(0, 1)


def test_the_engine_reads_files_of_a_folder_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx_in_files(tmp_path, 1)
    with open_model(tmp_path) as model:
        rope = model.read("weight-0")
        monkeypatch.setattr("protoslice.sources.files.FolderFile.read", None)
        assert bytes(rope) == b"00000000"


def test_folder_of_too_many_files_is_refused_before_any_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MAX_FILES", 5)
    for number in range(5):
        (tmp_path / f"{number}.bin").write_bytes(b"x")
    assert len(Folder(tmp_path)) == 5
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "6.bin").write_bytes(b"x")
    monkeypatch.setattr(os.path, "realpath", lambda path: path)
    folder = Folder(tmp_path)
    monkeypatch.setattr(Folder, "_has", lambda self, path: pytest.fail("looked at a file"))
    with pytest.raises(
        LimitExceeded, match="contains more than 5 files: pass the folder or the file of a single model"
    ):
        list(folder)


def test_folder_of_too_many_folders_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_MOST_FOLDERS", 3)
    for number in range(5):
        (tmp_path / str(number)).mkdir()
    with pytest.raises(LimitExceeded, match="more than 3 folders"):
        list(Folder(tmp_path))


# Objects that the end of a `with` block closes.


class Held(ClosedAtEnd):
    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_the_end_of_a_block_closes() -> None:
    with Held() as held:
        assert held.closed == 0
    assert held.closed == 1


def test_an_error_closes_too_and_goes_on() -> None:
    held = Held()
    with pytest.raises(ZeroDivisionError), held:
        raise ZeroDivisionError
    assert held.closed == 1


def test_a_class_without_close_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="close"):
        type("Open", (ClosedAtEnd,), {})()


def test_whatever_has_a_close_is_closable() -> None:
    assert isinstance(Held(), Closable)
    assert not isinstance(object(), Closable)


# Ropes in Python: they are sliced, read, and written like bytes.

FIRST, SECOND = bytes(range(100)), bytes(range(100, 200))
pieces = st.lists(
    st.binary(max_size=6) | st.tuples(st.integers(0, 1), st.integers(0, 90), st.integers(0, 10)), max_size=12
)


def rope_of(parts: list[bytes | tuple[int, int, int]]) -> tuple[Rope, bytes]:
    """Return a rope of `parts`, and its bytes."""
    data = (FIRST, SECOND)
    due = b"".join(part if isinstance(part, bytes) else data[part[0]][part[1] : part[1] + part[2]] for part in parts)
    return Rope(_core.Rope(parts), [BytesSource(FIRST), BytesSource(SECOND)]), due


@given(pieces, st.integers(-130, 130) | st.none(), st.integers(-130, 130) | st.none())
def test_it_is_sliced_like_bytes(
    parts: list[bytes | tuple[int, int, int]], start: int | None, stop: int | None
) -> None:
    rope, due = rope_of(parts)
    assert (rope.read(), len(rope), rope.size, bool(rope)) == (due, len(due), len(due), bool(due))
    assert bytes(rope[start:stop]) == due[start:stop]
    assert b"".join(map(bytes, rope.pieces(3))) == due
    assert _core.Rope.decode(rope.core.encode()) == rope.core


@given(pieces, st.integers(0, 130), st.integers(0, 40))
def test_parts_of_it_are_read(parts: list[bytes | tuple[int, int, int]], offset: int, length: int) -> None:
    rope, due = rope_of(parts)
    buffer = bytearray(length)
    assert buffer[: rope.readinto(buffer, offset)] == due[offset : offset + length]
    if offset + length <= len(due):
        assert rope.read(offset, length) == due[offset : offset + length]
    else:
        with pytest.raises(InvalidInput, match="out of range"):
            rope.read(offset, length)


def test_a_buffer_is_filled_while_no_other_thread_can_see_it() -> None:
    """A source is read without the interpreter's lock, so no other thread may see a half-filled buffer."""
    buffer = bytearray(b"-" * 6)
    seen = []

    class Looking:
        size = 3

        def read(self, offset: int, length: int, /) -> bytes:
            seen.append(bytes(buffer))
            return b"def"

    rope = Rope(_core.Rope([b"abc", (0, 0, 3)]), [Looking()])
    assert rope.readinto(buffer) == 6
    assert (seen, bytes(buffer)) == ([b"-" * 6], b"abcdef")


@given(pieces, st.lists(st.tuples(st.integers(0, 120), st.integers(0, 30)), max_size=5))
def test_as_a_file_it_is_sought_and_read(
    parts: list[bytes | tuple[int, int, int]], reads: list[tuple[int, int]]
) -> None:
    rope, due = rope_of(parts)
    with rope.open() as file, io.BytesIO(due) as like:
        for at, count in reads:
            assert file.seek(at) == like.seek(at)
            assert file.read(count) == like.read(count)
        assert file.seek(0, io.SEEK_END) == len(due)
    out = io.BytesIO()
    assert rope.write_to(out) == len(due)
    assert out.getvalue() == due


@given(pieces, st.integers(-70, 70))
def test_a_byte_of_it_is_that_of_bytes(parts: list[bytes | tuple[int, int, int]], at: int) -> None:
    rope, due = rope_of(parts)
    if -len(due) <= at < len(due):
        assert rope[at] == due[at]
    else:
        with pytest.raises(IndexError, match=f"Byte {at} is out of range: there are {len(due)} bytes"):
            rope[at]
    for key in ("0", 0.0, None):
        with pytest.raises(TypeError):
            rope[key]  # type: ignore[call-overload]


def test_it_is_sought_from_three_places_alone() -> None:
    file = rope_of([b"abc"])[0].open()
    for whence in (3, -1):
        with pytest.raises(InvalidInput, match=f"Invalid whence {whence}"):
            file.seek(0, whence)
    assert file.read() == b"abc"


def test_it_is_sliced_in_steps_of_one() -> None:
    rope, _ = rope_of([b"abc"])
    with pytest.raises(InvalidInput, match="step other than 1"):
        rope[::2]
    assert rope[2:1].read() == b""


def test_lengths_past_64_bits_are_refused() -> None:
    with pytest.raises(CorruptModel):
        _core.Rope([(0, 0, 2**64 - 1), (0, 0, 2**64 - 1)])


@pytest.mark.parametrize("data", [b"\x01", b"\xff" * 10, b"\x01\x03\x00", b"\x01\x06ab", b"\x80" * 12])
def test_what_is_no_rope_does_not_decode(data: bytes) -> None:
    with pytest.raises(CorruptModel):
        _core.Rope.decode(data)


@pytest.mark.parametrize("seed", range(20))
def test_large_and_small_extents_of_files_and_of_objects_are_read_together(seed: int, tmp_path: Path) -> None:
    random, path = Random(seed), tmp_path / "file"
    data, other = random.randbytes(1 << 20), random.randbytes(1 << 20)
    path.write_bytes(data)
    parts, due = list[bytes | tuple[int, int, int]](), b""
    for _ in range(random.randrange(1, 12)):
        number, length = random.randrange(2), random.choice((1, 100, 5000, (1 << 14) - 1, 1 << 14, 200_000))
        start = random.randrange((1 << 20) - length)
        parts += [(number, start, length), b"between"[: random.randrange(8)]]
        due += (data, other)[number][start : start + length] + bytes(parts[-1])
    with FileSource(path) as source:
        rope = Rope(_core.Rope(parts), [source, BytesSource(other)])
        assert rope.read() == due
        at = random.randrange(len(due))
        assert rope.read(at) == due[at:]


def test_a_file_that_became_shorter_gives_an_error_and_no_other_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    with FileSource(path) as source:
        rope = Rope(_core.Rope([(0, 0, 1 << 20)]), [source])
        path.write_bytes(bytes(1 << 19))
        with pytest.raises(ProtosliceError):
            rope.read()
