"""fsspec's file system over HTTP, by which data frames, zarr and torch read remote files."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import fsspec
import httpx
import pytest
from fsspec.implementations.http import HTTPFileSystem
from tests.support.serve import ServiceProcess

CACHES = ["readahead", "bytes", "blockcache", "background", "first", "all", "none"]
BLOCK = 100_000


@pytest.fixture(scope="module")
def files() -> Iterator[Any]:
    """Return the file system, which is closed afterwards."""
    made = fsspec.filesystem("http", skip_instance_cache=True)
    yield made
    session = fsspec.asyn.sync(made.loop, made.set_session)
    HTTPFileSystem.close_session(made.loop, session)
    gc.collect()


@pytest.fixture(scope="module", params=["file", "chunk", "merge"])
def view(request: pytest.FixtureRequest, stored: Any) -> tuple[str, bytes]:
    """Return a URL, and the bytes at the URL."""
    chunk = httpx.get(f"{stored.url}/chunks/1", timeout=60).content
    assert chunk in stored.data
    assert len(chunk) == 3_000_000
    views = {"file": (stored.file, stored.data), "chunk": (f"{stored.url}/chunks/1", chunk)}
    return {**views, "merge": (f"{stored.url}/merge?path=graph.initializer[0].raw_data", chunk)}[request.param]


def test_what_it_finds_out(files: Any, stored: Any, view: tuple[str, bytes]) -> None:
    url, data = view
    found = files.info(url)
    assert found["size"] == len(data)
    assert found.get("partial", True)
    assert found["ETag"] == httpx.head(url, timeout=60).headers["etag"]
    assert files.exists(url)
    assert not files.exists(f"{stored.url}/files/none")
    with pytest.raises(FileNotFoundError):
        files.cat_file(f"{stored.url}/chunks/99")


def test_ranges(files: Any, view: tuple[str, bytes]) -> None:
    url, data = view
    random = Random(4)
    places = [tuple(sorted(random.sample(range(len(data) + 1), 2))) for _ in range(40)]
    starts, ends = zip(*places, strict=True)
    assert files.cat_ranges([url] * len(places), starts, ends) == [data[start:end] for start, end in places]
    assert files.cat_file(url, start=-100) == data[-100:]
    assert files.cat_file(url, start=len(data) - 7, end=len(data) + 1000) == data[-7:]
    assert files.cat_file(url) == data
    assert files.head(url, 10) == data[:10]
    assert files.tail(url, 10) == data[-10:]


@pytest.mark.parametrize("cache", CACHES)
def test_seek_and_read(files: Any, view: tuple[str, bytes], cache: str) -> None:
    url, data = view
    random = Random(5)
    with files.open(url, "rb", block_size=BLOCK, cache_type=cache) as file:
        assert file.size == len(data)
        for _ in range(12):
            start, length = random.randrange(len(data)), random.choice((1, 1000, BLOCK, 3 * BLOCK))
            assert file.seek(start) == start
            assert file.read(length) == data[start : start + length]
        file.seek(-5, 2)
        assert file.read() == data[-5:]
        assert file.read(1) == b""


def test_a_stream_and_a_copy(files: Any, view: tuple[str, bytes], tmp_path: Path) -> None:
    url, data = view
    with files.open(url, "rb", block_size=0) as stream:
        assert stream.read(1000) == data[:1000]
        assert stream.read() == data[1000:]
    files.get_file(url, str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == data


def test_what_has_no_ranges_is_streamed(files: Any, stored: Any) -> None:
    """A rendered form has no ranges: if it were opened for seeking, each seek would read it again from the start."""
    url, headers = f"{stored.url}/merge?path=graph.initializer[2].name", {"accept": "text/plain"}
    assert files.cat_file(url, headers=headers) == b"weight-2"
    shown = {"headers": {"accept": "application/json"}}
    assert files.info(f"{stored.url}/chunks/0", **shown)["partial"] is False
    with files.open(f"{stored.url}/chunks/0", "rb", **shown) as stream:
        assert b'"producer_name"' in stream.read()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # blockcache does not close its own file
def test_a_chain_of_file_systems(stored: Any, tmp_path: Path) -> None:
    """`blockcache::http://` stores read blocks in a local folder."""
    options = {"blockcache": {"cache_storage": str(tmp_path), "block_size": BLOCK}}
    for _ in range(2):
        with fsspec.open(f"blockcache::{stored.file}", "rb", **options) as file:
            file.seek(1_234_567)
            assert file.read(20) == stored.data[1_234_567:1_234_587]


def test_it_uploads(files: Any, service: ServiceProcess, tmp_path: Path) -> None:
    path = tmp_path / "model.pb"
    path.write_bytes(b"\x0a\x06fsspec")
    files.put_file(str(path), f"{service.url}/v1/stores?tag=fsspec", method="put")
    assert files.cat_file(f"{service.url}/v1/stores/fsspec/merge") == path.read_bytes()
