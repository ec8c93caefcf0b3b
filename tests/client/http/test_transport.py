"""Transport below httpx: reused connections, proxies of the environment, certificates, refusals."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import certificate
from tests.support.live import LiveServer, live_server

from protoslice.client import Client
from protoslice.errors import InvalidInput, LimitExceeded, NotFound, ProtosliceError, StorageDenied, StorageUnavailable
from protoslice.server.app import create_app
from protoslice.server.settings import Settings
from protoslice.server.transport.uvicorn_config import uvicorn_config


class Door:
    """Listens, and passes connections on to a service; with a context, it is who speaks TLS."""

    def __init__(self, service: LiveServer, tls: ssl.SSLContext | None = None) -> None:
        self.connections = 0
        self.first_lines: list[bytes] = []
        self._service, self._tls = service, tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with suppress(OSError):
            if self._tls is not None:
                near = self._tls.wrap_socket(near, server_side=True)
            with near, self._service.connect() as far:
                back = threading.Thread(target=self._pump, args=(far, near, False), daemon=True)
                back.start()
                self._pump(near, far, True)
                back.join()

    def _pump(self, source: socket.socket, sink: socket.socket, kept: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if kept:
                    self.first_lines.append(data.partition(b"\r\n")[0])
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def door(service: LiveServer, tls: ssl.SSLContext | None = None) -> Iterator[Door]:
    made = Door(service, tls)
    try:
        yield made
    finally:
        made.close()


def test_a_connection_is_used_again(service: LiveServer, versions: Any) -> None:
    """Also after a body that came whole, a failure, and one that nobody read to its end."""
    with door(service) as between, Client(f"http://127.0.0.1:{between.port}") as client:
        store = client.push(versions.old, type="tensorflow.GraphDef").store
        assert client.merge(store.id) == versions.old
        before = between.connections
        for _ in range(5):
            list(client.stores())
            assert client.source(store.id, "files/model.pb").read(2 << 20, 5) == versions.old[2 << 20 :][:5]
            with pytest.raises(NotFound):
                client.store("0123456789ab")
        assert between.connections == before


def test_the_environment_names_a_proxy(service: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with door(service) as between:
        monkeypatch.setenv("http_proxy", f"http://name:secret@127.0.0.1:{between.port}")
        with Client("http://models.example") as client, suppress(ProtosliceError):  # the service has another name
            list(client.tags())
    assert between.first_lines[0].startswith(b"GET http://models.example/v1/tags?")


def test_a_host_that_needs_no_proxy(service: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with door(service) as between:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{between.port}")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        with Client(service.url) as client:
            list(client.tags())
    assert between.connections == 0


def test_a_certificate_is_trusted_when_it_is_named(
    service: LiveServer, versions: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, trusted = certificate(tmp_path, "localhost")
    with door(service, tls) as between:
        url = f"https://localhost:{between.port}"
        with Client(url) as client, pytest.raises(StorageDenied, match=r"not trusted \(self.signed .* SSL_CERT_FILE"):
            list(client.tags())
        assert between.connections == 1, "it would be refused again"
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        with Client(url) as client:
            store = client.push(versions.old, type="tensorflow.GraphDef").store
            assert client.merge(store.id) == versions.old


def test_a_refusal_while_the_body_is_sent_is_heard() -> None:
    settings = Settings(storage="memory://", log_level="error", max_upload_bytes=1 << 20)
    with live_server(uvicorn_config(create_app(settings), settings)) as small, Client(small.url) as client:
        for _ in range(5):
            with pytest.raises(LimitExceeded):
                client.push(bytes(32 << 20))


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with (
        Client(f"http://127.0.0.1:{port}", attempts=1) as client,
        pytest.raises(StorageUnavailable, match="Cannot connect"),
    ):
        list(client.tags())


@pytest.mark.parametrize("url", ["http://", "http://[::1", "ftp://host", "host:8000", "", "https:///v1"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(InvalidInput, match="Invalid service URL"):
        Client(url)
