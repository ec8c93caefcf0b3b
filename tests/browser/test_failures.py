"""The page when the network or the session ends; it loses no input that was typed, chosen or sent: `make browser`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect
from tests.browser.test_views import VIEWS
from tests.browser.test_views import service as service
from tests.browser.windows import opened, violations, window
from tests.support.serve import ServiceProcess, service_process
from tests.support.stores import onnx

QUIET = ("Failed to load resource", "Clear-Site-Data header", "[DOM] Input elements")
MARK = "() => { window.mark = 'the same document'; }"


def same_document(page: Page) -> bool:
    return bool(page.evaluate("window.mark === 'the same document'"))


@pytest.fixture
def context(browser: Browser, service: ServiceProcess) -> Iterator[BrowserContext]:
    with window(browser, service.url, may_say=QUIET) as context:
        yield context


@pytest.mark.parametrize("view", [name for name in VIEWS if name not in {"library", "repositories"}])
def test_a_view_that_cannot_load_says_so_and_loads_once_asked_again(context: BrowserContext, view: str) -> None:
    page = opened(context, "/?of=repositories")
    page.evaluate(MARK)
    context.set_offline(True)
    page.evaluate("place => { history.pushState(null, '', place); dispatchEvent(new Event('popstate')); }", VIEWS[view])
    again = page.get_by_role("button", name="Try again")
    expect(again).to_be_visible()
    expect(page.locator("main .trouble")).to_contain_text("check your connection")
    expect(page.locator("main h1")).to_have_count(1)
    assert same_document(page)
    context.set_offline(False)
    again.click()
    expect(page.locator(".trouble")).to_have_count(0)
    expect(page.locator("main")).not_to_contain_text("Loading")
    assert same_document(page)


def test_an_upload_continues_when_a_view_cannot_load(context: BrowserContext, tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("kept")
    page, held = opened(context, "/"), list[Route]()
    page.route("**/v1/stores/assemble", lambda route: held.append(route))
    page.get_by_label("Files to upload").set_input_files(tmp_path / "kept.txt")
    expect(page.locator(".sending")).to_contain_text("indexing")
    page.route("**/assets/**", lambda route: route.abort())
    page.get_by_role("link", name="Operations").click()
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    held.pop().continue_()
    expect(page.locator("body > [aria-live]")).to_contain_text("kept.txt: stored")


@pytest.mark.parametrize("place", ["/m/%E0%A4%A", "/m/bert%3A1/%E0%A4%A", "/diff/%ff...%E0%A4%A"])
def test_an_address_that_is_no_text_has_a_page(context: BrowserContext, place: str) -> None:
    page = opened(context, place)
    expect(page.get_by_role("heading", level=1)).not_to_be_empty()
    expect(page.get_by_role("link", name="Library", exact=True)).to_be_visible()


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[tuple[ServiceProcess, httpx.Client]]:
    """Run a service with a model that requires tokens, and a client of its admin."""
    settings = {"PROTOSLICE_AUTH": "tokens", "PROTOSLICE_SPACE_WATERMARK_BYTES": "0"}
    with service_process("--storage", (tmp_path / "storage").as_uri(), settings=settings) as running:
        assert running.running.stdout is not None
        found = re.search(r"psl_\w+", running.running.stdout.readline())
        assert found is not None
        headers = {"authorization": f"Bearer {found[0]}"}
        with httpx.Client(base_url=running.url, headers=headers, timeout=60) as http:
            http.put("/v1/stores?filename=m.onnx&tag=m:1", content=onnx(4000)).raise_for_status()
            yield running, http


def token(http: httpx.Client, name: str) -> str:
    made = http.post("/v1/tokens", json={"name": name, "scopes": ["read", "write"]}).raise_for_status().json()
    return str(made["token"])


def sign_in(page: Page, secret: str) -> None:
    page.get_by_label("Token").fill(secret)
    page.get_by_label("Token").press("Enter")


def test_a_session_that_ends_keeps_what_was_typed_and_chosen(
    browser: Browser, closed: tuple[ServiceProcess, httpx.Client], tmp_path: Path
) -> None:
    running, http = closed
    (tmp_path / "chosen.txt").write_text("chosen")
    with window(browser, running.url, may_say=QUIET) as context:
        page = opened(context, "/m/m:1")
        sign_in(page, token(http, "ann"))
        page.get_by_role("button", name="Edit").click()
        page.evaluate(MARK)
        text = page.get_by_label("Description of this version")
        text.fill("typed before the session ended")
        context.clear_cookies()
        page.get_by_role("button", name="Save").click()
        asked = page.get_by_role("complementary", name="Sign in")
        expect(asked.get_by_label("Token")).to_be_focused()
        expect(page.locator("body > [aria-live]")).to_contain_text("Your session has ended")
        assert violations(context, page) == "[]"
        sign_in(page, "psl_wrong")
        expect(asked.locator(".trouble")).to_be_visible()

        # Do not sign in: the text is still there to copy.
        page.keyboard.press("Escape")
        expect(asked).to_have_count(0)
        expect(text).to_have_value("typed before the session ended")
        expect(page.locator(".manage .trouble")).to_be_visible()
        assert not page.evaluate("document.activeElement === document.body")

        page.get_by_role("button", name="Save").click()
        sign_in(page, token(http, "ann-again"))
        expect(page.locator(".manage")).to_contain_text("Saved the description.")
        expect(page.locator(".who")).to_contain_text("ann-again")
        assert http.get("/v1/stores/m:1").json()["description"] == "typed before the session ended"

        page.get_by_role("link", name="Library").click()
        context.clear_cookies()
        page.get_by_label("Files to upload").set_input_files(tmp_path / "chosen.txt")
        expect(asked).to_be_visible()
        # Another window signs in, like a window that an issuer answered.
        other = opened(context, "/")
        sign_in(other, token(http, "ann-" + "at-last-" * 7))
        expect(other.locator(".cards li").first).to_be_visible()
        other.set_viewport_size({"width": 320, "height": 700})
        assert other.evaluate("document.documentElement.scrollWidth") == 320
        page.evaluate("dispatchEvent(new Event('focus'))")
        page.wait_for_url(re.compile(r"/m/chosen%3A1"))
        assert same_document(page)
