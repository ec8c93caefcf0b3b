"""The measured service as a process, and clients that send arbitrary bytes to it over sockets."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
from tests.support.serve import LiveServer
from tests.support.stores import onnx

T = TypeVar("T")

_ROOT: Final = Path(__file__).resolve().parents[2]
_PATIENCE_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a request to the service."""

    held: int
    """The steps of the callback that held the event loop longest."""
    turn: int
    """The steps of the loop's longest turn."""
    loop: int
    """The steps of all callbacks of the loop together."""
    work: int
    """The steps of all worker threads together."""
    where: list[str]
    """The functions with the most steps, and their thousands of steps."""
    memory: int
    """The bytes by which resident memory rose, at its peak."""
    written: int
    """The bytes that were written to the storage."""
    calls: int
    """The requests to the storage."""


class Wire:
    """Connections to the service, and the bytes that were sent over them."""

    def __init__(self, server: LiveServer) -> None:
        self._server = server
        self.sent = 0
        self.got = 0

    def exchange(self, request: bytes) -> tuple[int, bytes]:
        """Send a request that closes its connection; return the answer's status and beginning."""
        with self.open() as connection:
            self.send(connection, request)
            return self.read(connection)

    def open(self, source: str = "127.0.0.1") -> socket.socket:
        """Open a connection from an address of the loopback."""
        whither = (self._server.host, self._server.port)
        return socket.create_connection(whither, _PATIENCE_SECONDS, source_address=(source, 0))

    def send(self, connection: socket.socket, data: bytes) -> None:
        """Send all data, unless the service closes the connection."""
        try:
            connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return
        self.sent += len(data)

    def read(self, connection: socket.socket, most: int = 1 << 40) -> tuple[int, bytes]:
        """Read until the service closes the connection; return the status and the first kilobytes."""
        begin, got = b"", 0
        while got < most:
            try:
                piece = connection.recv(1 << 18)
            except ConnectionResetError:
                break
            if not piece:
                break
            got += len(piece)
            begin += piece[: (4 << 10) - len(begin)]
        self.got += got
        return int(begin.split(b" ", 2)[1]) if begin else 0, begin


@dataclass(slots=True)
class Measured:
    """A running service with a probe inside."""

    running: subprocess.Popen[str]
    server: LiveServer
    http: httpx.Client
    _made: dict[Any, Any] = field(default_factory=dict)

    def given(self, make: Callable[[httpx.Client], T]) -> T:
        """Return the result of `make`, which is called once for this service; its cost is not measured."""
        if make not in self._made:
            self._made[make] = make(self.http)
        found: T = self._made[make]
        return found

    def cost(self, ask: Callable[[Wire], T]) -> tuple[T, Wire, Cost]:
        """Return the result of `ask`, the bytes over its connections, and its cost."""
        wire = Wire(self.server)
        self._tell("begin")
        try:
            answer = ask(wire)
        finally:
            cost = Cost(**self._tell("end"))
        return answer, wire, cost

    def _tell(self, word: str) -> dict[str, Any]:
        assert self.running.stdin is not None
        assert self.running.stdout is not None
        self.running.stdin.write(word + "\n")
        self.running.stdin.flush()
        line = self.running.stdout.readline()
        while line.startswith(("page: ", "data: ", "access: ")):  # the service prints these lines once it has started
            line = self.running.stdout.readline()
        said: dict[str, Any] = json.loads(line)
        return said


@contextmanager
def measured_service(
    storage: Path, *, near: bool = False, warm: bool = True, settings: Mapping[str, str] | None = None
) -> Iterator[Measured]:
    """Run the service over a folder. Unless the storage is `near`, it is read by calls alone, like a bucket.

    A `warm` service has served every kind of request once, so no cost contains imports and first-time setup.
    """
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(_ROOT),
        "PROTOSLICE_STORAGE": storage.as_uri(),
        "PROTOSLICE_LOG_LEVEL": "error",
        "PROTOSLICE_SPACE_WATERMARK_BYTES": "0",
        **(settings or {}),
    }
    command = [sys.executable, "-m", "tests.budgets.service", "near" if near else "far"]
    running = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    assert running.stdout is not None
    try:
        address = running.stdout.readline().strip()
        host, _, port = address.removeprefix("http://").rpartition(":")
        with httpx.Client(base_url=address, timeout=_PATIENCE_SECONDS) as http:
            if warm:
                _warm(http)
            yield Measured(running, LiveServer(host, int(port)), http)
    finally:
        running.kill()
        running.communicate()


def _warm(http: httpx.Client) -> None:
    for path, methods in http.get("/openapi.json").json()["paths"].items():
        for method in methods:
            http.request(method, re.sub(r"\{\w+\}", "x", path))
    store = http.post("/v1/stores", params={"filename": "model.onnx"}, content=onnx(1)).json()["id"]
    http.get(f"/v1/stores/{store}/merge", headers={"accept": "application/json"})
    http.delete(f"/v1/stores/{store}")
