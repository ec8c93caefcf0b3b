"""Something broken between the client and the service: the client never accepts a wrong byte.

JSON requests with a flipped bit are refused by the service and repeated by the client.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.wire import FAULTS, Fault, FaultyProxy, Kind

from protoslice.client import Client
from protoslice.client.download import remote
from protoslice.errors import ChecksumMismatch, ProtosliceError
from protoslice.facts import Store

scripts = st.lists(st.builds(Fault, st.sampled_from(FAULTS), st.floats(0, 1, exclude_max=True)), max_size=8)
few = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(scope="module")
def model() -> bytes:
    """A GraphDef of 1.4 MB."""
    return b"".join(b"\x0a\x84\x80\x02\x0a\x80\x80\x02" + hashlib.shake_256(b"%d" % n).digest(32768) for n in range(42))


@pytest.fixture(scope="module")
def store(client: Client, model: bytes) -> Store:
    return client.push(model, filename="g.pb", type="tensorflow.GraphDef", tags=["faults:1"]).store


@pytest.fixture
def broken(proxy: FaultyProxy) -> Iterator[Client]:
    with Client(proxy.url, timeout_seconds=1.0, attempts=10, backoff_seconds=0.001, parallel=2) as client:
        yield client


@contextmanager
def small_requests() -> Iterator[None]:
    """Download with many requests, two at a time after the first; no connection is fast enough for a single request."""
    with ExitStack() as stack:
        for name, value in {
            "PART": 200_000,
            "SINGLE_STREAM_STEPS": (200_000, 200_000),
            "SINGLE_STREAM_RATE": 1 << 60,
            "DIGESTED": 100_000,
        }.items():
            stack.enter_context(patch.object(remote, name, value))
        yield


@pytest.mark.parametrize("before", [1, 2, 4])
@pytest.mark.parametrize("kind", FAULTS)
def test_one_fault_of_each_kind(
    kind: Kind, before: int, broken: Client, proxy: FaultyProxy, store: Store, model: bytes, tmp_path: Path
) -> None:
    """The faults are in the answer that describes the file, and in parts of the file."""
    proxy.script[:] = [*[Fault()] * before, Fault(kind, 0.5)]
    with small_requests():
        (done,) = broken.download(store.id, tmp_path / "a")
    assert proxy.script == []
    assert done.path.read_bytes() == model
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@given(script=scripts)
@few
def test_a_download_is_right_whatever_happens(
    script: list[Fault], broken: Client, proxy: FaultyProxy, store: Store, model: bytes, tmp_path: Path
) -> None:
    target = tmp_path / hashlib.sha256(repr(script).encode()).hexdigest()
    proxy.script[:] = [Fault(), *script]
    with small_requests():
        (done,) = broken.download(store.id, target)
    assert done.path.read_bytes() == model
    assert list(tmp_path.glob(f".{target.name}*")) == []


@given(script=scripts)
@few
def test_a_merge_is_right_whatever_happens(
    script: list[Fault], broken: Client, proxy: FaultyProxy, store: Store, model: bytes
) -> None:
    """The digest of a message's part is not known before; each answer brings its own digest."""
    proxy.script[:] = script
    with patch.object(remote, "DIGESTED", 10_000):
        assert broken.merge(store.id, "node[7].name") == model[32776 * 7 + 8 : 32776 * 8]


@given(script=scripts)
@few
def test_lists_are_right_whatever_happens(
    script: list[Fault], broken: Client, proxy: FaultyProxy, client: Client, store: Store
) -> None:
    expected = list(client.pieces(store.id))
    proxy.script[:] = script
    assert list(broken.pieces(store.id)) == expected


@given(script=scripts)
@few
def test_a_push_makes_that_store_or_none(
    script: list[Fault], broken: Client, proxy: FaultyProxy, client: Client, model: bytes, tmp_path: Path
) -> None:
    data = model[: 32776 * 3] + b"\x0a\x08\x0a\x06" + hashlib.sha256(repr(script).encode()).digest()[:6]
    proxy.script[:] = script
    pushed = None
    with suppress(ProtosliceError):
        pushed = broken.push(data, filename="pushed.pb", type="tensorflow.GraphDef")
    assert pushed or sum(fault.kind == "flip upload" for fault in script) > 1
    made = [each for each in client.stores() if each.root == "pushed.pb"]
    assert {file.sha256 for each in made for file in each.files} <= {hashlib.sha256(data).hexdigest()}
    assert pushed is None or [each.id for each in made] == [pushed.store.id]
    for each in made:
        client.remove(each.id)


DESCRIPTORS = FileDescriptorSet(file=[FileDescriptorProto(name="garbled.proto", package="garbled")]).SerializeToString()


@pytest.fixture(scope="module")
def stores(client: Client) -> list[str]:
    """Two stores whose ids differ by more than a flipped bit."""
    return [client.push(b"\x0a\x04" + word, filename="garbled.pb").store.id for word in (b"this", b"that")]


@pytest.mark.parametrize("at", [0.0, 0.2, 0.5, 0.8, 0.99])
def test_a_flipped_bit_is_refused_and_the_request_repeated(
    at: float, client: Client, proxy: FaultyProxy, stores: list[str]
) -> None:
    with Client(proxy.url, backoff_seconds=0.001) as ours:
        calls: list[Callable[[], object]] = [
            lambda: ours.tag("garbled:1", stores[0]),
            lambda: ours.put_schema("garbled", DESCRIPTORS),
            lambda: ours._connection.call("POST", "/v1/chunks/missing", json={"chunks": [], "stores": stores}),
        ]
        for call in calls:
            proxy.script[:], proxy.done[:] = [Fault("flip upload", at)] * 2, []
            call()
            assert len(proxy.done) == 3
    assert [tag.store for tag in client.tags() if tag.name.startswith("garbled")] == [stores[0]]
    assert client.schema("garbled") == DESCRIPTORS


def test_what_is_sent_once_is_refused_as_well(client: Client, proxy: FaultyProxy, stores: list[str]) -> None:
    with Client(proxy.url, backoff_seconds=0.001) as ours:
        for at in (0.1, 0.5, 0.9):
            proxy.script[:] = [Fault("flip upload", at)]
            with pytest.raises(ChecksumMismatch):
                ours.tag("garbled:once", stores[0], create=True)
    assert not [tag for tag in client.tags() if tag.name == "garbled:once"]
