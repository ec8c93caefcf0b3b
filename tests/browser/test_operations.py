"""The operators' page in a browser: rates, errors, uploads, cache and storage: `make browser`."""

from __future__ import annotations

import os
import re

import httpx
import pytest
from playwright.sync_api import BrowserContext, Page, expect
from tests.browser.windows import opened, violations
from tests.support.serve import ServiceProcess

STORED = 3 << 20


@pytest.fixture(scope="module")
def service(service: ServiceProcess) -> ServiceProcess:
    """Run a service that has stored, refused, and begun uploads; the last one waits for more bytes."""
    content = os.urandom(STORED)
    httpx.put(f"{service.url}/v1/stores?filename=a.bin&tag=a", content=content).raise_for_status()
    headers = {"tus-resumable": "1.0.0", "upload-length": "10"}
    httpx.post(f"{service.url}/v1/uploads?filename=b", headers=headers).raise_for_status()
    assert httpx.get(f"{service.url}/v1/stores/nothing").status_code == 404
    return service


def shown(page: Page, group: str, what: str) -> str:
    """Return the value of a row of a group."""
    rows = page.get_by_role("region", name=group, exact=True).locator("dl > div")
    value: str = rows.filter(has=page.get_by_text(what, exact=True)).locator("dd").inner_text()
    return value


def test_totals_are_those_of_the_metrics(context: BrowserContext, service: ServiceProcess) -> None:
    page = opened(context, "/operations")
    assert shown(page, "Uploads", "resumable, started") == "1"
    assert shown(page, "Uploads", "in progress") == "0"
    assert shown(page, "Uploads", "received") == "3.0 MiB"
    assert shown(page, "Storage", "stored") == "3.0 MiB"
    assert shown(page, "Storage", "stores") == "1"
    assert shown(page, "Storage", "checksum failures") == "0"
    assert shown(page, "Requests", "server errors (5xx)") == "0"
    assert int(shown(page, "Requests", "client errors (4xx)")) >= 1
    assert re.fullmatch(r"[\d.]+ (ms|s)", shown(page, "Storage", "mean call time"))
    assert shown(page, "Cache", "files evicted") == "0"
    routes = page.get_by_role("region", name="Requests by route")
    expect(routes.get_by_role("row").filter(has_text="PUT /v1/stores")).to_contain_text("1")


def test_rates_come_with_the_second_look_and_follow_what_is_sent(
    context: BrowserContext, service: ServiceProcess
) -> None:
    page = opened(context, "/operations")
    sent = page.locator(".tiles > div").filter(has=page.get_by_text("sent", exact=True))
    expect(sent.locator("dd")).to_contain_text("B/s")
    for _ in range(10):
        httpx.get(f"{service.url}/v1/stores/a/files/a.bin").raise_for_status()
    expect(sent.locator("dd")).to_contain_text("MiB/s", timeout=15_000)
    expect(sent.get_by_role("img")).to_have_attribute("aria-label", "sent per second, last five minutes")
    assert violations(context, page) == "[]"
