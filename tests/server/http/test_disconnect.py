"""Work stops when its client has left, on every route with long work."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.types import Message, Receive
from starlette.types import Scope as AsgiScope
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.support.calls import CALLS, RULES
from tests.support.hub import shard_of, xorb_of
from tests.support.serve import ask, open_app
from tests.support.stores import onnx, upload
from tests.support.things import Filling

from protoslice.concurrency.executor import Worker
from protoslice.server.auth.permissions import Scope
from protoslice.server.bodies.ingest import body_stream
from protoslice.server.http import disconnect
from protoslice.server.http.disconnect import BodyAhead, CancelOnDisconnect
from protoslice.server.problems import TIMEOUT, HttpProblem
from protoslice.uploads.parts import Composer


def scope_of(method: str, path: str) -> AsgiScope:
    headers = [(b"host", b"127.0.0.1:1"), (b"content-type", b"application/json")]
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": headers,
        "client": ("127.0.0.1", 2), "server": ("127.0.0.1", 1), "state": {},
    }  # fmt: skip


class Work:
    """Endless work in the place of the service's work, and a client that leaves once the work has begun."""

    def __init__(self, body: bytes, *, more: bool = False) -> None:
        self._given: list[Message] = [{"type": "http.request", "body": body, "more_body": more}]
        self._begun = asyncio.Event()
        self.ended = False
        self.sent: list[Message] = []

    async def __call__(self, *_: Any) -> Any:
        self._begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended = True

    async def receive(self) -> Message:
        if self._given:
            return self._given.pop()
        await self._begun.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("GET", "chunks", b""), ("POST", "parts", b'{"parts":[{"view":"onnx/model.onnx"},{"view":"safetensors"}]}')],
)
async def test_work_stops_when_its_client_has_left(
    method: str, path: str, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_app() as app:
        store = (await upload(app.services.stores, onnx(10, 1_000_000))).store.id
        work = Work(body)
        monkeypatch.setattr(app.services.stores.worker, "run_long", work)
        await asyncio.wait_for(app(scope_of(method, f"/v1/stores/{store}/{path}"), work.receive, work.send), 10)
        assert work.ended
        assert work.sent == []


FINISHED: Final = {
    # Hugging Face's clients give up on a HEAD after ten seconds and repeat it; by then everything has been made.
    "GET /v1/stores/{ref}/safetensors/{shard}",
    # Graphs are found one at a time, each to its end, because several at once would need too much memory.
    "GET /v1/stores/{ref}/graph/blocks",
    # Its rule is to read, but it begins uploads of missing files, and changes are finished.
    "POST /{name:repository_of_kind}.git/info/lfs/objects/batch",
}
"""The reading routes that finish their work for a client that has left."""


class Leaving:
    """A client that leaves when the service begins its first piece of work; the service's later work is recorded."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self._left = asyncio.Event()
        self.begun = 0
        self.afterwards = 0

    async def begin(self) -> None:
        """Record that a piece of work begins; the first piece waits until the service knows that the client is gone."""
        self.afterwards += self._left.is_set()
        self.begun += 1
        self._begun.set()
        await self._left.wait()
        for _ in range(10):
            await asyncio.sleep(0)

    def receiving(self, receive: Receive) -> Receive:
        """Return the client's messages: its request, and that it left."""
        read = False

        async def receive_all() -> Message:
            nonlocal read
            if not read:
                read = True
                return await receive()
            await self._begun.wait()
            self._left.set()
            return {"type": "http.disconnect"}

        return receive_all


async def test_every_route_that_reads_stops_when_its_client_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most one piece of work begins for a client that has left: the piece that was running."""
    calls = [call for call in CALLS if call.route and not RULES[call.route].changes(call.method)]
    leaving, worked, found = Leaving(), set[str](), set[str]()

    def watched(work: Any) -> Any:
        async def begun(self: Worker, call: Any) -> Any:
            await leaving.begin()
            return await work(self, call)

        return begun

    hook = "http://127.0.0.1:1/"
    async with closed_service(webhook_allow=(hook,), webhook_networks=("127.0.0.0/8",)) as app:
        caller = bearer(await token_for(app, *Scope))
        things = await Filling(app, "own", caller).fill("mine", f"{hook}hooks")
        monkeypatch.setattr(disconnect, "GRACE_SECONDS", 0)
        monkeypatch.setattr(Worker, "run", watched(Worker.run))
        monkeypatch.setattr(Worker, "run_long", watched(Worker.run_long))
        for call in calls:
            leaving = Leaving()
            before = asyncio.all_tasks()
            method, target, body, headers = call.filled(things, "/spaces/own")
            asked = ask(app, method, f"/spaces/own{target}", body, {**headers, **caller}, receiving=leaving.receiving)
            with suppress(IndexError):  # nothing is sent
                await asyncio.wait_for(asked, 20)
            if rest := asyncio.all_tasks() - before:
                await asyncio.wait(rest, timeout=20)
            if leaving.begun:
                worked.add(call.route)
            if leaving.afterwards > 1:
                found.add(call.route)
    assert len(worked) > 30, worked
    assert found == FINISHED


async def test_the_files_of_a_shard_are_not_made_for_a_client_that_left_within_its_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_app() as app:
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 2))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:1") as client:
            path, shard = await _session_and_shard(client)
        work = Work(shard, more=True)
        monkeypatch.setattr(Composer, "_read", work)
        await asyncio.wait_for(app(scope_of("POST", path), work.receive, work.send), 10)
        assert work.ended
        assert work.sent == []


async def _session_and_shard(client: httpx.AsyncClient) -> tuple[str, bytes]:
    """Return the path of the shards of a new session with a xorb, and a shard of a file in the session."""
    made = await client.post("/api/repos/create", json={"organization": "ann", "name": "m", "type": "model"})
    assert made.status_code == 200
    path = urlsplit((await client.get("/api/models/ann/m/xet-write-token/main")).json()["casUrl"]).path
    hash, xorb = xorb_of(b"chunk")
    assert (await client.post(f"{path}/v1/xorbs/default/{hash}", content=xorb)).json() == {"was_inserted": True}
    return f"{path}/v1/shards", shard_of((b"chunk", [(hash, 5, 0, 1)]))


async def test_what_fails_ahead_in_a_body_is_raised_where_its_pieces_are_read() -> None:
    given: list[Message | Exception] = [
        HttpProblem(TIMEOUT, "slow"),
        {"type": "http.request", "body": b"a", "more_body": True},
    ]

    async def receive() -> Message:
        message = given.pop()
        if isinstance(message, Exception):
            raise message
        return message

    ahead = BodyAhead(receive)
    async with CancelOnDisconnect(ahead.receive) as watch:
        watch.watch()
        pieces = body_stream(ahead.next)
        assert await anext(pieces) == b"a"
        with pytest.raises(HttpProblem, match="slow"):
            await anext(pieces)


async def test_watched_work_leaves_no_task_to_the_garbage_collector() -> None:
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
        # End the cancelled watch, and the loop's own reference to either task.
        for _ in range(3):
            await asyncio.sleep(0)
        return [task() for task in tasks]

    gc.disable()
    try:
        assert await work() == [None, None]
    finally:
        gc.enable()
