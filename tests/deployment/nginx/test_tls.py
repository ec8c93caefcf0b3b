"""nginx with TLS: http is redirected, https streams to the service, and a browser remembers it."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.deployment.nginx.front import FOLDER, Nginx, free_port
from tests.deployment.nginx.upstream import DATA, FILE, Running

SECURE = "listen 8443"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a certificate of localhost, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    return folder


@pytest.fixture
def ports(certificate: Path, tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Return the ports of http and https of nginx in front of a service."""
    secure = free_port()

    def edit(text: str) -> str:
        for old, new in (
            ("server protoslice:8000;", "server 127.0.0.1:8000;"),
            (SECURE, f"listen 127.0.0.1:{secure}"),
            ("/run/secrets", str(certificate)),
            # `http2 on` came with nginx 1.25; Debian 12 has 1.22.
            ("        http2 on;\n", ""),
        ):
            assert old in text
            text = text.replace(old, new)
        return text

    with Running() as upstream:
        running = Nginx("nginx-tls.conf", tmp_path, upstream.port, edit)
        running.start()
        try:
            yield running.port, secure
        finally:
            running.end()


def test_http_is_redirected_with_method_and_query(ports: tuple[int, int]) -> None:
    answer = httpx.post(f"http://localhost:{ports[0]}/v1/stores?filename=a%20b.onnx", content=b"x")
    assert answer.status_code == 308
    assert answer.headers["location"] == "https://localhost/v1/stores?filename=a%20b.onnx"


def test_https_serves_ranges_and_asks_browsers_to_stay(ports: tuple[int, int], certificate: Path) -> None:
    trusted = ssl.create_default_context(cafile=str(certificate / "tls.crt"))
    answer = httpx.get(f"https://localhost:{ports[1]}{FILE}", headers={"range": "bytes=5-9"}, verify=trusted)
    assert (answer.status_code, answer.content) == (206, DATA[5:10])
    assert "max-age=63072000" in answer.headers["strict-transport-security"]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_of_tls_are_refused(ports: tuple[int, int], certificate: Path, version: ssl.TLSVersion) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    old.load_verify_locations(certificate / "tls.crt")
    with pytest.warns(DeprecationWarning, match="TLS"):
        old.minimum_version = old.maximum_version = version
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"https://localhost:{ports[1]}{FILE}", verify=old)


def test_the_file_differs_from_that_without_tls_by_servers_only() -> None:
    def code(name: str) -> list[str]:
        lines = map(str.strip, (FOLDER / name).read_text().splitlines())
        return [line for line in lines if line and not line.startswith("#")]

    rest = iter(code("nginx-tls.conf"))
    plain = [line.replace("127.0.0.1:8000", "protoslice:8000") for line in code("nginx.conf")]
    assert [line for line in plain if line not in rest] == []
