"""Requests in JSON with a bit flipped on the way: refused by the service, repeated by the client."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from tests.support.wire import Fault, FaultyProxy

from protoslice.client import Client
from protoslice.errors import ChecksumMismatch

DESCRIPTORS = FileDescriptorSet(file=[FileDescriptorProto(name="garbled.proto", package="garbled")]).SerializeToString()


@pytest.fixture(scope="module")
def stores(client: Client) -> list[str]:
    """Two stores whose ids a flip cannot turn into each other."""
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
