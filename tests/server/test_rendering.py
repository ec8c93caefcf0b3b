"""Rendering processes that are too slow, too large, or gone: every request is answered, and the next one works."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest
from tests.support.serve import LiveServer, assert_problem
from tests.support.stores import field

from protoslice.server import rendering
from protoslice.serving.opened import OpenStore

JSON = {"accept": "application/json"}
GRAPH = "type=tensorflow.GraphDef"


def workers() -> list[int]:
    """Return the processes that render for a service in this process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            command = (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == os.getpid() and b"protoslice.server.rendering" in command:
            found.append(int(path.parent.name))
    return found


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Render for each request; otherwise a message that was shown before would be answered from memory."""

    async def text(opened: OpenStore, view: tuple[object, ...], make: Callable[[], Awaitable[Any]]) -> Any:
        return await make()

    monkeypatch.setattr("protoslice.server.api.view_router.text", text)


@contextmanager
def shown(serving: Any, **settings: Any) -> Iterator[tuple[httpx.Client, str]]:
    """Return a client, and a message that can be shown."""
    with serving(**settings) as live, httpx.Client(base_url=live.url, timeout=60) as client:
        store = client.put(f"/v1/stores?{GRAPH}", content=field(1, field(1, b"small"))).json()["id"]
        yield client, f"/v1/stores/{store}/merge"


def assert_shown(client: httpx.Client, url: str) -> None:
    answer = client.get(url, headers=JSON)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"node": [{"name": "small"}]}


def assert_refused(client: httpx.Client, url: str, said: str) -> None:
    answer = client.get(url, headers=JSON)
    problem = assert_problem(answer.status_code, answer.headers, answer.content, expected=413, slug="limit-exceeded")
    assert said in problem["detail"]


def test_every_process_shows_a_message_alike(serving: Any) -> None:
    """All have one strong entity tag, though each process's runtime orders maps differently."""
    entries = [field(5, field(1, b"key-%d" % number) + field(2, field(2, b"%d" % number))) for number in range(60)]
    node = field(1, field(1, b"mapped") + b"".join(entries))
    with serving() as live, httpx.Client(base_url=live.url, timeout=60) as client:
        url = f"/v1/stores/{client.put(f'/v1/stores?{GRAPH}', content=node).json()['id']}/merge"
        for accept in ("application/json", "text/plain"):
            answers = []
            for _ in range(3):
                answers.append(client.get(url, headers={"accept": accept}))
                (process,) = workers()
                os.kill(process, signal.SIGKILL)
            assert len({answer.headers["etag"] for answer in answers}) == 1
            assert len({answer.content for answer in answers}) == 1
            assert b"key-59" in answers[0].content


def test_one_that_is_too_slow_is_replaced(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with shown(serving) as (client, url):
        assert_shown(client, url)
        (worker,) = workers()
        monkeypatch.setattr(rendering, "_TIMEOUT_SECONDS", 3)
        os.kill(worker, signal.SIGSTOP)
        assert_refused(client, url, "longer than 3 seconds")
        assert workers() == []
        assert_shown(client, url)
    assert workers() == []


@pytest.mark.parametrize("room", [2 << 20, 16 << 20, 64 << 20])
def test_a_message_that_takes_too_much_memory(serving: Any, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """Memory may run out in any step: reading, parsing, or making JSON."""
    with shown(serving, max_rendered_bytes=4 << 20) as (client, small):
        assert_shown(client, small)
        (worker,) = workers()
        monkeypatch.setattr(rendering, "_MEMORY_BYTES", address_space(worker) + room - 40 * (4 << 20))
        os.kill(worker, signal.SIGKILL)
        store = client.put(f"/v1/stores?{GRAPH}", content=b"\x0a\x00" * 1_500_000).json()["id"]
        for _ in range(2):
            assert_refused(client, f"/v1/stores/{store}/merge", "memory")
            assert_shown(client, small)


def address_space(process: int) -> int:
    """Return the bytes that a process has mapped."""
    found = re.search(r"VmSize:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def test_those_that_die_while_they_render(serving: Any) -> None:
    with shown(serving) as (client, url):
        stop = Event()
        killer = Thread(target=kill_all, args=(stop,))
        killer.start()
        assert_refused(client, url, "memory")
        stop.set()
        killer.join()
        assert_shown(client, url)


def kill_all(stop: Event) -> None:
    while not stop.wait(0.001):
        for worker in workers():
            os.kill(worker, signal.SIGKILL)


def test_one_that_has_died_while_idle_is_not_asked(serving: Any) -> None:
    """The system may have ended it to free memory; no message was the cause."""
    with shown(serving) as (client, url):
        for pause in (0, 0.1, 0):
            assert_shown(client, url)
            (worker,) = workers()
            os.kill(worker, signal.SIGKILL)
            time.sleep(pause)
        assert_shown(client, url)


def test_a_client_that_leaves_takes_the_work_along(serving: Any) -> None:
    with shown(serving) as (client, url):
        assert_shown(client, url)
        (worker,) = workers()
        os.kill(worker, signal.SIGSTOP)
        with LiveServer(str(client.base_url.host), client.base_url.port or 0).connect() as connection:
            connection.sendall(f"GET {url} HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\n\r\n".encode())
            time.sleep(0.3)
        deadline = time.monotonic() + 5
        while worker in workers():
            assert time.monotonic() < deadline, "it still renders for nobody"
            time.sleep(0.01)
        assert_shown(client, url)
