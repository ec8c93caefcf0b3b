"""Debian's chromium, driven by Playwright: windows whose pages may say nothing on the console."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
SCREENS = {"wide": (1360, 860, "light"), "phone": (390, 844, "dark")}


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without windows."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--no-proxy-server", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@contextmanager
def window(
    browser: Browser, url: str, screen: str = "wide", *, may_say: str | tuple[str, ...] = ""
) -> Iterator[BrowserContext]:
    """A window of a size of `SCREENS`; at its end only lines that begin with `may_say` may have been said."""
    width, height, scheme = SCREENS[screen]
    context = browser.new_context(
        base_url=url,
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    said: list[str] = []
    context.on("console", lambda message: said.append(message.text))
    context.on("weberror", lambda error: said.append(str(error.error)))
    context.on("dialog", lambda dialog: said.append(dialog.message))
    yield context
    context.close()
    more = [line for line in said if not (may_say and line.startswith(may_say))]
    assert more == [], more


def opened(context: BrowserContext, place: str) -> Page:
    """The page at `place`, once nothing is being loaded."""
    page = context.new_page()
    page.goto(place)
    page.wait_for_load_state("networkidle")
    return page


def violations(context: BrowserContext, page: Page) -> object:
    """Violations that axe-core finds, as JSON."""
    # Brought in by the debugger: the policy of the page forbids other scripts.
    session = context.new_cdp_session(page)
    session.send("Runtime.evaluate", {"expression": f"{AXE.read_text()};0"})
    told = "axe.run().then(found => JSON.stringify(found.violations.map(each => [each.id, each.nodes[0].html])))"
    asked = {"expression": told, "awaitPromise": True, "returnByValue": True}
    return session.send("Runtime.evaluate", asked)["result"].get("value")
