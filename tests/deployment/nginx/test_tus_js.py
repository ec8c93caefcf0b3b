"""tus-js-client under Node, directly and through nginx; the service is killed while the client uploads.

This is not part of `make test`, as it needs Node and nginx. `make nginx` runs it.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import httpx
import pytest
from tests.deployment.nginx.front import free_port, nginx
from tests.support.catalogues import upload_ids
from tests.support.serve import ServiceProcess, service_process
from tests.support.stores import onnx

PUSH = Path(__file__).with_name("push.mjs")
DATA = onnx(3_000_000, 1_500_000, *[20_000] * 30, seed=11)
WAYS: dict[str, dict[str, object]] = {
    "in one request": {},
    "in chunks": {"chunkSize": 300_000},
    "in parallel": {"parallelUploads": 3},
    "with creation": {"uploadDataDuringCreation": True},
    "by POST alone": {"overridePatchMethod": True, "chunkSize": 1_000_000},
}


@dataclass
class Site:
    """A service that can be killed and restarted at the same port, and the address for its clients."""

    folder: Path
    port: int
    url: str

    @contextmanager
    def running(self) -> Iterator[ServiceProcess]:
        settings = {"PROTOSLICE_UPLOAD_CHECKPOINT_BYTES": "256KiB", "PROTOSLICE_LOG_LEVEL": "error"}
        arguments = ("--storage", (self.folder / "storage").as_uri(), "--port", str(self.port))
        with service_process(*arguments, settings=settings) as service:
            yield service


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with tus-js-client installed."""
    folder = tmp_path_factory.mktemp("node")
    (folder / "package.json").write_text("{}")
    install = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "tus-js-client@4.3.1"]
    subprocess.run(install, cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture(params=["direct", "nginx"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Return a site behind nginx, and a site without nginx."""
    port = free_port()
    with ExitStack() as stack:
        front = port if request.param == "direct" else stack.enter_context(nginx("nginx.conf", tmp_path, port))
        yield Site(tmp_path, port, f"http://127.0.0.1:{front}")


def push(node: Path, site: Site, options: dict[str, object]) -> subprocess.Popen[str]:
    """Run tus-js-client, which uploads `DATA`."""
    file = site.folder / "model.onnx"
    file.write_bytes(DATA)
    command = ["node", str(PUSH), str(node), f"{site.url}/v1/uploads", str(file), json.dumps(options)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def came_of(pushing: subprocess.Popen[str]) -> dict[str, object]:
    out, err = pushing.communicate(timeout=120)
    assert pushing.returncode == 0, err
    found: dict[str, object] = json.loads(out)
    return found


def check(site: Site, found: dict[str, object]) -> None:
    content = httpx.get(f"{site.url}/v1/stores/{found['store']}/files/model.onnx", timeout=30).content
    assert content == DATA
    assert (
        httpx.put(f"{site.url}/v1/stores?filename=model.onnx", content=DATA, timeout=30).json()["id"] == found["store"]
    )


@pytest.mark.parametrize("way", WAYS)
def test_every_way_it_knows(node: Path, site: Site, way: str) -> None:
    with site.running():
        found = came_of(push(node, site, WAYS[way]))
        check(site, found)
        assert found["retries"] == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("way", ["in one request", "in chunks", "in parallel"])
def test_it_goes_on_when_the_service_was_killed(node: Path, site: Site, way: str, seed: int) -> None:
    random = Random(seed)
    with ExitStack() as stack:
        service = stack.enter_context(site.running())
        pushing = push(node, site, WAYS[way])
        begun = threading.Thread(target=wait_for_uploads, args=(site,))
        begun.start()
        begun.join(60)
        time.sleep(random.random() * 0.08)
        service.running.kill()
        service.running.wait()
        stack.enter_context(site.running())
        check(site, came_of(pushing))


def wait_for_uploads(site: Site) -> None:
    """Wait until an upload has begun."""
    while not upload_ids(site.folder / "storage"):
        time.sleep(0.002)
