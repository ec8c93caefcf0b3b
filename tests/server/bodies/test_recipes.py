"""Recipes over the wire: the time that the service takes to copy is not the client's."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import httpx
import pytest
from tests.support.serve import serve
from tests.support.stores import field, onnx

from protoslice.recipes import MEDIA_TYPE, Copy, RecipeWriter
from protoslice.server import services
from protoslice.server.request import body as request_body
from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.storage.wrappers import InterceptedStorage

T = TypeVar("T")
MODEL = onnx(2_000_000)


class SlowStorage(InterceptedStorage):
    """Takes minutes for every read, by the clock that it holds."""

    def __init__(self) -> None:
        super().__init__(MemoryStorage())
        self.clock = 0.0
        self.copied = threading.Event()

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        if name == "get_ranges":
            self.clock += 600
            self.copied.set()
        return await call()


def test_a_long_copy_is_not_taken_for_a_slow_client(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = SlowStorage()
    monkeypatch.setattr(request_body, "monotonic", lambda: time.monotonic() + storage.clock)
    monkeypatch.setattr(services, "open_storage", lambda *_: storage)

    def recipe(store: str) -> Iterator[bytes]:
        writer, more = RecipeWriter(), field(2, b"more")
        ahead = field(2, bytes(2 << 20))  # more than is read of a recipe before it is carried out
        yield writer.file("model.onnx") + writer.copy(Copy(store, "model.onnx", 0, len(MODEL)))
        yield writer.literal(len(ahead)) + ahead
        assert storage.copied.wait(20)
        yield writer.literal(len(more))
        for at in range(len(more)):  # drop by drop, so that some of it comes before the end does
            time.sleep(0.02)
            yield more[at : at + 1]
        made = MODEL + ahead + more
        yield writer.end(len(made), hashlib.sha256(made).hexdigest()) + writer.done()

    with (
        serve(body_min_bytes_per_second=1000) as live,
        httpx.Client(base_url=live.url, timeout=30) as client,
    ):
        made = client.post("/v1/stores?filename=model.onnx", content=MODEL).json()["id"]
        sent = client.post("/v1/stores", content=recipe(made), headers={"content-type": MEDIA_TYPE})
        assert sent.status_code == 201, sent.text
