"""TLS of the service: modern alone, its files taken anew when they change, and never half of a pair."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509
from tests.support.certificates import certificate

from protoslice.client import Client
from protoslice.errors import InvalidInput
from protoslice.server.settings import Settings
from protoslice.server.transport import run as watching
from protoslice.server.transport.run import Certificate, certificate_of


def pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Files of a certificate for `name`, and of its key."""
    folder.mkdir(exist_ok=True)
    certificate(folder, name)
    return folder / "certificate.pem", folder / "key.pem"


def served(context: ssl.SSLContext) -> bytes:
    """The certificate that a new connection gets."""
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    server = context.wrap_bio(ours, theirs, server_side=True)
    client = anybody.wrap_bio(theirs, ours)
    for _ in range(4):
        for side in (client, server):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return client.getpeercert(True) or b""


@pytest.mark.parametrize("broken", [False, True])
async def test_files_are_taken_anew_unless_they_are_no_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    files, other = pair(tmp_path / "a", "localhost"), pair(tmp_path / "b", "localhost")
    made = Certificate(*files)
    made.expires = 0.0
    before = served(made.context)
    assert before
    assert made.context.minimum_version is ssl.TLSVersion.TLSv1_2
    shutil.copy(other[0], files[0])
    if not broken:
        shutil.copy(other[1], files[1])
    looks: list[float] = []

    async def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) > 2:
            raise asyncio.CancelledError

    # For this module alone: `asyncio.sleep` itself belongs to every server that runs in this process.
    monkeypatch.setattr(watching, "asyncio", SimpleNamespace(sleep=sleep, to_thread=asyncio.to_thread))
    with pytest.raises(asyncio.CancelledError):
        await made.watch()
    assert (served(made.context) == before) is broken
    assert (made.expires == 0) is broken, "the end is that of the certificate that clients get"


def use(change: Callable[[Path, Path], tuple[Path | None, Path | None]], folder: Path) -> Settings:
    """Settings with a pair, changed."""
    given = change(*pair(folder, "localhost"))
    return Settings(tls_cert=given[0], tls_key=given[1])


def test_a_pair_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    for change, said in (
        (lambda first, second: (first, None), "or neither"),
        (lambda first, second: (None, second), "or neither"),
        (lambda first, second: (second, first), "not a PEM certificate and its key"),
        (lambda first, second: (first, tmp_path / "none"), "No such file"),
    ):
        with pytest.raises(InvalidInput, match=said):
            certificate_of(use(change, tmp_path / "x"))
    assert certificate_of(Settings()) is None


def test_the_service_speaks_tls_to_curl_and_to_our_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, key = pair(tmp_path / "a", "localhost")
    command = [sys.executable, "-m", "protoslice.cli", "serve", "--port", "0", "--storage", "memory://"]
    command += ["--tls-cert", str(first), "--tls-key", str(key)]
    room = os.environ | {"PROTOSLICE_SPACE_WATERMARK_BYTES": "0"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=room, text=True) as process:
        try:
            assert process.stdout is not None
            scheme, _, port = process.stdout.readline().strip().rpartition(":")
            assert scheme == "https://127.0.0.1"
            url = f"https://localhost:{port}"
            curl = ["curl", "-s", "--cacert", str(first), "--tls-max", "1.2", f"{url}/livez"]
            assert b"ok" in subprocess.run(curl, capture_output=True, check=True).stdout
            monkeypatch.setenv("SSL_CERT_FILE", str(first))
            with Client(url) as client:
                assert list(client.stores()) == []
            shown = subprocess.run([*curl[:-1], f"{url}/metrics"], capture_output=True, check=True, text=True).stdout
            (end,) = re.findall(r"^protoslice_certificate_expiry_timestamp_seconds (\S+)$", shown, re.MULTILINE)
            end_of = x509.load_pem_x509_certificate(first.read_bytes()).not_valid_after_utc.timestamp()
            assert float(end) == pytest.approx(end_of, abs=1)
        finally:
            process.terminate()
