"""The fast path: small reads that are answered while they are parsed get the same answers as on the ordinary path."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import ref

import httpx
import pytest
from tests.support.serve import LiveServer, live_server, serve

from protoslice.server.app import create_app
from protoslice.server.http.planner import ResponsePlanner
from protoslice.server.settings import Settings
from protoslice.server.transport import fastpath
from protoslice.server.transport.run import fast_path, uvicorn_config

SLOW = {"dnt": "1"}
"""A header that only the ordinary path accepts."""


class Watched:
    """A service over files that records which of its requests were answered at once."""

    def __init__(self, live: LiveServer, client: httpx.Client, folder: Path, at_once: list[bool]) -> None:
        self.folder = folder
        self.live = live
        self.client = client
        self.at_once = at_once

    def ask(self, url: str, headers: dict[str, str]) -> tuple[httpx.Response, bool]:
        """Return the answer, and whether it came at once."""
        answer = self.client.get(url, headers=headers)
        return answer, self.at_once[-1]

    def store(self, content: bytes) -> str:
        """Return the URL of a new store that has been opened."""
        made = self.client.put("/v1/stores?filename=model.onnx", content=content).json()
        url = f"/v1/stores/{made['id']}"
        assert self.client.get(f"{url}/chunks/0").status_code == 200
        return url


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("express")
    settings = Settings(storage=folder.as_uri(), space_watermark_bytes=0, trust_seconds=60)
    app = create_app(settings)
    quick, at_once = fast_path(app), list[bool]()
    assert quick is not None

    def watch(*request: Any) -> bytes | None:
        answer = quick(*request)
        at_once.append(answer is not None)
        return answer

    config = uvicorn_config(app, settings, answerer=watch)
    with live_server(config) as live, httpx.Client(base_url=live.url) as client:
        yield Watched(live, client, folder, at_once)


@pytest.fixture(scope="module")
def store(watched: Watched, model: bytes) -> str:
    """Return the URL of a store of two tensors that are chunks, and of the message around them."""
    return watched.store(model)


@pytest.mark.parametrize(
    "headers",
    [
        {"range": "bytes=0-1,200-300"},
        {"range": "bytes=99999999-"},
        {"range": "bytes=0-9", "if-range": '"other"'},
        {"range": "bytes=0-9", "accept": "application/json"},
        {"range": "bytes=0-9", "want-content-digest": "sha-256=1"},
        {"range": "bytes=0-9", "connection": "close"},
        {"range": "bytes=0-70000"},
        {"if-match": '"other"'},
    ],
)
def test_whatever_is_less_simple_goes_the_ordinary_way(watched: Watched, store: str, headers: dict[str, str]) -> None:
    assert watched.ask(f"{store}/chunks/1", headers)[1] is False


def test_what_a_proxy_adds_keeps_nothing_from_the_shortest_way(watched: Watched, store: str) -> None:
    said = {"x-forwarded-for": "192.0.2.1", "x-forwarded-proto": "https", "forwarded": "for=192.0.2.1"}
    answer, at_once = watched.ask(f"{store}/chunks/1", {"range": "bytes=0-9"} | said)
    assert (answer.status_code, at_once) == (206, True)


def test_what_is_learnt_of_a_store_is_told(watched: Watched, model: bytes) -> None:
    store = watched.store(model + b"\x1a\x06learnt")
    url, headers = f"{store}/chunks/1", {"range": "bytes=0-9"}
    before, at_once = watched.ask(url, headers)
    assert at_once
    assert "repr-digest" not in before.headers
    watched.client.get(f"{store}/chunks")
    after, at_once = watched.ask(url, headers)
    assert at_once
    assert after.headers["repr-digest"] == watched.ask(url, headers | SLOW)[0].headers["repr-digest"]


def test_what_was_prepared_does_not_outlive_the_store(watched: Watched, model: bytes) -> None:
    store = watched.store(model + b"\x1a\x07deleted")
    url, headers = f"{store}/chunks/1", {"range": "bytes=0-9"}
    assert watched.ask(url, headers)[1]
    watched.client.delete(store)
    answer, at_once = watched.ask(url, headers)
    assert (answer.status_code, at_once) == (404, False)


def test_a_plan_goes_with_its_store(watched: Watched, model: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan holds files open, and a target's entry in the cache may outlive its store."""
    plans = []

    class Noted(ResponsePlanner):
        __slots__ = ("__weakref__",)

        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            plans.append(ref(self))

    monkeypatch.setattr(fastpath, "ResponsePlanner", Noted)
    store = watched.store(model + b"\x1a\x04goes")
    for _ in range(3):
        assert watched.ask(f"{store}/chunks/1", {"range": "bytes=0-9"})[1]
    assert [plan() is not None for plan in plans] == [True]
    watched.client.delete(store)
    assert watched.ask(f"{store}/chunks/1", {"range": "bytes=0-9"})[0].status_code == 404
    gc.collect()
    assert [plan() for plan in plans] == [None]


