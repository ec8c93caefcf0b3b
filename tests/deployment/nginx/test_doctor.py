"""Tests of `protoslice doctor` behind a real nginx: it names each fault, and nothing else.

Like `test_nginx.py`, this is not part of `make test`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.deployment.nginx.front import FILES, nginx
from tests.support.serve import service_process

PROGRAM = [sys.executable, "-m", "protoslice.cli"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Run a service, and yield its port."""
    settings = {
        "PROTOSLICE_STORAGE": tmp_path_factory.mktemp("stores").as_uri(), "PROTOSLICE_LOG_LEVEL": "error",
        "PROTOSLICE_SPACE_WATERMARK_BYTES": "1", "PROTOSLICE_AUTH": "open", "PROTOSLICE_TRUSTED_PROXIES": "127.0.0.1",
    }  # fmt: skip
    with service_process(settings=settings) as running:
        yield running.server.port


def call(*args: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*PROGRAM, *args], env=os.environ | environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def bad(url: str) -> dict[str, str]:
    """Return the doctor's advice for each failed check, by check."""
    done = subprocess.run([*PROGRAM, "doctor", url, "--json"], capture_output=True, text=True, check=False, timeout=120)
    told = json.loads(done.stdout)
    assert done.returncode == (0 if told["well"] else 3)
    return {check["check"]: check["advice"] for check in told["checks"] if check["found"] is not None}


def without(*directives: str) -> Callable[[str], str]:
    """Return a function that removes lines from the file."""

    def edit(text: str) -> str:
        for directive in directives:
            assert directive in text
            text = text.replace(directive, "")
        return text

    return edit


def location(*lines: str) -> Callable[[str], str]:
    """Return a function that adds lines to the location that forwards requests."""
    return replaced("proxy_pass http://protoslice;", " ".join([*lines, "proxy_pass http://protoslice;"]))


def replaced(old: str, new: str) -> Callable[[str], str]:
    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return edit


def cached(*lines: str) -> Callable[[str], str]:
    """Put a cache in front of the service."""

    def edit(text: str) -> str:
        path = "proxy_cache_path /tmp/nginx-kept keys_zone=kept:1m; server {\n        listen"
        return location("proxy_buffering on;", "proxy_cache kept;", *lines)(
            replaced("server {\n        listen", path)(text)
        )

    return edit


def below(path: str, *lines: str) -> Callable[[str], str]:
    """Put the service below a path."""
    return replaced("location / {\n            proxy_pass http://protoslice;", f"location {path} {{ {' '.join(lines)}")


NAMES = "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"
SCHEME = "proxy_set_header X-Forwarded-Proto $scheme;"
# A single proxy_set_header in a location cancels those of the server.
HOST = f'proxy_set_header Host $http_host; proxy_set_header Connection ""; {NAMES}'
MAP = "map $request_uri $rest { ~^/models(?<path>/.*)$ $path; } server {\n        listen"
PREFIXED = below("/models/", "proxy_pass http://protoslice$rest;", "proxy_redirect / /models/;")


@pytest.mark.parametrize("name", FILES)
def test_our_files_are_well(service: int, tmp_path: Path, name: str) -> None:
    with nginx(name, tmp_path, service) as port:
        assert bad(f"http://127.0.0.1:{port}") == {}


