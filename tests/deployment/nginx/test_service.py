"""The service behind nginx: bytes that curl uploads come back unchanged, directly and through nginx."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployment.nginx.front import FILES, Answer, ask, nginx, same

# Thirty fields of a megabyte, of an undeclared type.
PROTO = b"".join(b"\x0a\xc0\x84\x3d" + random.Random(n).randbytes(1_000_000) for n in range(30))


@dataclass(frozen=True)
class Site:
    """nginx in front of the service, and the service."""

    port: int
    direct: int
    caches: bool


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("storage")
    environment = os.environ | {"PROTOSLICE_STORAGE": folder.as_uri(), "PROTOSLICE_DRAIN_NOTICE_SECONDS": "0"}
    command = [sys.executable, "-m", "protoslice.cli", "serve", "--port", "0"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline().rpartition(":")[2])
    finally:
        process.terminate()
        process.stdout.close()
        assert process.wait(timeout=60) in {0, -signal.SIGTERM}  # uvicorn shuts down, and then still ends by the signal


@pytest.fixture(params=FILES)
def site(request: pytest.FixtureRequest, tmp_path: Path, service: int) -> Iterator[Site]:
    with nginx(request.param, tmp_path, service) as port:
        yield Site(port, service, request.param == "nginx-cache.conf")


def upload(site: Site, *arguments: str, body: bytes = PROTO) -> dict[str, Any]:
    """Upload curl's standard input through nginx; return the store."""
    command = ["curl", "--silent", "--show-error", "--fail-with-body", *arguments]
    answer = subprocess.run(command, input=body, capture_output=True, check=True).stdout
    store: dict[str, Any] = json.loads(answer)
    return store


def address(site: Site, query: str) -> str:
    return f"http://127.0.0.1:{site.port}/v1/stores?{query}"


def test_uploads_of_each_kind(site: Site) -> None:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        member = tarfile.TarInfo("./folder/model.pb")
        member.size = len(PROTO)
        archive.addfile(member, io.BytesIO(PROTO))
    kinds = [
        upload(site, "--upload-file", "-", address(site, "filename=folder/model.pb")),
        upload(site, "--form", "file=@-;filename=folder/model.pb", address(site, "")),
        upload(
            site,
            "--header",
            "Content-Type: application/x-tar",
            "--data-binary",
            "@-",
            address(site, ""),
            body=tar.getvalue(),
        ),
    ]
    assert len({store["id"] for store in kinds}) == 1
    assert [(file["path"], file["size"]) for file in kinds[0]["files"]] == [("folder/model.pb", len(PROTO))]
    assert ask(site.port, f"/v1/stores/{kinds[0]['id']}/files/folder/model.pb").body == PROTO


def without_boundary(answer: Answer) -> Answer:
    """Return `answer` with the boundary of its parts, which varies, replaced."""
    kind, _, boundary = answer.headers.get("content-type", "").partition("; boundary=")
    if not boundary:
        return answer
    headers = answer.headers | {"content-type": kind}
    return replace(answer, headers=headers, body=answer.body.replace(boundary.encode(), b"*"))


@pytest.mark.parametrize("view", ["files/model.pb", "merge", "merge?path=1%5B3%5D", "cpb", "chunks/0", "metadata"])
def test_views(site: Site, view: str) -> None:
    store = upload(site, "--upload-file", "-", address(site, "filename=model.pb"))
    path = f"/v1/stores/{store['id']}/{view}"
    whole = ask(site.direct, path)
    etag = whole.headers["etag"]
    for headers in [
        {},
        {"Range": "bytes=0-9"},
        {"Range": "bytes=900000-999990"},
        {"Range": "bytes=8388600-16777300"},
        {"Range": "bytes=-5"},
        {"Range": "bytes=0-1,500-501"},
        {"Range": "bytes=99999999-"},
        {"Range": "bytes=1-3", "If-Range": etag},
        {"Range": "bytes=1-3", "If-Range": '"no"'},
        {"If-None-Match": etag},
        {"If-Match": '"no"'},
    ]:
        for method in ("GET", "HEAD"):
            direct = without_boundary(ask(site.direct, path, method, **headers))
            same(without_boundary(ask(site.port, path, method, **headers)), direct, site.caches)


def test_problems_come_through(site: Site) -> None:
    for path in ("/v1/stores/none", f"/v1/stores/{'0' * 64}/files/a", f"/v1/stores/{'0' * 64}/chunks/0"):
        for port in (site.port, site.direct):
            answer = ask(port, path)
            assert answer.status == 404
            assert answer.headers["content-type"].startswith("application/problem+json")
            assert json.loads(answer.body)["request_id"] == answer.headers["x-request-id"]
