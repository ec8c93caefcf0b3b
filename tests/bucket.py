"""HTTP contract and storage conformance suite on an S3 server: Versity's gateway or MinIO.

Run by `make bucket` with the program of each; further arguments go to pytest.
"""

from __future__ import annotations

import json
import os
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


@contextmanager
def gateway(program: str) -> Iterator[str]:
    """Endpoint of a running server with an empty bucket.

    The temporary directory that it serves needs extended attributes.
    """
    with TemporaryDirectory() as folder:
        Path(folder, BUCKET).mkdir()
        address = f"127.0.0.1:{_free_port()}"
        # Attributes in a sidecar folder would do without extended attributes, but lose updates of compare-and-set.
        command = [program, "--port", address, "--quiet", "--keep-alive", "posix", folder]
        variables = ("ROOT_ACCESS_KEY", "ROOT_SECRET_KEY")
        if Path(program).name.startswith("minio"):
            command = [program, "server", "--quiet", "--address", address, folder]
            variables = ("MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD")
        environment = {"PATH": os.environ["PATH"], "HOME": folder} | dict(zip(variables, (KEY_ID, SECRET), strict=True))
        running = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            _await(address, running)
            yield f"http://{address}"
        finally:
            running.terminate()
            running.wait(START_SECONDS)


def main(program: str, arguments: list[str]) -> int:
    """Run both suites; the first exit status of pytest that is not 0, or 0."""
    with gateway(program) as endpoint:
        options = {"endpoint": endpoint, "region": "us-east-1", "access_key_id": KEY_ID, "secret_access_key": SECRET}
        environment = os.environ | {
            "PROTOSLICE_TEST_S3": f"s3://{BUCKET}/tests",
            "PROTOSLICE_TEST_S3_OPTIONS": json.dumps(options),
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
