"""Large pushes: an interrupted push continues at the service's offset, and wrong bytes never make a store.

Pushes of known parts, or of very many files: the recipe's upload continues after a broken connection.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.serve import LiveServer
from tests.support.wire import FAULTS, Fault, FaultyProxy, Relay

from protoslice.client import Client
from protoslice.client.http.digests import BackgroundHash
from protoslice.client.upload import push, resumable
from protoslice.client.upload.bodies import STEP, items_of
from protoslice.client.upload.plans import FilePlan, LocalBytes, recipe_item
from protoslice.errors import ProtosliceError, StorageUnavailable
from protoslice.recipes import Copy, RecipeEnd, RecipeFile, RecipeReader

GRAPH = "tensorflow.GraphDef"
PART = 4 << 20


@pytest.fixture
def small_parts() -> Iterator[None]:
    with (
        patch.object(push, "RESUME_MIN_BYTES", 1 << 20),
        patch.object(resumable, "CHECKED_PART", PART),
        patch.object(resumable, "MOST_PART", PART),
    ):
        yield


@pytest.fixture
def ours(proxy: FaultyProxy, small_parts: None) -> Iterator[Client]:
    with Client(proxy.url, timeout_seconds=1.0, attempts=8, backoff_seconds=0.001) as client:
        yield client
        proxy.script.clear()


@pytest.fixture
def patient(proxy: FaultyProxy, small_parts: None) -> Iterator[Client]:
    """Return a client that does not repeat requests when a busy machine is slow."""
    with Client(proxy.url, backoff_seconds=0.001) as client:
        yield client
        proxy.script.clear()


def open_uploads(service: LiveServer) -> float:
    text = httpx.get(f"{service.url}/metrics").text
    counts = {line.split('"')[1]: float(line.split()[-1]) for line in text.splitlines() if "resumable_total{" in line}
    return counts.get("begun", 0.0) - counts.get("removed", 0.0)


def test_a_large_file_is_uploaded_and_nothing_is_left(
    ours: Client, proxy: FaultyProxy, service: LiveServer, versions: Any
) -> None:
    before = open_uploads(service)
    seen: list[tuple[int, int | None]] = []
    proxy.done.clear()
    pushed = ours.push(
        versions.old_path, type=GRAPH, tags=["big:1"], min_chunk="3MB", base=[], progress=lambda *at: seen.append(at)
    )
    assert [method for method, _, _ in proxy.done] == ["POST", *["PATCH"] * 4, "POST", "DELETE"]
    assert pushed.created
    assert (pushed.store.tags, pushed.store.type, pushed.store.min_chunk) == (("big:1",), GRAPH, 3_000_000)
    assert seen[-1] == (len(versions.old), len(versions.old))
    assert ours.merge("big:1") == versions.old
    assert open_uploads(service) == before


class Counted:
    """A source that records its reads."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self.read_so_far = 0
        self._data = data

    def read(self, offset: int, length: int, /) -> bytes:
        """See `RangeSource`."""
        self.read_so_far += length
        return self._data[offset : offset + length]


def test_push_reads_each_byte_once(ours: Client, versions: Any) -> None:
    source = Counted(versions.new)
    pushed = ours.push({"once.pb": source}, type=GRAPH)
    assert ours.merge(pushed.store.id) == versions.new
    assert source.read_so_far == len(versions.new)


def test_push_reads_a_piece_ahead(service: LiveServer) -> None:
    data = os.urandom(resumable.RESUME_MIN_BYTES)
    source = Counted(data)
    ahead: list[int] = []
    with Client(service.url) as client:
        pushed = client.push(
            {"a.bin": source}, progress=lambda done, _: ahead.append(source.read_so_far - done), tags=["ahead:1"]
        )
    assert pushed.sent == len(data)
    assert max(ahead) <= STEP


