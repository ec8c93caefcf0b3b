"""A live service over memory, for all tests here, and models to upload."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import httpx
import pytest
from tests.support.backends import Backend
from tests.support.protos.writer import varint
from tests.support.serve import LiveServer, serve
from tests.support.stores import field

Serving = Callable[..., AbstractContextManager[LiveServer]]


@pytest.fixture(scope="module")
def serving(storage: Backend) -> Serving:
    """Return a function that starts a service with other settings, over a new storage by default."""

    @contextmanager
    def serving(**given: Any) -> Iterator[LiveServer]:
        with serve(**{**(storage.settings() if "storage" not in given else {}), **given}) as live:
            yield live

    return serving


@pytest.fixture(scope="module")
def service(serving: Serving) -> Iterator[LiveServer]:
    """Run a service over the module's storage, with a limit of 64 MiB for uploads."""
    with serving(register_allow=(), max_upload_bytes=64 << 20) as live:
        yield live


@pytest.fixture(scope="module")
def client(service: LiveServer) -> Iterator[httpx.Client]:
    """Return a client of the service."""
    with httpx.Client(base_url=service.url, timeout=30) as client:
        yield client


@pytest.fixture(scope="session")
def model() -> bytes:
    """Return an ONNX model with two tensors, one of 3 MiB and one of 2 MiB, written by hand."""
    big, other = bytes(range(251)) * 12533, b"weights!" * 262144
    tensors = b"".join(
        field(5, b"\x08" + varint(len(data) // 4) + b"\x10\x01" + field(8, name) + field(9, data))
        for name, data in ((b"big", big), (b"other", other))
    )
    nodes = b"".join(field(1, field(1, b"x%d" % n) + field(3, b"n%d" % n) + field(4, b"Relu")) for n in range(20))
    return b"\x08\x08" + field(2, b"test") + field(7, nodes + field(2, b"main") + tensors)
