"""Debian's chromium and firefox-esr, driven by Playwright, in windows whose pages may not write to the console."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
SCREENS = {"wide": (1360, 860, "light"), "phone": (390, 844, "dark")}


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a headless Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--no-proxy-server", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@contextmanager
def firefox() -> Iterator[Browser]:
    """Run Firefox over WebDriver BiDi. From 1.65 on, Playwright sends a command that the ESR of 2026 does not know."""
    with sync_playwright() as playwright:
        browser = playwright.firefox.launch(executable_path="/usr/bin/firefox-esr", channel="moz-firefox")
        yield browser
        browser.close()


@contextmanager
def window(
    browser: Browser, url: str, screen: str = "wide", *, may_say: str | tuple[str, ...] = ""
) -> Iterator[BrowserContext]:
    """Open a window of a size of `SCREENS`; at its end, fail on console lines that do not begin with `may_say`."""
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
    """Open the page at `place`, and return it once it loads nothing more."""
    page = context.new_page()
    page.goto(place)
    page.wait_for_load_state("networkidle")
    return page


def violations(context: BrowserContext, page: Page) -> object:
    """Return the violations that axe-core finds, as JSON."""
    # The debugger adds the script, because the page's policy forbids other scripts.
    session = context.new_cdp_session(page)
    session.send("Runtime.evaluate", {"expression": f"{AXE.read_text()};0"})
    told = "axe.run().then(found => JSON.stringify(found.violations.map(each => [each.id, each.nodes[0].html])))"
    asked = {"expression": told, "awaitPromise": True, "returnByValue": True}
    return session.send("Runtime.evaluate", asked)["result"].get("value")


@contextmanager
def counted_calls(context: BrowserContext, page: Page) -> Iterator[Callable[[], int]]:
    """Yield a function that returns how many functions of the page's scripts were called in the block."""
    session, total = context.new_cdp_session(page), 0
    session.send("Profiler.enable")
    session.send("Profiler.startPreciseCoverage", {"callCount": True, "detailed": False})
    yield lambda: total
    for script in session.send("Profiler.takePreciseCoverage")["result"]:
        if "/assets/" in script["url"]:
            total += sum(function["ranges"][0]["count"] for function in script["functions"])
    session.send("Profiler.disable")


def fetched(context: BrowserContext, page: Page) -> Callable[[], int]:
    """Return a function that returns the bytes on the wire that `page` has received since this call."""
    session, sizes = context.new_cdp_session(page), list[int]()
    session.on("Network.dataReceived", lambda event: sizes.append(event["encodedDataLength"]))
    session.send("Network.enable")
    return lambda: sum(sizes)


def memory_of(page: Page) -> int:
    """Return the private memory of the largest page process, in bytes, after garbage is collected."""
    page.context.new_cdp_session(page).send("HeapProfiler.collectGarbage")
    browser = page.context.browser
    assert browser is not None
    told = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    return max(_private(each["id"]) for each in told if each["type"] == "renderer")


def _private(process: int) -> int:
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))
