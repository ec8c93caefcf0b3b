"""Places of files on a disk, also on one that takes names that differ in case alone for one."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest

from protoslice.client import Client
from protoslice.client.download.stores import paths_in
from protoslice.errors import Conflict, StorageError


def folds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk take names for one as those of other systems do."""

    def folded(name: str) -> str:
        return unicodedata.normalize("NFD", name.casefold())

    def exists(self: Path) -> bool:
        return folded(self.name) in {folded(name) for name in os.listdir(self.parent)}

    monkeypatch.setattr(Path, "exists", exists)


@pytest.mark.parametrize(("one", "other"), [("A", "a"), ("B.bin", "b.bin"), ("\u00e9", "e\u0301")])
def test_no_file_overwrites_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: str, other: str) -> None:
    places = {path: tmp_path / "here" / path for path in ("x", one, other)}
    assert paths_in(tmp_path / "here", ["x", one, other]) == places, "this disk tells them apart"
    folds(monkeypatch)
    with pytest.raises(Conflict) as caught:
        paths_in(tmp_path / "here", ["x", one, other])
    assert repr(one) in caught.value.message
    assert repr(other) in caught.value.message
    assert paths_in(tmp_path / "here", ["x", one, "y"]).keys() == {"x", one, "y"}
    assert os.listdir(tmp_path / "here") == []


def test_a_pull_is_refused_before_anything_is_fetched(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    for name in "Aa":
        (tmp_path / "model" / name).write_bytes(name.encode())
    store = client.push(tmp_path / "model").store
    client.download(store.id, tmp_path / "copy")
    assert {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()} == {"A": b"A", "a": b"a"}
    folds(monkeypatch)
    with pytest.raises(Conflict, match="'A' and 'a'"):
        client.download(store.id, tmp_path / "other")
    assert os.listdir(tmp_path / "other") == []


def test_a_disk_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="Cannot write "):
        paths_in(tmp_path / "file", ["A", "a"])
