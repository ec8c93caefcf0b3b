"""A WebDAV server of another project on the loopback, over a directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from tests.support.wire import in_a_thread
from wsgidav.wsgidav_app import WsgiDAVApp

from protoslice.storage import ObjectKey


class WebDav:
    """The served directory, and what was asked of the server."""

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
        fresh.replace(path)  # another inode, by which the server tells versions of one second apart

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
    """A running server and the directory `root` that it serves."""
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
