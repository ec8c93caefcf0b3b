"""Serves until a signal, and then shuts down without interrupting clients."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import logging
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import HANDLED_SIGNALS

from protoslice.concurrency.chores import keep_running
from protoslice.errors import InvalidInput
from protoslice.server.app import Application, create_app
from protoslice.server.auth.mode import access_line
from protoslice.server.http.security import standing_headers
from protoslice.server.pages.html import is_built
from protoslice.server.request.clients import Clients
from protoslice.server.services import ServerState
from protoslice.server.settings import Settings
from protoslice.server.telemetry.logs import configure_logs
from protoslice.server.telemetry.metrics import WorkerMetrics
from protoslice.server.telemetry.tracing import configure_tracing
from protoslice.server.transport.fastpath import FastPath
from protoslice.server.transport.protocol import Answerer, HttpProtocol
from protoslice.server.transport.supervisor import Supervisor, WorkerLink
from protoslice.uris import local_path

BACKLOG: Final = 2048
TICK_SECONDS: Final = 0.05
CUT_SECONDS: Final = 5.0
"""The seconds that aborted requests have to clean up."""
LOOK_SECONDS: Final = 5.0
"""The seconds between two checks of the certificate's files."""
_KEPT: Final = 32 << 20
"""The bytes of freed memory that the process keeps. glibc's default, 128 KiB, causes page faults in large answers."""
_FROM_KERNEL: Final = 32 << 20
"""The size in bytes from which glibc takes each block directly from the kernel.

This is glibc's maximum. Reads need smaller blocks, which glibc can reuse.
"""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_log = logging.getLogger(__name__)


def fast_path(app: Application) -> Answerer | None:
    """Return the fast path of `app`. Return None if requests are traced, because the fast path makes no spans."""
    return None if app.traced else FastPath(app.views, app.policy, app.recorder, app.services).answer


def uvicorn_config(app: ASGIApp, settings: Settings, *, answerer: Answerer | None = None) -> uvicorn.Config:
    """Return uvicorn's configuration with the service's protocol, limits and log lines, and without websockets.

    `answerer` may answer requests while they are parsed. The default is the fast path of the application.
    """
    clients, record = Clients(settings), None
    if isinstance(app, Application):
        clients, record = app.services.clients, app.recorder.record
        answerer = answerer or fast_path(app)
    protocol = partial(
        HttpProtocol, settings=settings, clients=clients, answer=answerer, record=record, waiting={}, reserve={}
    )
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=cast("type[asyncio.Protocol]", protocol),
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        headers=standing_headers(settings.cors_origins),
        proxy_headers=False,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=settings.drain_seconds,
    )


