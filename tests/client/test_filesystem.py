"""Stores as an fsspec file system, found by its protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pytest
from tests.support.serve import LiveServer

from protoslice.client import Client
from protoslice.client.filesystem import StoreFileSystem
from protoslice.errors import InvalidInput


@pytest.fixture(scope="module")
def given() -> dict[str, bytes]:
    return {"saved_model.pb": b"\x0a\x01a", "variables/v.data": bytes(range(256)) * 20_000, "variables/more/x": b"x"}


@pytest.fixture(scope="module")
def root(service: LiveServer, client: Client, given: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a store of three files."""
    folder = tmp_path_factory.mktemp("model")
    for name, data in given.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    client.push(folder, root="saved_model.pb", tags=["fs:1"])
    return f"protoslice://{service.host}:{service.port}/fs:1"


@pytest.fixture
def fs() -> Any:
    return StoreFileSystem(skip_instance_cache=True)


def test_it_is_found_by_its_protocol() -> None:
    """By the entry point: `make dev` installs it."""
    assert isinstance(fsspec.filesystem("protoslice"), StoreFileSystem)
    secure = fsspec.core.url_to_fs("protoslices://host/ref/files/a")
    assert secure[1] == "host/ref/files/a"
    assert secure[0]._client("host").url == "https://host"


def test_misspelled_options_are_refused(root: str) -> None:
    for options, said in (
        ({"token": "x"}, "options"),
        ({"options": {"tokn": "x"}}, "'token'"),
        ({"tsl": True}, "'tls'"),
    ):
        with pytest.raises(TypeError, match=f"has no option .*{said}"):
            fsspec.filesystem("protoslice", **options)


def test_files_are_opened_by_url(fs: Any, root: str, given: dict[str, bytes]) -> None:
    with fs.open(f"{root}/files/variables/v.data", block_size=70_000) as file:
        assert file.size == len(given["variables/v.data"])
        file.seek(1_000_000)
        assert file.read(1000) == given["variables/v.data"][1_000_000:1_001_000]
        file.seek(0)
        assert file.read() == given["variables/v.data"]


def test_ranges(fs: Any, root: str, given: dict[str, bytes]) -> None:
    url, data = f"{root}/files/variables/v.data", given["variables/v.data"]
    for start, end in ((None, None), (5, 10), (-7, None), (None, -5_000_000), (10, 5), (5_000_000, 9_000_000)):
        assert fs.cat_file(url, start=start, end=end) == data[start:end]
    assert fs.cat_ranges([url, url], [0, 100], [3, 103]) == [data[:3], data[100:103]]
    assert sorted(fs.cat([url, f"{root}/files/variables/more/x"]).values()) == sorted([data, b"x"])


def test_listing(fs: Any, root: str, given: dict[str, bytes]) -> None:
    top = fs._strip_protocol(root)
    assert fs.ls(root, detail=False) == [f"{top}/{kind}" for kind in ("chunks", "files", "tensors")]
    assert fs.ls(f"{root}/files", detail=False) == [f"{top}/files/saved_model.pb", f"{top}/files/variables"]
    assert fs.ls(f"{root}/files/variables/v.data") == [fs.info(f"{root}/files/variables/v.data")]
    assert fs.find(f"{root}/files") == sorted(f"{top}/files/{name}" for name in given)
    assert fs.glob(f"{root}/files/**/*.data") == [f"{top}/files/variables/v.data"]
    assert fs.info(f"{root}/files/variables")["type"] == "directory"
    assert fs.info(f"{root}/files/variables/v.data") == {
        "name": f"{top}/files/variables/v.data", "size": len(given["variables/v.data"]), "type": "file",
    }  # fmt: skip
    assert fs.isdir(root)
    assert fs.exists(f"{root}/files/saved_model.pb")
    assert not fs.exists(f"{root}/files/nothing")
    assert root.rpartition("/")[0].removeprefix("protoslice://") + "/fs:1" in fs.ls(
        root.rpartition("/")[0], detail=False
    )
    assert fs.created(root) == fs.modified(root)


def test_chunks(fs: Any, root: str, given: dict[str, bytes]) -> None:
    top = fs._strip_protocol(root)
    assert fs.ls(f"{root}/chunks") == [{"name": f"{top}/chunks/0", "size": 3, "type": "file"}]
    assert fs.cat_file(f"{root}/chunks/0") == given["saved_model.pb"]
    assert fs.info(f"{root}/chunks/0")["size"] == 3
    fresh = StoreFileSystem(skip_instance_cache=True)
    assert fresh.info(f"{root}/chunks/0")["size"] == 3


def test_a_chunk_that_is_missing_from_the_list_is_no_folder(fs: Any, root: str) -> None:
    for _ in ("before the list is known", "and after"):
        for path in (f"{root}/chunks/9", f"{root}/chunks/0/x"):
            with pytest.raises(FileNotFoundError):
                fs.info(path)
            with pytest.raises(FileNotFoundError):
                fs.ls(path)
        assert fs.ls(f"{root}/chunks/0") == fs.ls(f"{root}/chunks")


def test_copies_go_to_local_files(fs: Any, root: str, given: dict[str, bytes], tmp_path: Path) -> None:
    fs.get(f"{root}/files", str(tmp_path / "copy"), recursive=True)
    assert {
        p.relative_to(tmp_path / "copy").as_posix(): p.read_bytes()
        for p in (tmp_path / "copy").rglob("*")
        if p.is_file()
    } == given


def test_what_is_not_there(fs: Any, root: str) -> None:
    for path in (f"{root}/files/none", f"{root}/other/x", f"{root}/chunks/9", f"{root}/files", f"{root}x/files/a"):
        with pytest.raises(FileNotFoundError):
            fs.cat_file(path)
    with pytest.raises(FileNotFoundError):
        fs.ls(f"{root}/files/none")
    for path in (f"{root}x", f"{root}x/chunks", f"{root}x/chunks/0", f"{root}x/files/a"):
        for call in (fs.info, fs.ls):
            with pytest.raises(FileNotFoundError):
                call(path)
    with pytest.raises(InvalidInput, match="host"):
        fs.ls("protoslice://")


def test_it_is_read_only(fs: Any, root: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    new, old, given = f"{root}/files/new", f"{root}/files/saved_model.pb", str(tmp_path / "a")
    calls = [
        *((call, (new,)) for call in (fs.mkdir, fs.makedirs, fs.touch, fs.makedir, fs.mkdirs)),
        *((call, (old,)) for call in (fs.rm, fs.rm_file, fs.rmdir, fs.delete)),
        *((call, (old, new)) for call in (fs.mv, fs.move, fs.rename, fs.cp_file, fs.copy, fs.cp)),
        *((call, (given, new)) for call in (fs.put, fs.put_file, fs.upload)),
        *((fs.open, (new, mode)) for mode in ("wb", "ab", "r+b", "w")),
        (fs.pipe, (new, b"")),
    ]
    for call, arguments in calls:
        with pytest.raises(InvalidInput, match=r"read-only: create one by Client\.push"):
            call(*arguments)
    assert fs.exists(old)


def test_a_store_without_a_root_has_files_alone(fs: Any, service: LiveServer, client: Client) -> None:
    store = client.push(b"just words", filename="notes.txt").store
    top = f"{service.host}:{service.port}/{store.id}"
    assert store.root is None
    assert fs.find(f"protoslice://{top}") == [f"{top}/files/notes.txt"]
    assert fs.cat_file(f"protoslice://{top}/files/notes.txt") == b"just words"
    with pytest.raises(FileNotFoundError):
        fs.cat_file(f"protoslice://{top}/chunks/0")
