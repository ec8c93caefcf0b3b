"""Any file system of fsspec is read in place: a WebDAV server, and fsspec's own memory."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from socketserver import ThreadingMixIn
from tempfile import TemporaryDirectory
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import fsspec
import numpy as np
import onnx
import pytest
from tests.support.stores import in_memory, open_stores
from tests.support.wire import in_a_thread
from wsgidav.wsgidav_app import WsgiDAVApp

import protoslice
from protoslice.errors import Conflict, InvalidInput, StorageUnavailable, Unsupported
from protoslice.serving import StoreOptions
from protoslice.storage import ObjectKey, Storage, open_storage
from protoslice.stores import IngestRequest, Stores
from protoslice.testing import Raw, ReadingConformance
from protoslice.testing.reading import ODD
from protoslice.views import documents


class WebDav:
    """The served directory, and the requests to the server."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.address = ""
        self.gets: list[str | None] = []
        """The Range of each GET."""

    async def get(self, key: ObjectKey) -> bytes | None:
        """See `Raw.get`."""
        path = self.root / key.text
        return path.read_bytes() if path.is_file() else None

    async def set(self, key: ObjectKey, data: bytes) -> None:
        """See `Raw.set`."""
        path = self.root / key.text
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.root.with_suffix(".fresh")
        fresh.write_bytes(data)
        fresh.replace(path)  # another inode, by which the server distinguishes versions of one second

    async def remove(self, key: ObjectKey) -> None:
        """See `Raw.remove`."""
        (self.root / key.text).unlink()

    async def names(self) -> list[str]:
        """See `Raw.names`."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file())


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def webdav_server(root: Path) -> Iterator[WebDav]:
    """Run a server, and yield it with the directory `root` that it serves."""
    dav = WebDav(root)
    config = {
        "provider_mapping": {"/": str(root)},
        "simple_dc": {"user_mapping": {"*": True}},
        "verbose": 0,
        "logging": {"enable": False},
    }
    app = WsgiDAVApp(config)

    def counted(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["REQUEST_METHOD"] == "GET":
            dav.gets.append(environ.get("HTTP_RANGE"))
        return app(environ, start_response)

    with in_a_thread(make_server("127.0.0.1", 0, counted, _Server, _Quiet)) as address:
        dav.address = address
        yield dav


PLAIN = {"scheme": "http"}


class TestWebDav(ReadingConformance):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
        with TemporaryDirectory() as root, webdav_server(Path(root)) as dav:
            async with open_storage(f"fsspec+webdav://{dav.address}", PLAIN) as storage:
                yield storage, dav

    def test_keys_of_any_script_and_sign(self) -> None:
        """webdav4 does not encode three characters; names with them are refused, and all other names are read."""

        async def work() -> None:
            async with self.open() as (storage, raw):
                for name in ODD:
                    await raw.set(ObjectKey(name), name.encode())
                    try:
                        assert await storage.get_range(ObjectKey(name), 0, len(name.encode())) == name.encode()
                        assert not set("%#?") & set(name)
                    except Unsupported:
                        assert set("%#?") & set(name)

        asyncio.run(work())


class TestMemory(ReadingConformance):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
        root = f"/{secrets.token_hex(8)}"
        async with open_storage(f"fsspec+memory:/{root}") as storage:
            yield storage, _RawMemory(root)


class _RawMemory:
    def __init__(self, root: str) -> None:
        self._root = root
        self._fs = fsspec.filesystem("memory")

    async def get(self, key: ObjectKey) -> bytes | None:
        path = f"{self._root}/{key}"
        return bytes(self._fs.cat_file(path)) if self._fs.exists(path) else None

    async def set(self, key: ObjectKey, data: bytes) -> None:
        self._fs.pipe_file(f"{self._root}/{key}", data)

    async def remove(self, key: ObjectKey) -> None:
        self._fs.rm_file(f"{self._root}/{key}")

    async def names(self) -> list[str]:
        return [path.removeprefix(f"{self._root}/") for path in self._fs.find(self._root)]


@pytest.fixture
def dav(tmp_path: Path) -> Iterator[WebDav]:
    """Run a WebDAV server with a model of 4 MiB."""
    weights = np.arange(1 << 20, dtype=np.float32)
    graph = onnx.helper.make_graph([], "g", [], [], [onnx.numpy_helper.from_array(weights, "weights")])
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "model.onnx").write_bytes(onnx.helper.make_model(graph).SerializeToString())
    with webdav_server(tmp_path) as dav:
        yield dav


def test_the_library_reads_a_slice_by_range(dav: WebDav) -> None:
    uri = f"fsspec+webdav://{dav.address}/models/model.onnx"
    with protoslice.open_model(uri, storage_options=PLAIN) as model:
        assert model["weights"][1000:1004].tolist() == [1000, 1001, 1002, 1003]
    read = 0
    for asked in dav.gets:
        assert asked is not None, "a whole file was asked for"
        first, last = asked.removeprefix("bytes=").split("-")
        read += int(last) + 1 - int(first)
    assert read < 1 << 20


async def test_listing_goes_page_by_page_in_key_order(dav: WebDav) -> None:
    names = ["a/b", "a-b", "a/c/d", "a0", "models/model.onnx", "z"]
    for name in names:
        path = dav.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x") if not path.exists() else None
    async with open_storage(f"fsspec+webdav://{dav.address}", PLAIN) as storage:
        for limit in (1, 2, 1000):
            assert [str(item.key) async for item in storage.iterate(limit=limit)] == sorted(names)
        below = [item async for item in storage.iterate(ObjectKey("a"), limit=1)]
        assert [str(item.key) for item in below] == ["a/b", "a/c/d"]
        assert below[0] == await storage.stat(below[0].key)
        with pytest.raises(Unsupported, match="read-only"):
            await storage.put(ObjectKey("a/b"), b"y")


def test_a_file_is_registered_in_place_and_a_replaced_one_is_told(dav: WebDav, monkeypatch: pytest.MonkeyPatch) -> None:
    root = f"fsspec+memory://{dav.address.replace(':', '-')}"
    memory = fsspec.filesystem("memory")
    path = f"/{dav.address.replace(':', '-')}/model.onnx"
    memory.pipe(path, (dav.root / "models" / "model.onnx").read_bytes())

    async def work(_: Stores, storage: Storage) -> None:
        stores = await open_stores(storage, StoreOptions(register_prefixes=(root,)))
        try:
            made = (await stores.register({"m.onnx": f"{root}/model.onnx"}, IngestRequest())).store
            view = await stores.view(made.id)
            assert made.type == "onnx.ModelProto"
            assert (
                len([piece async for piece in (await documents.merge(view, "graph.name", None, None)).pieces(0, 1)])
                == 1
            )
            memory.pipe(path, b"x" * made.size)
            with pytest.raises(Conflict):
                [piece async for piece in view.file("m.onnx").pieces(0, 10)]
        finally:
            await stores.close()

    in_memory(work)


@pytest.mark.parametrize(
    ("uri", "options", "said"),
    [
        ("fsspec+nothing://host/x", {}, "has no file system 'nothing'"),
        ("fsspec+file://host/x", {}, "Use file://"),
        ("fsspec+sftp://host/x", {"port": "many"}, "option port must be a number"),
        ("fsspec://host/x", {}, "fsspec"),
    ],
)
def test_mistakes_are_told_before_anything_is_asked(uri: str, options: dict[str, str], said: str) -> None:
    with pytest.raises((InvalidInput, Unsupported), match=said):
        open_storage(uri, options)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    async with open_storage("fsspec+webdav://127.0.0.1:9", PLAIN) as storage:
        with pytest.raises(StorageUnavailable) as refused:
            await storage.stat(ObjectKey("a"))
        assert "127.0.0.1" not in str(refused.value)
