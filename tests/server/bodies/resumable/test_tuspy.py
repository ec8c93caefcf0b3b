"""tuspy, the tus project's Python client, against the live service, which is killed during uploads."""

from __future__ import annotations

import io
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import httpx
import pytest
import requests
from tests.support.serve import LiveServer, service_process
from tests.support.stores import onnx
from tusclient.client import TusClient
from tusclient.exceptions import TusCommunicationError, TusUploadFailed

DATA = onnx(900_000, *[10_000] * 10, seed=21)
BROKEN = (TusCommunicationError, TusUploadFailed, requests.RequestException)


def uploader(base: str, **options: Any) -> Any:
    client = TusClient(f"{base}/v1/uploads")
    return client.uploader(
        file_stream=io.BytesIO(DATA), metadata={"filename": "model.onnx", "tag": "tuspy:1"}, **options
    )


def came_of(base: str, url: str) -> bytes:
    """Return the file of the store that was made from the upload."""
    store = httpx.head(base + httpx.URL(url).path, headers={"tus-resumable": "1.0.0"}).headers["protoslice-store"]
    return httpx.get(f"{base}/v1/stores/{store}/files/model.onnx").content


@pytest.mark.parametrize(
    "options", [{}, {"chunk_size": 70_000}, {"chunk_size": 200_000, "upload_checksum": True}, {"upload_checksum": True}]
)
def test_whole(service: LiveServer, options: dict[str, Any]) -> None:
    pushing = uploader(service.url, **options)
    pushing.upload()
    assert pushing.offset == len(DATA)
    assert came_of(service.url, pushing.url) == DATA
    assert httpx.get(f"{service.url}/v1/tags/tuspy:1").status_code == 200


def test_gone_on_with_by_another_client(service: LiveServer) -> None:
    first = uploader(service.url, chunk_size=100_000)
    first.upload(stop_at=300_000)
    second = uploader(service.url, url=first.url)
    assert second.offset == 300_000
    second.upload()
    assert came_of(service.url, first.url) == DATA


@pytest.mark.long
def test_killed_and_gone_on_with(tmp_path: Path) -> None:
    random, url, lives, offset = Random(1), None, 0, 0
    while offset < len(DATA):
        lives += 1
        with service_process("--storage", tmp_path.as_uri(), settings={"PROTOSLICE_LOG_LEVEL": "error"}) as service:
            place = None if url is None else service.url + httpx.URL(url).path
            pushing = uploader(service.url, url=place, chunk_size=random.choice([30_000, 120_000]))
            assert pushing.offset >= offset
            killer = Thread(target=kill_after, args=(service.running, random.random() * 0.15, lives > 4))
            killer.start()
            with suppress(*BROKEN):
                pushing.upload()
            killer.join()
            url, offset = pushing.url or url, pushing.offset
    with service_process("--storage", tmp_path.as_uri(), settings={"PROTOSLICE_LOG_LEVEL": "error"}) as service:
        assert came_of(service.url, url or "") == DATA


def kill_after(process: Any, seconds: float, spared: bool) -> None:
    if not spared:
        time.sleep(seconds)
        process.kill()
        process.wait()
