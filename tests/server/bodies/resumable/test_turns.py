"""Connections that break, hang, or send a request twice: received bytes are kept, and the newest request continues."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from starlette.types import Message, Receive
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.support.serve import LiveServer, RawAnswer, ask, assert_problem, read_answer
from tests.support.stores import onnx
from tests.support.tus import BODY, TusClient, metadata, tus_client

from protoslice.concurrency import shares
from protoslice.server.auth.permissions import Scope
from protoslice.server.request import body as request_body

DATA = onnx(3_000_000, seed=4)
NAMED = metadata(filename="model.onnx")

Serving = Callable[..., AbstractContextManager[LiveServer]]


@contextmanager
def hanging(
    service: LiveServer, url: str, offset: int, sent: bytes, length: int, extra: str = ""
) -> Iterator[socket.socket]:
    """A PATCH of `length` bytes that has sent `sent` bytes and then sends nothing more."""
    head = f"PATCH {url} HTTP/1.1\r\nHost: localhost\r\nTus-Resumable: 1.0.0\r\nContent-Type: {BODY}\r\n{extra}"
    with service.connect(20) as connection:
        connection.sendall(f"{head}Upload-Offset: {offset}\r\nContent-Length: {length}\r\n\r\n".encode() + sent)
        yield connection


def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    raise TimeoutError("it did not come to pass")


def received(tus: TusClient) -> float:
    """Return the number of requests in progress, as the service counts them, including this request."""
    lines = tus.http.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith("protoslice_open_uploads ")).split()[1])


@pytest.mark.parametrize("sent", [1, 5000, 2_500_000])
def test_what_came_before_the_connection_broke_is_kept(service: LiveServer, tus: TusClient, sent: int) -> None:
    url = tus.url(len(DATA), upload_metadata=NAMED)
    for seconds in (0.05, 0.5, 5.0):
        with hanging(service, url, 0, DATA[:sent], len(DATA)):
            until(lambda: received(tus) > 0)
            time.sleep(seconds)  # bytes that the service has not read when the connection breaks are lost
        until(lambda: received(tus) == 0)
        if tus.offset(url):
            break
    assert tus.offset(url) == sent
    answer = tus.patch(url, sent, DATA[sent:])
    assert tus.file(answer.headers["protoslice-store"], "model.onnx") == DATA


def test_asking_ends_a_request_that_hangs_and_its_answer_stays_true(service: LiveServer, tus: TusClient) -> None:
    url = tus.url(len(DATA), upload_metadata=NAMED)
    with hanging(service, url, 0, DATA[:700_000], len(DATA)) as old:
        until(lambda: received(tus) > 0)
        time.sleep(0.05)  # the bytes are in flight; for any number of received bytes, the answer must be true
        offset = tus.offset(url)
        ended = read_answer(old)
        assert_problem(ended.status, ended.headers, ended.body, expected=409, slug="conflict")
        assert tus.offset(url) == offset
        assert tus.patch(url, offset, DATA[offset:]).status_code == 204


def test_going_on_ends_a_request_that_hangs(service: LiveServer, tus: TusClient) -> None:
    url = tus.url(len(DATA), upload_metadata=NAMED)
    with hanging(service, url, 0, b"", len(DATA)) as old:
        until(lambda: received(tus) > 0)
        answer = tus.patch(url, 0, DATA)  # nothing of the old one has arrived, so this is the right offset
        assert answer.status_code == 204
        assert read_answer(old).status == 409
    assert tus.file(answer.headers["protoslice-store"], "model.onnx") == DATA


def test_giving_up_ends_a_request_that_hangs(service: LiveServer, tus: TusClient) -> None:
    url = tus.url(len(DATA))
    with hanging(service, url, 0, DATA[:1000], len(DATA)) as old:
        until(lambda: received(tus) > 0)
        assert tus.send("DELETE", url).status_code == 204
        assert read_answer(old).status == 409
    assert tus.head(url).status_code == 410


def test_a_body_with_a_checksum_counts_whole_or_not_at_all(service: LiveServer, tus: TusClient) -> None:
    url = tus.url(len(DATA))
    with hanging(service, url, 0, DATA[:1_000_000], len(DATA), "Upload-Checksum: crc32c AAAAAA==\r\n"):
        until(lambda: received(tus) > 0)
    until(lambda: received(tus) == 0)
    assert tus.offset(url) == 0


def test_of_many_at_once_one_goes_on_and_no_byte_is_wrong(service: LiveServer, tus: TusClient) -> None:
    url = tus.url(len(DATA), upload_metadata=NAMED)
    statuses: list[int] = []

    def go() -> None:
        with tus_client(service.url) as client:
            statuses.append(client.patch(url, 0, DATA).status_code)

    threads = [threading.Thread(target=go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert set(statuses) <= {204, 409}
    while (offset := tus.offset(url)) < len(DATA):
        tus.patch(url, offset, DATA[offset:])
    assert tus.file(tus.head(url).headers["protoslice-store"], "model.onnx") == DATA


def test_a_client_that_falls_silent_is_told_and_keeps_what_it_sent(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_body, "PAUSE_SECONDS", 0.3)
    with serving() as live, tus_client(live.url) as tus:
        url = tus.url(len(DATA), upload_metadata=NAMED)
        with hanging(live, url, 0, DATA[:12345], len(DATA)) as connection:
            answer: RawAnswer = read_answer(connection)
        assert_problem(answer.status, answer.headers, answer.body, expected=408, slug="request-timeout")
        assert tus.offset(url) == 12345


def test_a_request_that_gives_way_to_others_keeps_what_it_sent(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "LOOK_SECONDS", 0.2)
    with serving(max_uploads=1) as live, tus_client(live.url) as tus:
        url, other = tus.url(len(DATA), upload_metadata=NAMED), tus.url(len(DATA))
        with hanging(live, url, 0, DATA[:12345], len(DATA)) as connection:
            until(lambda: received(tus) > 0)
            assert tus.patch(other, 0, DATA).status_code == 204
            assert read_answer(connection).status == 503
        assert tus.offset(url) == 12345


def test_an_upload_that_does_not_get_on_expires(serving: Serving) -> None:
    with serving(upload_lifetime_seconds=1) as live, tus_client(live.url) as tus:
        url = tus.url(1000)
        until(lambda: tus.head(url).status_code == 410)
        answer = tus.patch(url, 0, b"abc")
        assert_problem(answer.status_code, answer.headers, answer.content, expected=410, slug="gone")


def test_open_uploads_are_limited_and_ending_one_makes_room(serving: Serving) -> None:
    with serving(max_open_uploads=3) as live, tus_client(live.url) as tus:
        urls = [tus.url(1000) for _ in range(3)]
        answer = tus.begin(1000)
        assert_problem(answer.status_code, answer.headers, answer.content, expected=503, slug="too-busy")
        assert "retry-after" in answer.headers
        assert tus.send("DELETE", urls[0]).status_code == 204
        until(lambda: tus.begin(1000).status_code == 201)


def test_requests_under_way_are_limited(serving: Serving) -> None:
    with serving(max_uploads=1, upload_wait_seconds=0) as live, tus_client(live.url) as tus:
        url, other = tus.url(len(DATA)), tus.url(len(DATA))
        with hanging(live, url, 0, DATA[:10], len(DATA)):
            until(lambda: received(tus) > 0)
            answer = tus.patch(other, 0, DATA)
        assert_problem(answer.status_code, answer.headers, answer.content, expected=503, slug="too-busy")


async def test_a_stranger_interrupts_no_upload_by_any_route() -> None:
    async with closed_service() as app:
        owner, stranger = [await token_for(app, Scope.READ, Scope.WRITE, Scope.DELETE) for _ in range(2)]
        tus = {"tus-resumable": "1.0.0", "content-type": BODY, "upload-offset": "0"}
        begun = await ask(
            app,
            "POST",
            "/spaces/own/v1/uploads",
            headers={"tus-resumable": "1.0.0", "upload-length": "6"} | bearer(owner),
        )
        place = begun.headers["location"].partition("/spaces")[2]
        waits, ends = asyncio.Event(), asyncio.Event()

        def slow(receive: Receive) -> Receive:
            pieces: list[Message] = [
                {"type": "http.request", "body": b"def", "more_body": False},
                {"type": "http.request", "body": b"abc", "more_body": True},
            ]

            async def received() -> Message:
                if len(pieces) == 1:
                    waits.set()
                    await ends.wait()
                return pieces.pop() if pieces else await receive()

            return received

        sending = asyncio.create_task(
            ask(app, "PATCH", f"/spaces{place}", b"abcdef", tus | bearer(owner), receiving=slow)
        )
        await asyncio.wait_for(waits.wait(), 20)
        rows = [row for row in app.rules if "{upload}" in row and not row.startswith("OPTIONS")]
        assert len(rows) >= 10
        id = place.rpartition("/")[2]
        for row in [*rows, *(row.replace("GET", "HEAD", 1) for row in rows if row.startswith("GET"))]:
            method, _, path = row.partition(" ")
            path = path.replace("{upload}", id).replace("{kind}", "models").replace("{name:repository}", "a/x")
            path = f"/spaces/own{path.replace('{name:path}', 'x')}"
            got = await ask(app, method, path, b"abc", tus | bearer(stranger))
            assert row.startswith(("GET", "HEAD")) or 400 <= got.status < 500, (row, got)
            assert not sending.done(), row
        ends.set()
        assert (await sending).status == 204
        found = await ask(app, "HEAD", f"/spaces{place}", headers={"tus-resumable": "1.0.0"} | bearer(owner))
        assert found.headers["upload-offset"] == "6"