class Server(uvicorn.Server):
    """uvicorn's server with a start that can be cancelled, and an orderly shutdown.

    The first signal starts a shutdown. The second signal ends the wait for clients. The third signal ends the process,
    as in any program. A worker counts all signals to its supervisor, but only the first signal to itself.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        services: ServerState,
        *,
        at_end: Sequence[Callable[[], None]],
        link: WorkerLink | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        super().__init__(config)
        self._services = services
        self._at_end = at_end
        self._link = link
        self._certificate = certificate
        self._watching: asyncio.Task[None] | None = None
        self._controls = 0
        self._starting: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and print the address as the first line of output. Errors of the storage end the program.

        A worker reports to its supervisor instead of printing.
        """
        if self._link is not None:
            asyncio.get_running_loop().add_reader(self._link.control_fd, self._controlled, self._link.control_fd)
        self._starting = asyncio.create_task(self._services.open())
        with suppress(asyncio.CancelledError):
            await self._starting
        if self.should_exit:
            await self._services.close()
            return
        await super().startup(sockets)
        # The objects of modules live as long as the process. If each full collection examined them, small answers would
        # take a tenth more processor time.
        gc.collect()
        gc.freeze()
        if self._certificate is not None:
            self._watching = asyncio.create_task(
                keep_running("the monitor of the certificate", self._certificate.watch)
            )
        closed = self._services.authenticator.closed
        token, self._services.initial_admin_token = self._services.initial_admin_token, None
        file = self._services.settings.admin_token_file
        if self.started and token is not None and file is not None:
            _write_token(token.text, file)  # before the address is printed, because scripts wait for the address
        if self.started and self._link is not None:
            self._link.report_started(closed=closed)
        elif self.started and sockets:
            _tell(address_of(sockets[0], self._certificate))
        if self.started and token is not None and file is None:
            _tell(f"Admin token (shown only once): {token.text}")
        if self.started and self._link is None and sockets:
            tell_places(self._services.settings, address_of(sockets[0], self._certificate), closed=closed)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Report not ready for a while, then accept no connections, let responses end, and abort slow responses."""
        settings = self._services.settings
        self._services.draining = True
        if self._watching is not None:
            self._watching.cancel()
        await self._wait(settings.drain_notice_seconds, until=lambda: False)
        for server in (*self.servers, *(sockets or ())):
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self._wait(settings.drain_seconds, until=self._is_quiet)
        if not self._is_quiet():
            await self._cut()
        await self.lifespan.shutdown()

    async def _cut(self) -> None:
        """Abort all connections. Requests end as if their clients had disconnected, and received bytes are kept."""
        _log.warning("requests cut off at the end of PROTOSLICE_DRAIN_SECONDS: %d", len(self.server_state.tasks))
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        self.force_exit = False
        await self._wait(CUT_SECONDS, until=self._is_quiet)
        for task in self.server_state.tasks:
            task.cancel()

    def _is_quiet(self) -> bool:
        return not self.server_state.connections and not self.server_state.tasks

    async def _wait(self, seconds: float, *, until: Callable[[], bool]) -> None:
        """Wait until a condition holds. Stop after a limited time or a second signal."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not until() and not self.force_exit and loop.time() < deadline:
            await asyncio.sleep(TICK_SECONDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Record a signal to this process."""
        if self._link is None or not self.should_exit:
            self._end(sig, frame)

    def _controlled(self, control: int) -> None:
        """Record a signal to the supervisor, or the supervisor's death."""
        told = os.read(control, 1)
        self._controls += len(told)
        if not told:
            asyncio.get_running_loop().remove_reader(control)
        # The first signal may have reached this process too, if it was sent to the process group.
        if not self.should_exit or self._controls > 1:
            self._end(signal.SIGTERM, None)

    def _end(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self.force_exit = True
            for number in HANDLED_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            return
        super().handle_exit(sig, frame)
        if self._starting is not None:
            self._starting.get_loop().call_soon_threadsafe(self._starting.cancel)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End the process by the signal that started the shutdown, as supervisors expect.

        All cleanup runs before this end.
        """
        with super().capture_signals():
            try:
                yield
            finally:
                for call in self._at_end:
                    call()


def run(settings: Settings) -> None:
    """Serve with these settings until SIGTERM or SIGINT."""
    configure_logs(settings.log_format, settings.log_level)
    _open_many_files()
    certificate = certificate_of(settings)
    listener = listen(settings.host, settings.port)
    try:
        if settings.workers == 1:
            _serve(settings, listener, certificate, None)
        else:
            tell = partial(_tell_start, settings, address_of(listener, certificate))
            work = partial(_serve, settings, listener, certificate)
            # An open socket would accept connections that no worker serves any more.
            Supervisor(settings.workers, work, on_ready=tell, on_signal=listener.close).run()
    finally:
        listener.close()


def _serve(
    settings: Settings, listener: socket.socket, certificate: Certificate | None, link: WorkerLink | None
) -> None:
    """Serve at `listener` in this process. `link` is None unless the process is a worker."""
    keep_freed_memory()
    flush_logs = configure_logs(settings.log_format, settings.log_level)
    flush_spans = configure_tracing(settings.otel_endpoint)
    app = create_app(settings)
    if link is not None:
        app.services.workers = WorkerMetrics(link.folder, link.number, link.workers)
    config = uvicorn_config(app, settings)
    if certificate is not None:
        config.ssl_context_factory = lambda _, __: certificate.context
        app.services.metrics.certificate_expires = lambda: certificate.expires
    at_end = [flush_spans, flush_logs]
    Server(config, app.services, at_end=at_end, link=link, certificate=certificate).run([listener])


def _tell_start(settings: Settings, address: str, *, closed: bool) -> None:
    _tell(address)
    tell_places(settings, address, closed=closed)


def tell_places(settings: Settings, address: str, *, closed: bool) -> None:
    """Print the places of the web page and of the data, how to change these places, and who has access."""
    page = f"{address}/" if is_built() else f"not built, run `make web`; {address}/ lists the newest stores"
    try:
        data = local_path(settings.storage)
    except InvalidInput:
        data = None
    # A reader may close standard output after the address line. This needs no warning.
    with suppress(OSError):
        print(f"page: {page} (change with --host and --port, or PROTOSLICE_HOST and PROTOSLICE_PORT)")
        print(f"data: {data or settings.shown()['storage']} (change with --storage, or PROTOSLICE_STORAGE)")
        print(access_line(settings, "tokens" if closed else "open"), flush=True)


def _write_token(token: str, file: Path) -> None:
    """Write the first admin token to `file`, which only this user can read."""
    try:
        # An existing file or link may belong to another user, so nothing is written to it.
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as out:
            out.write(f"{token}\n")
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        # The token is neither printed nor logged, because the setting is there to prevent both.
        _log.error(
            "could not write the admin token to PROTOSLICE_ADMIN_TOKEN_FILE: %s: %s; create one with "
            "`protoslice token create admin --storage URI --scope admin --every-space`",
            file,
            os.strerror(error.errno or 0),
        )


def _tell(line: str) -> None:
    """Print a line. If that fails, log a warning and continue."""
    try:
        print(line, flush=True)
    except OSError as error:
        shown = line if line.startswith("http") else "the admin token"
        _log.warning("could not print %s to standard output: %s", shown, os.strerror(error.errno or 0))
        with open(os.devnull, "w") as nowhere:  # otherwise, Python writes again at exit and reports an error
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _open_many_files() -> None:
    """Raise the limit on open files. Open stores need a file descriptor for each of their objects."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address, family=family, backlog=BACKLOG)
    except socket.gaierror as error:
        raise InvalidInput(f"Cannot listen on {host!r}: no such address") from error
    except OSError as error:
        code = error.errno or errno.EIO
        raise OSError(code, f"Cannot listen on this address: {os.strerror(code)}", _join(host, port)) from error


def address_of(listener: socket.socket, certificate: Certificate | None) -> str:
    """Return the URL of a listening socket."""
    host, port, *_ = listener.getsockname()
    return f"{'http' if certificate is None else 'https'}://{_join(host, port)}"


def _join(host: str, port: int) -> str:
    return f"{f'[{host}]' if ':' in host else host}:{port}"


def keep_freed_memory() -> bool:
    """Make glibc keep freed memory. Return False for another C library."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _FROM_KERNEL)) and bool(mallopt(_M_TRIM_THRESHOLD, _KEPT))


class Certificate:
    """The TLS context of a certificate and its key. New connections use the current content of the files."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._seen = self._marks()
        self.context = self._loaded()
        self.expires = self._end()
        """The end of the certificate that clients get, in seconds since the epoch."""

    async def watch(self) -> None:
        """Check the files repeatedly until cancelled. An unusable pair of certificate and key changes nothing."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            marks = await asyncio.to_thread(self._marks)
            if marks == self._seen:
                continue
            self._seen = marks
            try:
                # Another context loads the pair first. A context with only one file of a new pair would refuse all
                # clients.
                await asyncio.to_thread(self._loaded)
                self._load(self.context)
                self.expires = await asyncio.to_thread(self._end)
            except InvalidInput as error:
                _log.warning("could not reload the certificate, keeping the old one: %s", error.message)
            else:
                _log.info("certificate reloaded")

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            # Without the callback, OpenSSL would prompt for a key's passphrase at the terminal.
            context.load_cert_chain(*self._files, password=_no_passphrase)
        except (OSError, ValueError) as error:
            reason = None if isinstance(error, ssl.SSLError) or not isinstance(error, OSError) else error.strerror
            why = reason or "these are not a PEM certificate and its key, or the key has a passphrase"
            raise InvalidInput(f"PROTOSLICE_TLS_CERT and PROTOSLICE_TLS_KEY: {why}") from None

    def _end(self) -> float:
        from cryptography.x509 import load_pem_x509_certificate  # slow (20 ms), and few services have a certificate

        try:
            return load_pem_x509_certificate(self._files[0].read_bytes()).not_valid_after_utc.timestamp()
        except (OSError, ValueError) as error:
            raise InvalidInput(f"PROTOSLICE_TLS_CERT: the end of the certificate cannot be read: {error}") from None

    def _marks(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_mark, self._files))


def certificate_of(settings: Settings) -> Certificate | None:
    """Return the configured certificate; None if there is none. Raise `InvalidInput` if it cannot be used."""
    certificate, key = settings.tls_cert, settings.tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise InvalidInput("Set both PROTOSLICE_TLS_CERT and PROTOSLICE_TLS_KEY, or neither")
    return Certificate(certificate, key)


def _mark(path: Path) -> tuple[int, int, int] | None:
    """Return a mark that changes with a file's content. Return None if the file is missing."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase: use a key without one")
