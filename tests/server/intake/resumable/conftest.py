"""A live service over memory, and a client of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from tests.support.backends import Backend
from tests.support.live import LiveServer, live_server
from tests.support.tus import TusClient, tus_client

from protoslice.server.app import create_app
from protoslice.server.settings import Settings
from protoslice.server.transport.uvicorn_config import uvicorn_config

Serving = Callable[..., AbstractContextManager[LiveServer]]


@pytest.fixture(scope="module")
def serving(storage: Backend) -> Serving:
    """Starts a service with other settings, over a new storage unless they name one."""

    @contextmanager
    def serving(**given: Any) -> Iterator[LiveServer]:
        settings = Settings(**{**(storage.settings() if "storage" not in given else {}), "log_level": "error", **given})
        with live_server(uvicorn_config(create_app(settings), settings)) as live:
            yield live

    return serving


@pytest.fixture(scope="module")
def service(serving: Serving) -> Iterator[LiveServer]:
    """Service over the module's storage, with a limit of 64 MiB for uploads."""
    with serving(max_upload_bytes=64 << 20) as live:
        yield live


@pytest.fixture
def tus(service: LiveServer) -> Iterator[TusClient]:
    """A client of the service."""
    with tus_client(service.url) as client:
        yield client
