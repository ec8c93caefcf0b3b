"""Ends of transfers: the error is right, no bytes are sent that the service does not take, and no thread remains."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.certificates import certificate
from tests.support.serve import LiveServer, service_process

from protoslice.client import AsyncClient, Client
from protoslice.client.download import remote
from protoslice.errors import (
    LimitExceeded,
    ProtosliceError,
    StorageDenied,
    StorageFull,
    StorageUnavailable,
)

SIZE = 48 << 20
"""The size of a push with one request; it is more than the buffers of two sockets hold."""
LARGE = 96 << 20
"""The size of a push by resumable uploads."""
Behaviour = Callable[[socket.socket], None]
Answering = tuple[bytes, type[ProtosliceError], int]

TOO_LARGE = (b"HTTP/1.1 413 Content Too Large\r\n", LimitExceeded, 5)
UNAUTHORIZED = (b"HTTP/1.1 401 Unauthorized\r\n", StorageDenied, 6)
FULL = (b"HTTP/1.1 507 Insufficient Storage\r\n", StorageFull, 6)
REFUSALS = pytest.mark.parametrize("refusal", [TOO_LARGE, UNAUTHORIZED, FULL], ids=["413", "401", "507"])


class Stub:
    """A service that reads a head and `after` bytes of a body, and then calls `then`; `read` counts the bytes."""

    def __init__(self, then: Behaviour, after: int, tls: Any = None) -> None:
        self.read = 0
        self.reached = threading.Event()
        self._then, self._after, self._tls = then, after, tls
        self._held: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in (self._listener, *self._held):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._held.append(near)
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with suppress(OSError):
            if self._tls is not None:
                near = self._tls.wrap_socket(near, server_side=True)
                self._held.append(near)
            while not self._is_body_answered(near):
                pass

    def _is_body_answered(self, near: socket.socket) -> bool:
        """Serve one request; return whether it had a body, which is not read to its end."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += near.recv(1 << 16) or self._gone()
        if data.startswith((b"POST /v1/uploads ", b"DELETE ")):
            near.sendall(b"HTTP/1.1 201 Created\r\nlocation: /v1/uploads/a\r\ncontent-length: 0\r\n\r\n")
            return False
        length = re.search(rb"(?i)content-length: (\d+)", data)
        rest = len(data.partition(b"\r\n\r\n")[2])
        while length is not None and rest < min(self._after, int(length[1])):
            rest += len(near.recv(1 << 16) or self._gone())
        self.read += rest
        self.reached.set()
        self._then(near)
        return length is not None or b"chunked" in data

    def _gone(self) -> bytes:
        raise OSError("the client has gone")


@contextmanager
def stub(then: Behaviour, after: int = 1 << 20, tls: Any = None) -> Iterator[Stub]:
    made = Stub(then, after, tls)
    try:
        yield made
    finally:
        made.close()


def answers_and_closes(line: bytes) -> Behaviour:
    """Answer and close the connection; unread bytes in flight make the kernel reset it."""

    def then(near: socket.socket) -> None:
        near.sendall(line + b"content-length: 0\r\nconnection: close\r\n\r\n")
        near.close()

    return then


def answers_and_stops(line: bytes) -> Behaviour:
    """Neither continue to read nor close the connection."""
    return lambda near: near.sendall(line + b"content-length: 0\r\n\r\n")


def closes(near: socket.socket) -> None:
    near.shutdown(socket.SHUT_RDWR)
    near.close()


def resets(near: socket.socket) -> None:
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    near.close()


def falls_silent(near: socket.socket) -> None:
    pass


def threads() -> list[str]:
    """Return the clients' threads that are alive."""
    ours = ("protoslice-hash", "protoslice-transfer", "protoslice-file", "protoslice-client")
    return [each.name for each in threading.enumerate() if each.name.startswith(ours)]


@pytest.fixture
def client_of() -> Iterator[Callable[[str], Client]]:
    """Return a client that soon gives up, but waits long for a silent service."""
    made: list[Client] = []

    def client(url: str) -> Client:
        made.append(Client(url, attempts=2, backoff_seconds=0.001, timeout_seconds=200))
        return made[-1]

    yield client
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "graph.pb"
    path.touch()
    os.truncate(path, SIZE)
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "graph.pb"
    path.touch()
    os.truncate(path, LARGE)
    return path


