"""A headless browser, and a browser window in each size."""

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
    """Run a headless browser."""
    with chromium() as browser:
        yield browser


@pytest.fixture(params=["wide", "phone"])
def context(browser: Browser, service: ServiceProcess, request: pytest.FixtureRequest) -> Iterator[BrowserContext]:
    """Yield a browser context in each window size."""
    with window(browser, service.url, request.param) as context:
        yield context
