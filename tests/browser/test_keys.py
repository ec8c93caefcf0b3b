"""The page by keyboard alone, in Chromium and Firefox: `make browser`.

The tests walk through every view of `test_views.py` by Tab, and use each of its actions by keys. The focus never falls
to the body, no element traps it, and changes are announced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect
from tests.browser.test_views import VIEWS
from tests.browser.test_views import service as service
from tests.browser.windows import chromium, firefox, window
from tests.support.serve import ServiceProcess

BROWSERS = {"chromium": chromium, "firefox": firefox}
MOST_STOPS = 120
"""The most Tab stops to walk through in a view. The test's graph has fewer stops; a table of nodes has more."""
WATCH = """() => {
  window.said = [];
  const region = document.querySelector('body > [aria-live]');
  new MutationObserver(() => window.said.push(region.lastChild.textContent)).observe(region, { childList: true });
}"""
STATE = """() => {
  const at = document.activeElement, main = document.getElementById('main');
  const states = ['aria-expanded', 'aria-pressed', 'aria-selected', 'aria-checked', 'aria-current'];
  return {
    tag: at.tagName, type: at.type ?? '', role: at.getAttribute('role') ?? '',
    name: (at.getAttribute('aria-label') ?? at.labels?.[0]?.textContent ?? at.textContent ?? '').trim().slice(0, 120),
    place: at.getAttribute('href') ?? '', download: at.hasAttribute('download'), inside: main.contains(at),
    state: states.map(each => at.getAttribute(each)).join() + at.value + at.checked + at.closest('details')?.open,
    path: (() => {
      let path = '';
      for (let each = at; each && each !== document.body; each = each.parentElement)
        path = `/${[...each.parentElement.children].indexOf(each)}${path}`;
      return path;
    })(),
    body: at === document.body, disabled: at.matches(':disabled'),
    shown: main.innerText.replace(/\\d+ \\w+ ago/g, ''), url: location.href, said: window.said?.length ?? 0,
  };
}"""
KEYS = {"SELECT": "ArrowDown", "number": "5", "range": "ArrowRight", "checkbox": "Space", "radio": "Space"}
"""The keys that use a control; other controls are used by Enter, and text fields by typing a letter."""


@pytest.fixture(scope="module", params=BROWSERS)
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    with BROWSERS[request.param]() as browser:
        yield browser


@pytest.fixture
def context(browser: Browser, service: ServiceProcess) -> Iterator[BrowserContext]:
    with window(browser, service.url, may_say=("Failed to load resource", "[JavaScript Warning")) as context:
        yield context


def settled(page: Page) -> dict[str, Any]:
    """Return the focused element and the visible content, once the page is idle."""
    before: dict[str, Any] = {}
    for _ in range(40):
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 60)))")
        now: dict[str, Any] = page.evaluate(STATE)
        if now == before and "Loading" not in now["shown"]:
            break
        before = now
    return now


def at(context: BrowserContext, place: str) -> Page:
    page = context.new_page()
    page.goto(place)
    page.wait_for_load_state("networkidle")
    page.locator("main :is(h1, .model, .empty)").first.wait_for(state="attached")
    settled(page)
    page.evaluate(WATCH)
    return page


def press(page: Page, key: str) -> dict[str, Any]:
    """Press a key, assert that the focus is not lost, and return the state."""
    page.keyboard.press(key)
    now = settled(page)
    assert not now["body"], f"{key} lost the focus"
    assert not now["disabled"], f"{key} left the focus on what is disabled"
    return now


def leave(page: Page) -> None:
    """Move the focus before the first element, also if the address opens a drawer that takes the focus.

    Do not press Tab until the end: a Firefox window that has lost the focus receives no key events.
    """
    page.evaluate(
        "() => { const { body } = document; body.tabIndex = -1; body.focus(); body.removeAttribute('tabindex'); }"
    )


def stops(page: Page) -> list[dict[str, Any]]:
    """Return the elements of the page in Tab order."""
    found: list[dict[str, Any]] = []
    leave(page)
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        now: dict[str, Any] = page.evaluate(STATE)
        if now["body"] or (found and now["path"] == found[0]["path"]):
            return found
        assert not found or now["path"] != found[-1]["path"], f"Tab does not leave {now['name']}"
        found.append(now)
    return found


def kind(stop: dict[str, Any]) -> str:
    """Return a key that is equal for similar stops, such as rows of a table, so that one of them is tried."""
    return re.sub(r"\d+", "", f"{stop['tag']} {stop['type']} {stop['role']} {re.sub(r'/[0-9]+', '/', stop['path'])}")


def actions(found: list[dict[str, Any]], *, head: bool) -> list[int]:
    """Return the numbers of the stops that act on the page, one of each kind; `head` adds stops outside of the view."""
    once: dict[str, int] = {}
    for number, stop in enumerate(found):
        leaves = stop["download"] or stop["place"].startswith(("/docs", "/v1", "/problems", "http", "#"))
        does = stop["tag"] not in {"PRE", "DIV"} or stop["role"] == "grid"
        if does and not leaves and (head or stop["inside"]):
            key = f"{stop['name']}" if stop["tag"] in {"BUTTON", "SELECT", "SUMMARY", "INPUT"} else ""
            once.setdefault(kind(stop) + key, number)
    return [*once.values()]


