"""URIs of every scheme: options, and the words for those that do not fit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.counted import CountedBucket, counted_bucket
from tests.support.s3 import RawBucket, emulator
from tests.support.web import web_server

from protoslice.errors import InvalidInput, NotFound, Unsupported
from protoslice.sources.files import FileSource
from protoslice.sources.opening import as_source
from protoslice.sources.remote import open_folder, open_object
from protoslice.storage import ObjectKey, open_storage
from protoslice.uris import is_uri


@pytest.fixture
def bucket() -> Iterator[CountedBucket]:
    with counted_bucket() as found:
        found.fill({"a": b"content"})
        yield found


@pytest.mark.parametrize("name", ["s3://b/k", "S3://b/k", "fsspec+sftp://h/k", "nosuch://x", "file:///a"])
def test_uris(name: str) -> None:
    assert is_uri(name)


@pytest.mark.parametrize("name", ["C:\\model.onnx", "C://model.onnx", "a:b", "model.onnx", "://x", "", b"s3://b/k"])
def test_paths(name: object) -> None:
    assert not is_uri(name)


def test_a_file_that_looks_like_a_uri_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3:" / "b").mkdir(parents=True)
    (tmp_path / "s3:" / "b" / "k").write_bytes(b"here")
    assert as_source("s3://b/k").read(0, 4) == b"here"
    assert is_uri("s3://b/other")
    assert not is_uri(Path("s3://b/other"))


def test_a_file_uri_is_read_as_the_path_is(tmp_path: Path) -> None:
    (tmp_path / "a b%").write_bytes(b"here")
    source = as_source(f"file://{tmp_path}/a%20b%25")
    assert isinstance(source, FileSource)
    assert source.read(0, 4) == b"here"


def test_an_unknown_scheme_is_answered_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match=r"'nosuch'; available: .*az, .*file, .*gs, .*https, .*memory, .*s3"):
        as_source("nosuch://host/x")


def test_a_web_source_without_the_extra_is_answered_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "protoslice.storage.web.backend", None)
    with pytest.raises(Unsupported, match=r"web sources: install the extra 'cloud'"):
        as_source("https://host/path")


async def test_memory_is_shared_by_name() -> None:
    await open_storage("memory://some-name/folder").put(ObjectKey("a"), b"content")
    assert as_source("memory://some-name/folder/a").read(0, 7) == b"content"
    with pytest.raises(NotFound):
        as_source("memory://another/folder/a")


def test_options_are_given_or_of_the_environment(bucket: CountedBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOSLICE_STORAGE_OPTIONS", '{"region": "x"}')
    open_object(f"{bucket.uri}/a").close()
    open_object(f"{bucket.uri}/a", {"region": "y"}).close()
    assert bucket.options == [{"region": "x"}, {"region": "y"}]
    with pytest.raises(NotFound):
        open_object("memory://no-options-there/a")


@pytest.mark.parametrize("text", ["nothing", "[]", '{"a": 1}'])
def test_options_that_do_not_parse(bucket: CountedBucket, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOSLICE_STORAGE_OPTIONS", text)
    with pytest.raises(InvalidInput, match="Invalid PROTOSLICE_STORAGE_OPTIONS"):
        open_object(f"{bucket.uri}/a")


def test_a_folder_is_no_object(bucket: CountedBucket) -> None:
    with pytest.raises(InvalidInput, match="is a folder"):
        open_object(f"{bucket.uri}/")


def test_a_web_server_of_the_caller_s_own_network() -> None:
    with web_server() as web:
        web.objects["a b.onnx"] = b"content"
        root = f"http://127.0.0.1:{web.port}/files"
        with open_object(f"{root}/a%20b.onnx") as source:
            assert source.read(3, 4) == b"tent"
        files, named = open_folder(f"{root}/a%20b.onnx")
        assert named == "a b.onnx"
        assert "other" not in files
        files.close()
        with pytest.raises(NotFound):
            open_folder(f"{root}/nothing")
        with pytest.raises(InvalidInput, match="no options"):
            open_object(f"{root}/a", {"region": "x"})
        files, _ = open_folder(f"{root}/")
        with pytest.raises(Unsupported, match="cannot list"):
            list(files)


async def test_a_bucket() -> None:
    with emulator() as options:
        raw = RawBucket.make(options)
        await raw.set(ObjectKey("m/root"), b"content")
        with open_object(f"{raw.uri}/m/root", options) as source:
            assert source.read(3, 4) == b"tent"
        files, named = open_folder(f"{raw.uri}/m", options)
        assert (list(files), named) == (["root"], None)
        files.close()
