"""Tar archives of stores are what other programs read, and the files alone decide about them."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from tests.support.stores import in_memory, read, upload

from protoslice import versions
from protoslice.facts import File
from protoslice.serving import OpenStore
from protoslice.sources.ropes import Rope
from protoslice.stores import Stores
from protoslice.views import models
from protoslice.views.models import tar_of

FILES = {
    "saved_model.pb": b"",
    "variables/variables.index": b"i" * 511,
    "variables/variables.data-00000-of-00001": b"v" * 512,
    "größe/日本": b"b" * 513,
    "long/" + "n" * 150 + "/" + "o" * 150: b"o",
    "a=b c": b"x" * 1025,
}


class Zeros:
    """A source of `size` zeros, which takes no memory."""

    def __init__(self, size: int) -> None:
        self.size = size

    def read(self, offset: int, length: int) -> bytes:
        """The zeros of a range."""
        return bytes(length)


async def archived(stores: Stores, files: dict[str, bytes]) -> tuple[OpenStore, bytes, str]:
    """A store of `files`, its archive, and the entity tag of that."""
    store = await stores.view((await upload(stores, files)).store.id)
    found = await models.archive(store)
    data = await read(found)
    assert len(data) == found.size
    return store, data, found.etag


def test_the_files_of_an_archive_are_those_of_the_store() -> None:
    async def work(stores: Stores, _: object) -> None:
        _, data, _ = await archived(stores, FILES)
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            members = {member.name: member for member in tar}
            assert {name: tar.extractfile(found).read() for name, found in members.items()} == FILES  # type: ignore[union-attr]
        assert {(found.mode, found.uid, found.mtime) for found in members.values()} == {(0o644, 0, 0)}

    in_memory(work)


def test_debians_tar_unpacks_it(tmp_path: Path) -> None:
    async def work(stores: Stores, _: object) -> None:
        _, data, _ = await archived(stores, FILES)
        subprocess.run(["tar", "-xf", "-"], input=data, cwd=tmp_path, check=True)

    in_memory(work)
    assert {
        str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    } == FILES


def test_the_order_of_an_upload_makes_no_difference() -> None:
    found: list[tuple[bytes, str]] = []

    async def work(stores: Stores, _: object) -> None:
        files = FILES if not found else dict(reversed(FILES.items()))
        _, data, etag = await archived(stores, files)
        found.append((data, etag))

    in_memory(work)
    in_memory(work)
    assert found[0] == found[1]


def test_an_archive_of_another_version_has_another_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(stores: Stores, _: object) -> None:
        store, _, etag = await archived(stores, FILES)
        monkeypatch.setattr("protoslice.views.models.ARCHIVES", versions.ARCHIVES + 1)
        assert (await models.archive(store)).etag != etag

    in_memory(work)


def test_files_beyond_eight_gibibytes_have_their_size() -> None:
    sizes = {"a": (8 << 30) - 1, "b": 8 << 30, "c": (1 << 40) + 1, "d": 1}
    rope = Rope(tar_of([File(path, size, None) for path, size in sizes.items()]), [*map(Zeros, sizes.values())])
    with tarfile.open(fileobj=rope.open()) as tar:
        assert {member.name: member.size for member in tar} == sizes


def test_an_archive_of_no_files_ends() -> None:
    with tarfile.open(fileobj=Rope(tar_of([]), []).open()) as tar:
        assert tar.getnames() == []