def push(*args: object, **environment: str) -> tuple[int, str]:
    """Return exit code and standard error of `protoslice push`; fail if the program does not end."""
    command = [sys.executable, "-m", "protoslice.cli", "push", *map(str, args)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env=os.environ | environment
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("form", ["file", "folder", "large"])
@pytest.mark.long
def test_the_program_ends_when_a_service_takes_no_more(model: Path, large: Path, form: str) -> None:
    what = {"file": model, "folder": model.parent, "large": large}[form]
    with service_process(
        settings={"PROTOSLICE_STORAGE": "memory://", "PROTOSLICE_MAX_UPLOAD_BYTES": "1048576"}
    ) as live:
        code, said = push(what, "--url", live.url)
    assert (code, said.count("\n")) == (5, 1), said
    assert "1048576 bytes" in said


@REFUSALS
@pytest.mark.parametrize("behaviour", [answers_and_closes, answers_and_stops])
def test_a_refusal_ends_the_sending(
    behaviour: Callable[[bytes], Behaviour], refusal: Answering, model: Path, client_of: Callable[[str], Client]
) -> None:
    line, kind, _ = refusal
    with stub(behaviour(line)) as service, pytest.raises(kind) as caught:
        client_of(service.url).push(model)
    assert caught.value.__traceback__ is not None, "whoever keeps the error keeps what its frames hold"
    assert threads() == []


@REFUSALS
@pytest.mark.parametrize("behaviour", [answers_and_closes, answers_and_stops])
def test_a_refusal_ends_the_sending_of_a_part(
    behaviour: Callable[[bytes], Behaviour], refusal: Answering, large: Path, client_of: Callable[[str], Client]
) -> None:
    line, kind, _ = refusal
    with stub(behaviour(line)) as service, pytest.raises((kind, StorageUnavailable)) as caught:
        client_of(service.url).push(large, resume=False)
    assert caught.value.__traceback__ is not None
    assert threads() == []


@REFUSALS
def test_the_program_ends_with_what_the_refusal_says(refusal: Answering, model: Path) -> None:
    line, _, code = refusal
    with stub(answers_and_stops(line)) as service:
        ended, said = push(model, "--url", service.url)
    assert (ended, said.count("\n")) == (code, 1), said
    assert "responded" in said or (code == 6 and "needs a token" in said)


def test_a_refused_body_is_not_sent_to_its_end(model: Path, client_of: Callable[[str], Client]) -> None:
    """The service accepts all bytes that arrive, as proxies do."""

    def answers_and_drains(near: socket.socket) -> None:
        near.sendall(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n")
        with suppress(OSError):
            while data := near.recv(1 << 16):
                service.read += len(data)
        drained.set()

    drained = threading.Event()
    with stub(answers_and_drains) as service:
        with pytest.raises(LimitExceeded):
            client_of(service.url).push(iter([bytes(1 << 20)] * 48))
        assert drained.wait(60), "the connection must serve nothing else: the service would take that for the body"
        assert service.read < SIZE // 2


def test_an_interim_answer_ends_nothing(client_of: Callable[[str], Client]) -> None:
    def goes_on(near: socket.socket) -> None:
        near.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        tail = b""
        while not tail.endswith(b"0\r\n\r\n"):
            tail = tail[-8:] + near.recv(1 << 16)
        near.sendall(b"HTTP/1.1 507 Insufficient Storage\r\ncontent-length: 0\r\n\r\n")

    with stub(goes_on) as service, pytest.raises(StorageFull):
        client_of(service.url).push(iter([bytes(1 << 20)] * 48))


@pytest.mark.parametrize("behaviour", [closes, resets])
def test_a_connection_that_ends_early(
    behaviour: Behaviour, model: Path, large: Path, client_of: Callable[[str], Client]
) -> None:
    for what in (model, large, bytes(SIZE), iter([bytes(SIZE)])):
        with stub(behaviour) as service, pytest.raises(StorageUnavailable, match="closed the connection") as caught:
            client_of(service.url).push(what)
        assert caught.value.__traceback__ is not None
        assert threads() == []


@pytest.mark.parametrize("behaviour", [closes, resets])
def test_the_program_ends_when_the_connection_does(behaviour: Behaviour, model: Path) -> None:
    with stub(behaviour) as service:
        code, said = push(model, "--url", service.url)
    assert (code, said.count("\n")) == (6, 1), said
    assert "closed the connection" in said


def test_a_refusal_over_tls(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls, trusted = certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    with (
        stub(answers_and_closes(TOO_LARGE[0]), tls=tls) as service,
        Client(f"https://localhost:{service.port}", attempts=2, backoff_seconds=0.001) as client,
        pytest.raises((LimitExceeded, StorageUnavailable)),
    ):
        client.push(model)
    assert threads() == []


@pytest.mark.parametrize("what", ["file", "large"])
def test_an_interrupt_ends_the_program(what: str, model: Path, large: Path) -> None:
    path = model if what == "file" else large
    with stub(falls_silent) as service:
        command = [sys.executable, "-m", "protoslice.cli", "push", str(path), "--url", service.url]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
            assert service.reached.wait(60)
            running.send_signal(signal.SIGINT)
            try:
                _, said = running.communicate(timeout=60)
            finally:
                running.kill()
    assert (running.returncode, said.count("\n")) == (130, 1), said


@pytest.mark.parametrize(
    "error",
    [ValueError("mine"), OSError(errno.ECONNRESET, "mine"), BrokenPipeError("mine"), httpx.ReadError("mine")],
    ids=["value", "reset", "pipe", "httpx"],
)
def test_an_error_of_the_callers_iterator_is_the_callers(
    error: Exception, service: LiveServer, client_of: Callable[[str], Client]
) -> None:
    def pieces() -> Iterator[bytes]:
        yield bytes(1 << 20)
        raise error

    with pytest.raises(type(error)) as caught:
        client_of(service.url).push(pieces())
    assert caught.value is error
    assert threads() == []


@pytest.mark.parametrize("size", [SIZE, LARGE])
def test_an_error_of_the_callers_progress_is_the_callers(
    size: int, service: LiveServer, model: Path, large: Path, client_of: Callable[[str], Client]
) -> None:
    def refuse(done: int, total: int | None) -> None:
        raise OSError(errno.EPIPE, "nobody looks")

    with pytest.raises(OSError, match="nobody looks") as caught:
        client_of(service.url).push(model if size == SIZE else large, progress=refuse)
    assert caught.value.__traceback__ is not None
    assert threads() == []


def test_a_pull_that_fails_leaves_no_thread(
    client: Client, versions: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts are fetched in parallel, and some parts have not begun when the pull fails."""

    def refuse(done: int, total: int | None) -> None:
        if done > 1 << 20:
            raise ValueError("no more")

    store = client.push(versions.old, filename="a.pb", type="tensorflow.GraphDef")
    for name, value in {
        "PART": 200_000,
        "SINGLE_STREAM_STEPS": (200_000, 200_000),
        "SINGLE_STREAM_RATE": 1 << 60,
    }.items():
        monkeypatch.setattr(remote, name, value)
    with pytest.raises(ValueError, match="no more") as caught:
        client.download(store.store.id, tmp_path / "a", progress=refuse)
    assert caught.value.__traceback__ is not None
    assert threads() == []


async def test_a_push_whose_task_is_cancelled_waits_for_nobody(service: LiveServer) -> None:
    """The pieces of the body never arrive."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b"\x0a\x01a"
        waiting.set()
        await asyncio.Event().wait()

    async def main() -> None:
        async with AsyncClient(service.url) as client:
            task = asyncio.create_task(client.push(pieces(), type="tensorflow.GraphDef"))
            await waiting.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    waiting = asyncio.Event()
    await asyncio.wait_for(main(), 60)
    assert threads() == []


async def test_a_cancelled_call_to_a_silent_service_is_not_waited_for() -> None:
    async def main(url: str) -> None:
        async with AsyncClient(url, timeout_seconds=250) as client:
            task = asyncio.create_task(client.store("a"))
            await asyncio.to_thread(service.reached.wait, 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with stub(falls_silent) as service:
        await asyncio.wait_for(main(service.url), 60)
