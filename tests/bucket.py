"""HTTP contract and storage conformance suite on an S3 server: Versity's gateway or MinIO.

Run by `make bucket` with the program of each; further arguments go to pytest.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.backends import VARIABLE

KEY_ID, SECRET = "an-id-of-nobody", "a-secret-of-nobody"
BUCKET = "contract"
START_SECONDS = 20
CONFORMANCE = ("tests/storage/cloud/test_real.py",)
CONTRACT = ("-m", "contract", "tests/server")


class Gateway:
    """An S3 server over a folder, which needs extended attributes; it may be killed and started again."""

    def __init__(self, program: str, folder: Path) -> None:
        (folder / BUCKET).mkdir()
        address = f"127.0.0.1:{_free_port()}"
        # Attributes in a sidecar folder would do without extended attributes, but lose updates of compare-and-set.
        self._command = [program, "--port", address, "--quiet", "--keep-alive", "posix", str(folder)]
        variables = ("ROOT_ACCESS_KEY", "ROOT_SECRET_KEY")
        if Path(program).name.startswith("minio"):
            self._command = [program, "server", "--quiet", "--address", address, str(folder)]
            variables = ("MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD")
        secrets = dict(zip(variables, (KEY_ID, SECRET), strict=True))
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(folder)} | secrets
        self._address = address
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """URL of the server."""
        return f"http://{self._address}"

    def start(self) -> None:
        """Start it, and return when it listens."""
        self._running = subprocess.Popen(self._command, env=self._environment, stdout=subprocess.DEVNULL)
        _await(self._address, self._running)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it by a signal."""
        assert self._running is not None
        self._running.send_signal(how)
        self._running.wait(START_SECONDS)


def options_of(endpoint: str) -> dict[str, str]:
    """Options of `s3://` for a gateway."""
    return {"endpoint": endpoint, "region": "us-east-1", "access_key_id": KEY_ID, "secret_access_key": SECRET}


@contextmanager
def gateway(program: str) -> Iterator[str]:
    """Endpoint of a running server with an empty bucket."""
    with TemporaryDirectory() as folder:
        server = Gateway(program, Path(folder))
        server.start()
        try:
            yield server.endpoint
        finally:
            server.end()


def main(program: str, arguments: list[str]) -> int:
    """Run both suites; the first exit status of pytest that is not 0, or 0."""
    with gateway(program) as endpoint:
        environment = os.environ | {
            "PROTOSLICE_TEST_S3": f"s3://{BUCKET}/tests",
            "PROTOSLICE_TEST_S3_OPTIONS": json.dumps(options_of(endpoint)),
            VARIABLE: "s3",
        }
        command = [sys.executable, "-m", "pytest", *arguments]
        suites = [subprocess.run([*command, *suite], env=environment) for suite in (CONFORMANCE, CONTRACT)]
    return max(suite.returncode for suite in suites)


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
