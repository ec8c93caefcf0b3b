"""A browser without windows, and a window of it in each size."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext
from tests.browser.windows import chromium, window
from tests.clients.conftest import service as service
from tests.clients.conftest import stored as stored
from tests.support.serve import ServiceProcess


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser without windows."""
    with chromium() as browser:
        yield browser


@pytest.fixture(params=["wide", "phone"])
def context(browser: Browser, service: ServiceProcess, request: pytest.FixtureRequest) -> Iterator[BrowserContext]:
    """A window of each size."""
    with window(browser, service.url, request.param) as context:
        yield context
