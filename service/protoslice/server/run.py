"""Serving until a signal says to end, and ending without cutting anybody off."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import uvicorn

from protoslice.errors import InvalidInput
from protoslice.server.app import create_app, open_stores
from protoslice.server.logs import configure_logs
from protoslice.server.services import Services
from protoslice.server.settings import Settings
from protoslice.server.telemetry import configure_tracing
from protoslice.server.uvicorn_config import uvicorn_config

__all__ = ["Server", "run"]

BACKLOG = 2048


class Server(uvicorn.Server):
    """uvicorn's server, which prints where it listens and says that it drains before it closes the door."""

    def __init__(self, config: uvicorn.Config, services: Services, *, at_end: Sequence[Callable[[], None]]) -> None:
        super().__init__(config)
        self._services = services
        self._at_end = at_end

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and print the address: the first line of our output. Storage that fails is an error of the program."""
        self._services.opened = await open_stores(self._services.settings)
        await super().startup(sockets)
        if self.started and sockets:
            print(address_of(sockets[0]), flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse readiness for a while, then take no more connections and let answers end."""
        self._services.draining = True
        await asyncio.sleep(self._services.settings.drain_notice_seconds)
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End by the signal that asked for it, as supervisors expect; what is due at our end is done before."""
        with super().capture_signals():
            try:
                yield
            finally:
                for call in self._at_end:
                    call()


def run(settings: Settings) -> None:
    """Serve by these settings until SIGTERM or SIGINT."""
    flush_logs = configure_logs(settings.log_format, settings.log_level)
    flush_spans = configure_tracing(settings.otel_endpoint)
    _open_many_files()
    app = create_app(settings)
    listener = listen(settings.host, settings.port)
    try:
        Server(uvicorn_config(app, settings), app.services, at_end=[flush_spans, flush_logs]).run([listener])
    finally:
        listener.close()


def _open_many_files() -> None:
    """Stores are held open, a descriptor for each of their objects: take as many as the system grants."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def listen(host: str, port: int) -> socket.socket:
    """A listening socket."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except socket.gaierror as error:
        raise InvalidInput(f"there is no address {host!r} to listen on") from error
    return socket.create_server(address, family=family, backlog=BACKLOG)


def address_of(listener: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port, *_ = listener.getsockname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