def test_bytes_that_are_sent_again_are_hashed_once() -> None:
    data = os.urandom(5 << 20)
    (item,) = items_of(data, "a.bin")
    with BackgroundHash() as hashing:
        reader = resumable._FileReader(item, hashing)
        for start, end in ((1000, 2_000_000), (1_900_000, 3_000_000), (2_500_000, 2_900_000), (2_999_999, 4_000_000)):
            assert b"".join(reader.between(start, end)) == data[start:end]
        reader.skip(len(data))
        assert hashing.hexdigest() == hashlib.sha256(data).hexdigest()


def test_a_folder_with_large_files(ours: Client, proxy: FaultyProxy, tmp_path: Path) -> None:
    given = {"saved_model.pb": b"\x0a\x01a", "variables/v": os.urandom(2 << 20), "empty": b""}
    for name, data in given.items():
        (tmp_path / "m" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "m" / name).write_bytes(data)
    pushed = ours.push(tmp_path / "m", root="saved_model.pb")
    ours.download(pushed.store.id, tmp_path / "d")
    assert {name: (tmp_path / "d" / name).read_bytes() for name in given} == given
    assert ours.push(tmp_path / "m", root="saved_model.pb").created is False


def test_what_breaks_off_goes_on_where_it_was(ours: Client, service: LiveServer, versions: Any) -> None:
    """The connection breaks directly while a part is being sent; later parts are smaller."""
    sent: list[int] = []

    class Broken(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            if request.method == "PATCH":
                request.stream = Cut(request.stream, len(sent) in {1, 2})
            return super().handle_request(request)

    class Cut(httpx.SyncByteStream):
        def __init__(self, inner: Any, cut: bool) -> None:
            self.inner, self.cut = inner, cut
            sent.append(0)

        def __iter__(self) -> Iterator[bytes]:
            for piece in self.inner:
                sent[-1] += len(piece)
                yield piece
                if self.cut and sent[-1] > 500_000:
                    raise httpx.WriteError("broken")

    with Client(service.url, backoff_seconds=0.001) as direct:
        direct._connection._client._transport.close()
        direct._connection._client._transport = Broken()
        pushed = direct.push(versions.new_path, type=GRAPH, base=[], min_chunk=54321)
        assert pushed.store.size == len(versions.new)
        assert direct.merge(pushed.store.id) == versions.new
    whole, first, second, third, *_ = sent
    assert (whole, third) == (PART, resumable.LEAST_PART)
    assert len(versions.new) <= sum(sent) <= len(versions.new) + first + second


def test_something_on_the_way_that_takes_no_long_bodies(ours: Client, service: LiveServer, versions: Any) -> None:
    sizes: list[int] = []

    class Narrow(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            size = int(request.headers.get("content-length", "0"))
            if size > 2_000_000:
                return httpx.Response(413, stream=httpx.ByteStream(b"<html>too large</html>"))
            sizes.append(size)
            return super().handle_request(request)

    with Client(service.url, backoff_seconds=0.001) as direct:
        direct._connection._client._transport.close()
        direct._connection._client._transport = Narrow()
        pushed = direct.push(versions.new_path, type=GRAPH, base=[], min_chunk=54322)
    assert pushed.store.size == len(versions.new)
    assert sizes.count(resumable.LEAST_PART) == len(versions.new) // resumable.LEAST_PART


@pytest.mark.parametrize("resumed_from", [0, 1 << 40])
def test_a_line_that_breaks_again_and_again(
    service: LiveServer, tmp_path: Path, resumed_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failures count in a row, and progress ends the row; this also holds for a push that begins as one request."""
    monkeypatch.setattr(push, "RESUME_MIN_BYTES", resumed_from)
    for name, size in {"CHECKED_PART": 1 << 18, "LEAST_PART": 1 << 16, "MOST_PART": 1 << 21}.items():
        monkeypatch.setattr(resumable, name, size)
    data = os.urandom(24 << 20)
    with (
        Relay(service.url, cuts=cycle(range(1_200_000, 2_000_000, 77_777))) as relay,
        Client(relay.url, attempts=3, backoff_seconds=0.001) as client,
    ):
        pushed = client.push(data, filename="cut.bin", type="", base=[])
        sent, cuts = relay.passed["up"], relay.cut
        assert cuts >= 12
        assert sent <= 1.1 * len(data) + cuts * resumable.MOST_PART
        relay.begin()
        relay.cut = 0
        (done,) = client.download(pushed.store.id, tmp_path / "pulled")
        assert done.path.read_bytes() == data
        assert relay.cut >= 12
        assert relay.passed["down"] <= 1.1 * len(data) + relay.cut * (1 << 20)


def test_a_service_that_is_gone_for_good(ours: Client, proxy: FaultyProxy, versions: Any) -> None:
    proxy.script[:] = [Fault(), *[Fault("reset")] * 100]
    with pytest.raises(StorageUnavailable):
        ours.push(versions.new_path, type=GRAPH, base=[])


@pytest.mark.parametrize("request_number", [1, 2, 4])
def test_a_flipped_bit_costs_the_file_once(
    request_number: int, patient: Client, proxy: FaultyProxy, service: LiveServer, versions: Any
) -> None:
    """The file's digest finds the flipped bit; the file is then sent again in parts with digests."""
    before = open_uploads(service)
    proxy.script[:] = [*[Fault()] * request_number, Fault("flip upload", 0.9)]
    pushed, moved = proxy.bytes_sent_by(
        lambda: patient.push(versions.new_path, type=GRAPH, base=[], filename="part.pb")
    )
    assert patient.merge(pushed.store.id) == versions.new
    assert 2 * len(versions.new) <= moved < 2 * len(versions.new) + 10_000
    assert open_uploads(service) == before


@pytest.mark.parametrize("request_number", [1, 3, 4])
def test_a_flipped_bit_in_the_second_attempt_costs_a_part(
    request_number: int, patient: Client, proxy: FaultyProxy, versions: Any
) -> None:
    calls_of_one_attempt = 1 + 4 + 2
    passing = [Fault()] * (calls_of_one_attempt + request_number)
    proxy.script[:] = [Fault(), Fault("flip upload", 0.9), *passing, Fault("flip upload", 0.9)]
    pushed, moved = proxy.bytes_sent_by(
        lambda: patient.push(versions.new_path, type=GRAPH, base=[], filename="second.pb")
    )
    assert patient.merge(pushed.store.id) == versions.new
    assert 2 * len(versions.new) < moved <= 2 * len(versions.new) + PART + 10_000


def test_a_flipped_bit_in_the_last_word_costs_a_word(patient: Client, proxy: FaultyProxy, versions: Any) -> None:
    """The last word is the request that makes the store."""
    for at in (0.1, 0.5, 0.9):
        proxy.script[:] = [*[Fault()] * 5, Fault("flip upload", at)]
        before = proxy.sent_up
        pushed = patient.push(versions.new_path, type=GRAPH, base=[], filename=f"flipped-{at}.pb", tags=[f"flip:{at}"])
        assert proxy.sent_up - before < len(versions.new) + 10_000
        assert pushed.store.tags == (f"flip:{at}",)
        assert patient.merge(pushed.store.id) == versions.new


@given(script=st.lists(st.builds(Fault, st.sampled_from(FAULTS), st.floats(0, 1, exclude_max=True)), max_size=6))
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@pytest.mark.long
def test_a_push_makes_that_store_or_none(
    script: list[Fault], ours: Client, proxy: FaultyProxy, client: Client, versions: Any
) -> None:
    for store in list(client.stores()):
        if store.root == "resumed.pb":
            client.remove(store.id, force=store.tags)
    proxy.script[:] = script
    try:
        pushed = ours.push(versions.old_path, type=GRAPH, base=[], filename="resumed.pb").store
    except ProtosliceError:
        pushed = None
    proxy.script.clear()
    made = [store for store in client.stores() if store.root == "resumed.pb"]
    assert [store.id for store in made if client.merge(store.id) == versions.old] == [store.id for store in made]
    assert pushed is None or [store.id for store in made] == [pushed.id]
    assert pushed or sum(fault.kind == "flip upload" for fault in script) > 1


MIB = 1 << 20


@pytest.fixture
def small(proxy: FaultyProxy) -> Iterator[Client]:
    """Return a client whose large files begin at a mebibyte, and whose parts have one."""
    with (
        Client(proxy.url, timeout_seconds=5.0, attempts=2, backoff_seconds=0.001) as client,
        patch.object(push, "RESUME_MIN_BYTES", MIB),
        patch.object(resumable, "CHECKED_PART", MIB),
        patch.object(resumable, "MOST_PART", MIB),
    ):
        yield client


@pytest.fixture
def first(service: LiveServer, versions: Any) -> Iterator[str]:
    """A store of the older version."""
    with Client(service.url) as client:
        yield client.push(versions.old_path, type=GRAPH, tags=["first:1"]).store.id


def interrupted(call: Callable[..., Any], what: Path, at: float, **options: Any) -> None:
    def progress(done: int, total: int | None) -> None:
        if done > at * (total or 0):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(what, progress=progress, **options)


def test_what_is_new_goes_on_where_it_was(
    small: Client, proxy: FaultyProxy, versions: Any, first: str, state: Path
) -> None:
    interrupted(small.push, versions.new_path, 0.8, type=GRAPH, base=[first])
    assert len(list(state.iterdir())) == 1
    pushed, up = proxy.bytes_sent_by(lambda: small.push(versions.new_path, type=GRAPH, base=[first]))
    assert small.merge(pushed.store.id) == versions.new
    assert pushed.copied > 11_000_000
    assert up < 3_000_000 - MIB, "two of three mebibytes were there already"
    assert list(state.iterdir()) == []


def test_what_was_to_be_copied_goes_meanwhile(small: Client, versions: Any, first: str) -> None:
    """All content is sent then."""

    def progress(done: int, total: int | None) -> None:
        if done == total and list(small.stores(tag="first:")):
            small.remove(first, force=["first:1"])

    pushed = small.push(versions.new_path, type=GRAPH, base=[first], progress=progress)
    assert pushed.copied == 0
    assert small.merge(pushed.store.id) == versions.new


def test_another_plan_is_begun_anew(small: Client, versions: Any, first: str, state: Path) -> None:
    interrupted(small.push, versions.new_path, 0.8, type=GRAPH, base=[first])
    small.remove(first, force=["first:1"])
    pushed = small.push(versions.new_path, type=GRAPH, base=[])
    assert small.merge(pushed.store.id) == versions.new
    assert list(state.iterdir()) == []


def test_very_many_files(small: Client, proxy: FaultyProxy, service: LiveServer, tmp_path: Path, versions: Any) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(5):
        (folder / f"{number}.pb").write_bytes(versions.old[: number * MIB + 5 - number])
    (folder / "graph.pb").write_bytes(versions.old)
    with patch.object(push, "MOST_FILES", 3):
        interrupted(small.push, folder, 0.9, root="graph.pb", base=[])
        pushed, up = proxy.bytes_sent_by(lambda: small.push(folder, root="graph.pb", base=[]))
    assert up < 5 * MIB
    target = tmp_path / "again"
    target.mkdir()
    small.download(pushed.store.id, target)
    for file in folder.iterdir():
        assert (target / file.name).read_bytes() == file.read_bytes()


def test_a_recipe_can_be_read_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(range(200)))
    (tmp_path / "b").write_bytes(b"")
    a, b = items_of(tmp_path, None)
    copy = Copy("5" * 64, "old", 7, 50)
    recipe = recipe_item([FilePlan(a, [LocalBytes(0, 100), copy, LocalBytes(150, 50)], "6" * 64), FilePlan.whole(b)])
    whole = b"".join(recipe.read(0, None))
    assert recipe.size == len(whole)
    for start in range(0, len(whole), 7):
        for length in (0, 1, 80, len(whole) - start):
            assert b"".join(recipe.read(start, min(length, len(whole) - start))) == whole[start : start + length]
    reader = RecipeReader()
    events = list(reader.feed(whole))
    reader.finish()
    assert [event for event in events if isinstance(event, RecipeFile | RecipeEnd)] == [
        RecipeFile("a"),
        RecipeEnd(200, "6" * 64),
        RecipeFile("b"),
        RecipeEnd(0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    ]
    assert copy in events
