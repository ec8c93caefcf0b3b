"""Sources give exactly the bytes asked for, or an error that names the file."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from protoslice.errors import CorruptModel, InvalidInput, NotFound, StorageDenied, StorageError
from protoslice.sources import files as sources
from protoslice.sources.files import BytesSource, FileObjectSource, FileSource
from protoslice.sources.opening import as_source
from protoslice.sources.source import RangeSource

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
