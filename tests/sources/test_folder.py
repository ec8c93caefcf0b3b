"""Folders of files: as many as a model has, few of them open."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.protos.writer import varint
from tests.support.stores import field

from protoslice import open_model
from protoslice.errors import InvalidInput, LimitExceeded, StorageError
from protoslice.sources import files as folders
from protoslice.sources.files import MOST_OPEN, Folder

MANY = 4 * MOST_OPEN


def pair(key: bytes, value: bytes) -> bytes:
    return field(13, field(1, key) + field(2, value))


def onnx_in_files(folder: Path, count: int) -> None:
    """An ONNX model whose tensors are a file each."""
    graph = b""
    for number in range(count):
        (folder / f"weight-{number}.bin").write_bytes(b"%08d" % number)
        place = pair(b"location", b"weight-%d.bin" % number) + b"\x70\x01"
        graph += field(5, b"\x08" + varint(8) + b"\x10\x03" + field(8, b"weight-%d" % number) + place)
    (folder / "model.onnx").write_bytes(b"\x08\x08" + field(7, graph) + field(8, b"\x10\x11"))


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_model_of_many_files_holds_few_descriptors(tmp_path: Path) -> None:
    onnx_in_files(tmp_path, MANY)
    before = open_descriptors()
    with open_model(tmp_path) as model:
        assert open_descriptors() - before <= 2 * MOST_OPEN + 2
        tensors = list(model)
        assert [bytes(model.read(tensor)) for tensor in tensors] == [b"%08d" % number for number in range(MANY)]
        assert open_descriptors() - before <= 2 * MOST_OPEN + 2
    del model, tensors  # the engine's file of the root goes with them
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
