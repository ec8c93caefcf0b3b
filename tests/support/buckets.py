"""Bucket servers for tests: Versity's gateway, MinIO and Azurite."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

KEY_ID, SECRET = "an-id-of-nobody", "a-secret-of-nobody"
_ACCOUNT_KEY = base64.b64encode(SECRET.encode()).decode()
BUCKET = "contract"
START_SECONDS = 60


class _Server:
    """A program that serves buckets at a separate port; a test may kill it and start it again."""

    scheme: str

    def __init__(self, address: str, command: list[str], environment: dict[str, str]) -> None:
        self._address, self._command = address, command
        self._environment = {"PATH": os.environ["PATH"], **environment}
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """The URL of the server."""
        return f"http://{self._address}"

    @property
    def options(self) -> dict[str, str]:
        """The options with which the scheme reaches the server."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the server, and return when it listens."""
        self._running = subprocess.Popen(self._command, env=self._environment, stdout=subprocess.DEVNULL)
        try:
            _await(self._address, self._running)
        except BaseException:
            self.end(signal.SIGKILL)
            raise

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the server by a signal."""
        assert self._running is not None
        self._running.send_signal(how)
        self._running.wait(START_SECONDS)


class Gateway(_Server):
    """An S3 server with one bucket, stored in a folder that needs extended attributes."""

    scheme = "s3"

    def __init__(self, program: str, folder: Path) -> None:
        (folder / BUCKET).mkdir()
        address = f"127.0.0.1:{_free_port()}"
        # A sidecar folder would work without extended attributes, but it loses updates of compare-and-set.
        command = [program, "--port", address, "--quiet", "--keep-alive", "posix", str(folder)]
        variables = ("ROOT_ACCESS_KEY", "ROOT_SECRET_KEY")
        if Path(program).name.startswith("minio"):
            command = [program, "server", "--quiet", "--address", address, str(folder)]
            variables = ("MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD")
        secrets = dict(zip(variables, (KEY_ID, SECRET), strict=True))
        super().__init__(address, command, {"HOME": str(folder)} | secrets)

    @property
    def options(self) -> dict[str, str]:
        return options_of(self.endpoint)


class Azurite(_Server):
    """Azure's emulator over a folder, with one account; the container is created after each start."""

    scheme = "az"

    def __init__(self, program: str, folder: Path) -> None:
        port = _free_port()
        command = [program, "--silent", "--disableTelemetry", "--blobPort", str(port), "--location", str(folder)]
        # obstore may use a newer version of the interface than the emulator knows.
        command.append("--skipApiVersionCheck")
        accounts = {"HOME": str(folder), "AZURITE_ACCOUNTS": f"{KEY_ID}:{_ACCOUNT_KEY}"}
        super().__init__(f"127.0.0.1:{port}", command, accounts)

    @property
    def options(self) -> dict[str, str]:
        return {"endpoint": f"{self.endpoint}/{KEY_ID}", "account_name": KEY_ID, "account_key": _ACCOUNT_KEY}

    def start(self) -> None:
        super().start()
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2023-11-03"}
        told = [*(f"{name}:{value}" for name, value in headers.items()), f"/{KEY_ID}/{KEY_ID}/{BUCKET}"]
        signed = "\n".join(["PUT", *[""] * 11, *told, "restype:container"]).encode()
        digest = hmac.digest(base64.b64decode(_ACCOUNT_KEY), signed, hashlib.sha256)
        headers["authorization"] = f"SharedKey {KEY_ID}:{base64.b64encode(digest).decode()}"
        url = f"{self.endpoint}/{KEY_ID}/{BUCKET}?restype=container"
        answer = httpx.put(url, headers=headers)
        if answer.status_code not in {201, 409}:
            raise SystemExit(f"Azurite made no container: {answer.status_code} {answer.text}")


def options_of(endpoint: str) -> dict[str, str]:
    """Return the options with which `s3://` reaches a gateway."""
    return {"endpoint": endpoint, "region": "us-east-1", "access_key_id": KEY_ID, "secret_access_key": SECRET}


@contextmanager
def running(program: str) -> Iterator[Gateway | Azurite]:
    """Run a server with an empty bucket."""
    kind = Azurite if Path(program).name.startswith("azurite") else Gateway
    with TemporaryDirectory() as folder:
        server = kind(program, Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.end()


@contextmanager
def gateway(program: str) -> Iterator[str]:
    """Run an S3 server with an empty bucket, and yield its endpoint."""
    with running(program) as server:
        yield server.endpoint


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def _await(address: str, running: subprocess.Popen[bytes]) -> None:
    host, _, port = address.partition(":")
    deadline = time.monotonic() + START_SECONDS
    while True:
        if running.poll() is not None:
            raise SystemExit(f"the gateway ended with status {running.returncode}")
        try:
            socket.create_connection((host, int(port)), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
