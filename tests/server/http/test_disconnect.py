"""Work whose client has left stops, on every route that may be long."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
from starlette.types import Message, Scope
from tests.support.stores import onnx, upload

from protoslice.server.app import create_app
from protoslice.server.http.disconnect import CancelOnDisconnect
from protoslice.server.settings import Settings

ROUTES = [
    ("GET", "/v1/stores/{id}/cpb", b""),
    ("GET", "/v1/stores/{id}/pieces", b""),
    ("GET", "/v1/stores/{id}/chunks", b""),
    ("GET", "/v1/stores/{id}/tensors", b""),
    ("GET", "/v1/stores/{id}/references.json", b""),
    ("GET", "/v1/stores/{id}/safetensors", b""),
    ("POST", "/v1/chunks/missing", b'{"chunks":[{"sha256":"%s","size":5}],"stores":["ID"]}' % (b"0" * 64)),
]


def scope_of(method: str, path: str) -> Scope:
    headers = [(b"host", b"127.0.0.1:1"), (b"content-type", b"application/json")]
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": headers,
        "client": ("127.0.0.1", 2), "server": ("127.0.0.1", 1), "state": {},
    }  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body"), ROUTES, ids=[path for _, path, _ in ROUTES])
def test_work_stops_when_its_client_has_left(
    method: str, path: str, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        app = create_app(Settings(storage="memory://"))
        await app.services.open()
        try:
            stores = app.services.stores
            store = (await upload(stores, onnx(10, 1_000_000))).store.id
            begun, ended = asyncio.Event(), asyncio.Event()

            async def forever(*_: Any) -> Any:
                begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.set()

            monkeypatch.setattr(stores._worker, "bulk", forever)
            sent: list[Message] = []

            async def send(message: Message) -> None:
                sent.append(message)

            given = [{"type": "http.request", "body": body.replace(b"ID", store.encode())}]

            async def receive() -> Message:
                if given:
                    return given.pop()
                await begun.wait()
                return {"type": "http.disconnect"}

            scope = scope_of(method, path.format(id=store))
            await asyncio.wait_for(app(scope, receive, send), 10)
            assert ended.is_set()
            assert sent == []
        finally:
            await app.services.close()

    asyncio.run(work())


def test_watched_work_leaves_no_task_to_the_garbage_collector() -> None:
    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def watched() -> list[weakref.ref[asyncio.Task[Any]]]:
        before = asyncio.all_tasks() - {asyncio.current_task()}
        async with CancelOnDisconnect(receive) as watch:
            watch.watch()
            return [weakref.ref(task) for task in asyncio.all_tasks() - before]

    async def work() -> list[asyncio.Task[Any] | None]:
        tasks = await asyncio.create_task(watched())
        # Ends the cancelled watch, and the loop's own hold on either task.
        for _ in range(3):
            await asyncio.sleep(0)
        return [task() for task in tasks]

    gc.disable()
    try:
        assert asyncio.run(work()) == [None, None]
    finally:
        gc.enable()