def key_of(stop: dict[str, Any]) -> str:
    if stop["tag"] in {"INPUT", "TEXTAREA"} and stop["type"] not in KEYS:
        return "a"
    return KEYS.get(stop["tag"]) or KEYS.get(stop["type"]) or "Enter"


def difference(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return sorted({*before["shown"].split("\n")} ^ {*after["shown"].split("\n")})[:9]


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Add the current stop to the message of a failed assertion."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from None


@pytest.mark.parametrize("view", VIEWS)
def test_every_action_of_every_view_is_done_by_keys_and_announced(context: BrowserContext, view: str) -> None:
    page = at(context, VIEWS[view])
    found = stops(page)
    assert len(found) > 5
    assert all(stop["name"] for stop in found if stop["role"] != "grid" and stop["tag"] != "PRE")
    page.close()
    for number in actions(found, head=view == "library"):
        stop = found[number]
        page = at(context, VIEWS[view])
        leave(page)
        for _ in range(number + 1):
            page.keyboard.press("Tab")
        before = settled(page)
        with explained(f"{key_of(stop)} at {stop['tag']} {stop['name'] or stop['path']!r}"):
            after = press(page, key_of(stop))
            changed = before["shown"] != after["shown"]
            heard = after["said"] > before["said"] or any(after[each] != before[each] for each in ("path", "state"))
            # The numbers on the operations page change without an action.
            assert heard or not changed or view == "operations", f"nothing is announced of {difference(before, after)}"
            # After the page goes back, the earlier content is here again.
            if before["url"] != after["url"] and page.evaluate("history.length") > 2:
                page.go_back()
                now = settled(page)
                assert not now["body"], "Back lost the focus"
        page.close()


def heard(page: Page) -> list[str]:
    said: list[str] = page.evaluate("window.said")
    return said


def tab_to(page: Page, name: str) -> None:
    """Press Tab until the element with that name has the focus."""
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        if page.evaluate(STATE)["name"].startswith(name):
            return
    raise AssertionError(f"Tab does not reach {name}")


def test_tiles_say_what_their_color_means_and_a_drawer_gives_the_focus_back(context: BrowserContext) -> None:
    page = at(context, "/m/bert:1")
    name, focused = "encoder.layer.0.attention.query.weight", page.locator(".tile:focus .unseen")
    tab_to(page, "encoder.layer.0.attention.key")
    press(page, "ArrowRight")
    expect(focused).to_have_text(f"{name}, 256 KiB, attention")
    expect(page.locator(".tip")).to_contain_text("F32 256 × 256")
    press(page, "Enter")
    expect(page.get_by_role("complementary", name="Tensor")).to_be_focused()
    assert name in " ".join(heard(page))
    press(page, "Escape")
    expect(focused).to_contain_text(name)
    page.goto("/m/bert:1?colour=deviation")
    tab_to(page, "encoder.layer.0.attention.key")
    expect(focused).to_contain_text("Standard deviation 0.02")


def test_a_screen_reader_that_focuses_another_tile_acts_on_it(context: BrowserContext) -> None:
    page = at(context, "/m/bert:1")
    page.locator(".tile", has_text="query").last.focus()
    name = page.evaluate(STATE)["name"].split(",")[0]
    page.keyboard.press("Enter")
    expect(page.locator(".drawer h2")).to_have_text(name)


def test_copying_is_announced(context: BrowserContext) -> None:
    page = at(context, "/m/bert:1")
    tab_to(page, "Use this model")
    press(page, "Enter")
    tab_to(page, "Copy the CLI command")
    press(page, "Enter")
    assert "Copied the CLI command" in heard(page)


def test_an_upload_that_ends_on_another_view_is_announced(context: BrowserContext, tmp_path: Path) -> None:
    (tmp_path / "later.txt").write_text(f"later in {context.browser}")
    page, held = at(context, "/"), list[Route]()
    page.route("**/v1/stores/assemble", lambda route: held.append(route))
    page.get_by_label("Files to upload").set_input_files(tmp_path / "later.txt")
    expect(page.locator(".sending")).to_contain_text("indexing")
    tab_to(page, "Operations")
    press(page, "Enter")
    held.pop().continue_()
    expect(page.locator("body > [aria-live]")).to_contain_text("later.txt: stored")


def test_each_view_has_one_live_region(context: BrowserContext) -> None:
    for place in VIEWS.values():
        page = at(context, place)
        assert page.locator("[aria-live], [role=status], [role=alert], [role=log], output").count() == 1, place
        page.close()


def test_a_view_that_could_not_load_is_loaded_once_asked_again(context: BrowserContext) -> None:
    """Firefox never fetches a failed module again, so its scripts are fetched before they are imported."""
    page = context.new_page()
    page.goto("/?of=repositories")
    expect(page.locator(".cards li").first).to_be_visible()
    page.route("**/assets/**", lambda route: route.abort())
    page.get_by_role("link", name="Operations").press("Enter")
    again = page.get_by_role("button", name="Try again")
    expect(page.locator("main .trouble")).to_contain_text("check your connection")
    page.unroute("**/assets/**")
    again.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Operations")).to_be_visible()
    expect(page.locator(".trouble")).to_have_count(0)