def test_a_target_is_planned_again_after_many_others(
    tmp_path: Path, model: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastpath, "_TARGETS", 2)
    app = create_app(Settings(storage=tmp_path.as_uri(), space_watermark_bytes=0, trust_seconds=60))
    with serve(app=app) as live, httpx.Client(base_url=live.url) as client:
        url = f"/v1/stores/{client.put('/v1/stores?filename=model.onnx', content=model).json()['id']}"
        for path in ("chunks/1", "chunks/2", "files/model.onnx") * 2:
            quick, slow = (client.get(f"{url}/{path}", headers={"range": "bytes=0-99"} | more) for more in ({}, SLOW))
            assert quick.content == slow.content


def test_a_damaged_block_is_never_served(watched: Watched, model: bytes) -> None:
    before = set(watched.folder.glob("objects/*/*"))
    store = watched.store(model + b"\x1a\x07damaged")
    (stored,) = set(watched.folder.glob("objects/*/*")) - before
    whole = bytearray(stored.read_bytes())
    whole[1 << 20] ^= 4
    stored.write_bytes(whole)
    url = f"{store}/files/model.onnx"
    answer, at_once = watched.ask(url, {"range": f"bytes={(1 << 20) + 500}-{(1 << 20) + 600}"})
    assert (answer.status_code, at_once) == (500, False)
    assert "protoslice_damaged_reads_total 1.0" in watched.client.get("/metrics").text
    answer, at_once = watched.ask(url, {"range": "bytes=0-9"})
    assert (answer.content, at_once) == (bytes(whole[:10]), True)


def test_requests_sent_together_are_answered_in_turn(watched: Watched, store: str) -> None:
    wanted = [(0, 9, ""), (20, 39, "dnt: 1\r\n"), (50, 50, ""), (7, 8, "dnt: 1\r\n"), (60, 69, "")]
    requests = "".join(
        f"GET {store}/chunks/1 HTTP/1.1\r\nhost: localhost\r\nrange: bytes={first}-{last}\r\n{more}\r\n"
        for first, last, more in wanted
    )
    whole = watched.client.get(f"{store}/chunks/1").content
    with watched.live.connect() as connection:
        connection.sendall(requests.encode())
        received = b""
        while received.count(b"HTTP/1.1 206") < len(wanted) or not received.endswith(whole[60:70]):
            received += connection.recv(1 << 16)
    bodies = [answer.partition(b"\r\n\r\n")[2] for answer in received.split(b"HTTP/1.1 206")[1:]]
    assert bodies == [whole[first : last + 1] for first, last, _ in wanted]


def test_a_client_that_has_its_share_still_gets_small_cached_reads(tmp_path: Path, model: bytes) -> None:
    """Such reads never count as in progress, and a refusal would cost as much; the ordinary path refuses."""
    settings = Settings(storage=tmp_path.as_uri(), space_watermark_bytes=0, trust_seconds=60, max_requests_per_client=1)
    app = create_app(settings)
    with serve(app=app) as live, httpx.Client(base_url=live.url) as client:
        made = client.put("/v1/stores?filename=model.onnx", content=model).json()
        url, head = f"/v1/stores/{made['id']}/chunks/1", {"range": "bytes=1-2"}
        assert client.get(url, headers=head | SLOW).status_code == 206
        with app.services.clients.requests.one("127.0.0.1"):
            assert client.get(url, headers=head).status_code == 206
            assert client.get(url, headers=head | SLOW).status_code == 429