@pytest.mark.parametrize(
    "edit",
    [
        location("proxy_buffering on;", "proxy_max_temp_file_size 1m;"),
        location("proxy_read_timeout 5s;"),
        location("gzip on;", "gzip_types application/json;"),
        lambda text: PREFIXED(replaced("server {\n        listen", MAP)(text)),
    ],
    ids=["little of answers on its disk", "little patience", "compressed lists", "a path of its own"],
)
def test_what_spoils_nothing_that_can_be_seen_is_well(
    service: int, tmp_path: Path, edit: Callable[[str], str], request: pytest.FixtureRequest
) -> None:
    path = "/models" if "path" in request.node.callspec.id else ""
    with nginx("nginx.conf", tmp_path, service, edit) as port:
        assert bad(f"http://127.0.0.1:{port}{path}") == {}


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (
            without("proxy_request_buffering off;"),
            {
                "uploads are streamed": "proxy_request_buffering off;",
                "chunked uploads are streamed": "proxy_request_buffering off;",
            },
        ),
        (
            without("proxy_http_version 1.1;", 'proxy_set_header Connection "";'),
            {"chunked uploads are streamed": "proxy_http_version 1.1;"},
        ),
        (without("client_max_body_size 0;"), {"large uploads are accepted": "client_max_body_size 0;"}),
        (
            replaced("gzip off;", "gzip on; gzip_types *; gzip_min_length 1;"),
            {"entity tags stay strong": "gzip off;", "binaries are not compressed": "gzip off;"},
        ),
        (
            location("gzip on;", "gzip_types application/protobuf application/octet-stream;"),
            {"entity tags stay strong": "gzip off;", "binaries are not compressed": "gzip off;"},
        ),
        (location("client_body_timeout 5s;"), {"uploads may pause": "client_body_timeout 60s;"}),
        (location("proxy_buffering on;"), {"responses to slow clients are not buffered": "proxy_buffering off;"}),
        (
            cached(),
            {
                "ranges are served by the service": "proxy_cache off;",
                "responses to slow clients are not buffered": "proxy_buffering off;",
            },
        ),
        (
            cached("proxy_ignore_headers Cache-Control Expires;", "proxy_cache_valid any 10m;"),
            {
                "ranges are served by the service": "proxy_cache off;",
                "responses to slow clients are not buffered": "proxy_buffering off;",
                "changes are visible at once": "proxy_ignore_headers",
            },
        ),
        (location("proxy_force_ranges on;"), {"ranges are served by the service": "proxy_force_ranges off;"}),
        (
            location("slice 1k;", "proxy_set_header Range $slice_range;", HOST),
            {"ranges are served by the service": "no slice;"},
        ),
        (
            location('proxy_set_header Range "";', HOST),
            {"ranges are exact": "pass on Range"},
        ),
        (location("proxy_hide_header ETag;"), {"entity tags stay strong": "proxy_hide_header ETag;"}),
        (location("proxy_hide_header Repr-Digest;"), {"digests are passed on": "proxy_hide_header Repr-Digest;"}),
        (
            below("/models/", "proxy_pass http://protoslice/;", "proxy_redirect / /models/;"),
            {"paths are passed on unchanged": "$request_uri"},
        ),
        (
            lambda text: replaced("proxy_redirect / /models/;", "")(
                PREFIXED(replaced("server {\n        listen", MAP)(text))
            ),
            {"uploads can be resumed": "proxy_redirect / /models/;"},
        ),
        (without(NAMES), {"clients are distinguished": NAMES}),
        (
            replaced("proxy_set_header Host $http_host;", "proxy_set_header Host localhost;"),
            {"links lead to this address": "proxy_set_header Host $http_host;"},
        ),
    ],
    ids=[
        "request buffering", "1.0", "body size", "gzip", "gzip of protobuf", "body timeout", "buffering", "cache",
        "cache of all", "force ranges",
        "slice", "no range", "no tag", "no digest", "models decoded", "models not told", "no client", "another host",
    ],
)  # fmt: skip
def test_each_thing_that_is_wrong_is_named(
    service: int,
    tmp_path: Path,
    edit: Callable[[str], str],
    expected: dict[str, str],
    request: pytest.FixtureRequest,
) -> None:
    path = "/models" if "models" in request.node.callspec.id else ""
    with nginx("nginx.conf", tmp_path, service, edit) as port:
        found = bad(f"http://127.0.0.1:{port}{path}")
    assert set(found) == set(expected)
    assert all(advice in found[check] for check, advice in expected.items())


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Return a self-signed certificate for the loopback, and its key."""
    path = tmp_path / "own.pem"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run([*command, "-keyout", tmp_path / "own.key", "-out", path], check=True, capture_output=True)
    return path


def test_tls_is_trusted_by_those_who_are_told_to(service: int, tmp_path: Path, certificate: Path) -> None:
    def edit(text: str) -> str:
        keys = f"ssl_certificate {certificate}; ssl_certificate_key {certificate.with_suffix('.key')};"
        return replaced("listen 8080 backlog=4096;", f"listen 8080 ssl; {keys}")(text)

    with nginx("nginx.conf", tmp_path, service, edit) as port:
        url = f"https://127.0.0.1:{port}"
        for verb in (["doctor", url], ["ls", "--url", url], ["info", f"{url}/v1/stores/any"]):
            told = call(*verb, code=6).stderr
            assert told.count("\n") == 1
            assert "self-signed certificate" in told
            assert "SSL_CERT_FILE" in told
        told = call("doctor", url, "--json", SSL_CERT_FILE=str(certificate)).stdout
        assert json.loads(told)["well"]
        for wrong, says in ((f"http://127.0.0.1:{port}", "400"), (f"https://127.0.0.1:{service}", "TLS")):
            assert says in call("ls", "--url", wrong, code=2 if says == "400" else 6).stderr


def test_a_scheme_that_does_not_arrive_is_found(service: int, tmp_path: Path, certificate: Path) -> None:
    def edit(text: str) -> str:
        keys = f"ssl_certificate {certificate}; ssl_certificate_key {certificate.with_suffix('.key')};"
        return without(SCHEME)(replaced("listen 8080 backlog=4096;", f"listen 8080 ssl; {keys}")(text))

    with nginx("nginx.conf", tmp_path, service, edit) as port:
        url = f"https://127.0.0.1:{port}"
        done = json.loads(call("doctor", url, "--json", code=3, SSL_CERT_FILE=str(certificate)).stdout)
    (bad,) = (check for check in done["checks"] if check["found"])
    assert bad["check"] == "links lead to this address"
    assert f"begin with http://127.0.0.1:{port}" in bad["found"]
    assert SCHEME in bad["advice"]
