"""A client of the service that speaks tus."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.serve import LiveServer
from tests.support.tus import TusClient, tus_client


@pytest.fixture
def tus(service: LiveServer) -> Iterator[TusClient]:
    """Return a client of the service."""
    with tus_client(service.url) as client:
        yield client
