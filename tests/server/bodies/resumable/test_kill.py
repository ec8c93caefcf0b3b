"""Tests with kill -9 during parallel resumed uploads: no acknowledged byte is lost, no store is wrong.

`PROTOSLICE_KILLS=200` makes it the long version (`make soak`).
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random

import httpx
import pytest
from tests.support.serve import ServiceProcess, service_process
from tests.support.stores import onnx
from tests.support.tus import TusClient, metadata

KILLS = int(os.environ.get("PROTOSLICE_KILLS", "4"))
SETTINGS = {"PROTOSLICE_UPLOAD_CHECKPOINT_BYTES": "256KiB", "PROTOSLICE_LOG_LEVEL": "error"}
BROKEN = (httpx.TransportError, httpx.InvalidURL)


class Killed:
    """A service that is killed over and over, and where it listens now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ended = threading.Event()
        self.given_up = False
        """True once no service comes back."""
        self.service: ServiceProcess | None = None
        self.answers = 0

    @contextmanager
    def life(self) -> Iterator[ServiceProcess]:
        with service_process("--storage", self.folder.as_uri(), settings=SETTINGS) as service:
            self.service = service
            yield service
            self.service = None

    def url(self) -> str:
        """The address, once there is one."""
        while (service := self.service) is None and not self.given_up:
            time.sleep(0.01)
        assert service is not None
        assert not self.given_up
        return service.url

    def run(self, kills: int, random: Random, pushers: Sequence[Future[None]]) -> None:
        for _ in range(kills):
            with self.life() as service:
                due = self.answers + random.randrange(1, 30)
                while self.answers < due:
                    for ended in (pusher for pusher in pushers if pusher.done()):
                        ended.result()  # only a failure ends a pusher so early
                    time.sleep(0.002)
                time.sleep(random.random() * 0.04)
                self.service = None
                service.running.kill()
                service.running.wait()
        self.ended.set()


class Pusher:
    """Uploads files in sequence, in pieces of random size; goes on whenever the service comes back."""

    def __init__(self, killed: Killed, seed: int) -> None:
        self.killed = killed
        self.random = Random(seed)
        self.stores: dict[str, str] = {}
        self.resumed = 0

    def run(self) -> None:
        number = 0
        while number < 2 or not self.killed.ended.is_set():
            data = onnx(self.random.randrange(1_500_000), 40_000, seed=self.random.randrange(1 << 30))
            number += 1
            store = self.joined(data) if self.random.random() < 0.4 else self.single(data)
            self.stores[store] = hashlib.sha256(data).hexdigest()

    def single(self, data: bytes) -> str:
        return self.push(data, upload_metadata=metadata(filename="model.onnx")).headers["protoslice-store"]

    def joined(self, data: bytes) -> str:
        cut = self.random.randrange(len(data))
        with ThreadPoolExecutor(2) as pool:
            pushes = [pool.submit(self.push, part, upload_concat="partial") for part in (data[:cut], data[cut:])]
            urls = [push.result().headers["x-url"] for push in pushes]
        concat = "final;" + " ".join(urls)
        while True:
            answer = self.ask(
                "POST", "/v1/uploads", upload_concat=concat, upload_metadata=metadata(filename="model.onnx")
            )
            if answer is not None:
                assert answer.status_code == 201, answer.text
                return str(answer.headers["protoslice-store"])

    def push(self, data: bytes, **headers: str) -> httpx.Response:
        """The last answer about an upload of `data`."""
        partial = "upload_concat" in headers
        while (begun := self.ask("POST", "/v1/uploads", None, upload_length=len(data), **headers)) is None:
            pass
        assert begun.status_code == 201, begun.text
        url, acknowledged, answer = str(begun.headers["location"]), 0, begun
        while acknowledged < len(data) or not (partial or "protoslice-store" in answer.headers):
            size = self.random.choice([1, 5000, 70_000, 300_000, 800_000])
            answer = self.step(url, acknowledged, data[acknowledged : acknowledged + size])
            offset = int(answer.headers["upload-offset"])
            assert offset >= acknowledged, f"{acknowledged} bytes were acknowledged, and {offset} are there"
            acknowledged = offset
        answer.headers["x-url"] = url
        return answer

    def step(self, url: str, offset: int, piece: bytes) -> httpx.Response:
        """One piece sent; or where the upload is, when that went wrong."""
        headers = {"content_type": "application/offset+octet-stream", "upload_offset": str(offset)}
        answer = self.ask("PATCH", url, piece, **headers)
        if answer is not None and answer.status_code == 204:
            assert int(answer.headers["upload-offset"]) == offset + len(piece)
            return answer
        self.resumed += 1
        while (answer := self.ask("HEAD", url)) is None:
            pass
        assert answer.status_code == 200, answer.status_code
        return answer

    def ask(self, method: str, url: str, body: bytes | None = None, **headers: str | int) -> httpx.Response | None:
        """An answer; none when the service went away."""
        try:
            with httpx.Client(base_url=self.killed.url(), timeout=20) as http:
                answer = TusClient(http).send(method, url, body, **headers)
            self.killed.answers += 1
            return answer
        except BROKEN:
            time.sleep(0.02)
            return None


@pytest.mark.long
def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    killed = Killed(tmp_path / "storage")
    pushers = [Pusher(killed, seed) for seed in range(3)]
    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(pusher.run) for pusher in pushers]
        try:
            killed.run(KILLS, Random(KILLS), running)
            with killed.life() as service:
                for pusher in running:
                    pusher.result()
                stores = {store: sha for pusher in pushers for store, sha in pusher.stores.items()}
                for store, sha in stores.items():
                    content = httpx.get(f"{service.url}/v1/stores/{store}/files/model.onnx", timeout=30).content
                    assert hashlib.sha256(content).hexdigest() == sha
        finally:
            killed.ended.set()
            killed.given_up = True
    resumed = sum(pusher.resumed for pusher in pushers)
    print(f"{KILLS} kills, {resumed} uploads resumed, {len(stores)} stores whole")
    assert len(stores) >= 6
    assert resumed >= KILLS // 2
