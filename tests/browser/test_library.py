"""The page's library in a browser: versions, differences, search and pages: `make browser`."""

from __future__ import annotations

import re

import httpx
import pytest
from onnx import helper
from playwright.sync_api import BrowserContext, expect
from tests.browser.windows import opened, violations
from tests.server.registries.test_oci import descriptor, push, put_manifest
from tests.support.hub import commit
from tests.support.serve import ServiceProcess
from tests.support.stores import onnx

NUMBER = 55
"""The number of stores in addition to those with versions; they are more than one page shows."""


@pytest.fixture(scope="module")
def service(service: ServiceProcess) -> ServiceProcess:
    """Run a service with three versions of a model, two of one type, and with many other stores."""
    graph = [helper.make_graph([], f"version {n}", [], []) for n in (2, 3)]
    models = [helper.make_model(each).SerializeToString() for each in graph]
    for number in range(NUMBER):
        _put(service, f"n.txt&tag=notes-{number:02}", f"{number}".encode())
    _put(service, "m.bin&tag=model:1", b"first version")
    _put(service, "m.onnx&tag=model:2&tag=proven", models[0])
    _put(service, "m.onnx&tag=model:3", models[1])
    return service


def _put(service: ServiceProcess, query: str, content: bytes) -> None:
    httpx.put(f"{service.url}/v1/stores?filename={query}", content=content, timeout=60).raise_for_status()


def test_versions_stand_together_and_a_click_tells_what_changed(context: BrowserContext) -> None:
    page = opened(context, "/")
    card = page.locator(".cards li").first
    expect(card.get_by_role("link").first).to_contain_text("model3onnx.ModelProto")
    expect(card.get_by_role("link")).to_have_text([re.compile("^model3"), "changes since 2", "2", "proven", "1"])
    card.get_by_role("link", name="changes since").click()
    expect(page).to_have_url(re.compile(r"/diff/model%3A2\.\.\.model%3A3$"))
    expect(page.get_by_role("list", name="Number of changes")).to_contain_text("part")


def test_a_version_before_that_the_list_does_not_show_is_found(context: BrowserContext) -> None:
    page = opened(context, "/?tag=model:2")
    page.get_by_role("link", name="latest changes").click()
    expect(page).to_have_url(re.compile(r"/diff/model%3A1\.\.\.model%3A2$"))
    page.goto("/diff/...model%3A1")
    expect(page.locator("main")).to_have_text("model:1 is the first version, so there is nothing to compare it with.")


def test_stores_are_searched_filtered_and_paged(context: BrowserContext) -> None:
    page = opened(context, "/")
    cards = page.locator(".cards li")
    expect(cards).to_have_count(48)  # a page of 50, of which three share one name
    page.get_by_role("button", name="More").click()
    expect(cards).to_have_count(NUMBER + 1)
    expect(page.get_by_role("button", name="More")).to_have_count(0)
    page.get_by_role("combobox", name="Type").select_option("onnx.ModelProto")
    expect(cards).to_have_count(1)
    expect(cards.first).not_to_contain_text("changes since 1")
    page.get_by_role("combobox", name="Type").select_option("")
    page.get_by_role("searchbox").press_sequentially("notes-5")
    expect(page).to_have_url(re.compile(r"\?name=notes-5$"))
    expect(cards).to_have_count(NUMBER - 50)
    expect(cards.first).to_contain_text("1 file")
    assert violations(context, page) == "[]"
    page.get_by_role("searchbox").fill("nothing")
    expect(page.locator("main")).to_contain_text("No matches for “nothing”")
    page.get_by_role("button", name="Show all").click()
    page.get_by_role("searchbox").fill("ODE")
    expect(cards).to_have_count(1)
    expect(cards).to_contain_text("model")
    page.get_by_role("searchbox").fill("")
    page.get_by_role("combobox", name="Sort").select_option("Largest first")
    expect(page).to_have_url(re.compile(r"\?sort=-size$"))
    expect(cards.first).to_contain_text("model")
    page.get_by_role("combobox", name="Sort").select_option("By name")
    expect(cards.nth(1)).to_contain_text("notes-00")


def test_back_keeps_the_place_in_the_list(context: BrowserContext) -> None:
    page = opened(context, "/")
    cards = page.locator(".cards li")
    page.get_by_role("button", name="More").click()
    expect(cards).to_have_count(NUMBER + 1)
    card = cards.nth(NUMBER - 3)
    name, height = card.locator("strong").inner_text(), page.evaluate("document.body.scrollHeight")
    card.scroll_into_view_if_needed()
    top = page.evaluate("scrollY")
    assert top > 500
    card.get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    assert page.evaluate("scrollY") == 0
    page.go_back()
    expect(cards).to_have_count(NUMBER + 1)
    page.wait_for_function("top => Math.abs(scrollY - top) < 5", arg=top)
    assert abs(page.evaluate("document.body.scrollHeight") - height) < 5
    expect(card.locator("strong")).to_be_in_viewport()


def test_repositories_stand_beside_models_and_open_their_heads(
    context: BrowserContext, service: ServiceProcess
) -> None:
    with httpx.Client(base_url=service.url, timeout=60) as client:
        client.post("/api/repos/create", json={"organization": "ann", "name": "bert"})
        client.post("/api/repos/create", json={"organization": "ann", "name": "empty"})
        for number in (1, 2):
            model = helper.make_model(helper.make_graph([], f"commit {number}", [], [])).SerializeToString()
            assert commit(client, "models/ann/bert", {"m.onnx": model}).status_code == 200
            client.post("/api/models/ann/bert/tag/main", json={"tag": f"v{number}"})
    page = opened(context, "/")
    page.get_by_role("button", name="Repositories").click()
    expect(page).to_have_url(re.compile(r"\?of=repositories$"))
    cards = page.locator(".cards li")
    expect(cards).to_have_text(
        [re.compile("^ann/bertmainHugging Face · onnx.ModelProto"), re.compile("^ann/empty.*empty")]
    )
    page.get_by_role("searchbox").press_sequentially("ann/b")
    expect(cards).to_have_count(1)
    assert violations(context, page) == "[]"
    cards.get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(r"/m/ann%2Fbert%40main$"))
    versions = page.get_by_role("combobox", name="Version")
    expect(versions.locator("option")).to_have_count(3)
    versions.select_option("v1")
    expect(page.get_by_role("heading", level=1)).to_have_text("ann/bert@v1")
    page.go_back()
    page.get_by_role("link", name="latest changes").click()
    expect(page).to_have_url(re.compile(r"/diff/[0-9a-f]{40}\.\.\.ann%2Fbert%40main$"))
    expect(page.get_by_role("list", name="Number of changes")).to_contain_text("part")
    page.goto("/diff/...ann%2Fbert@v2")
    expect(page).to_have_url(re.compile(r"/diff/[0-9a-f]{40}\.\.\.ann%2Fbert%40v2$"))


def test_a_repository_whose_name_is_no_reference_has_its_versions_too(
    context: BrowserContext, service: ServiceProcess
) -> None:
    """A name without a slash is taken for a store's tag, so addresses have it next to the store's id."""
    with httpx.Client(base_url=service.url, timeout=60) as client:
        for tag in ("v1", "v2"):
            model = helper.make_model(helper.make_graph([], f"image {tag}", [], [])).SerializeToString()
            push(client, model, "/v2/plain")
            put_manifest(client, tag, "/v2/plain", layers=[descriptor(model, "m.onnx")]).raise_for_status()
    page = opened(context, "/?of=repositories&tag=plain")
    card = page.locator(".cards li")
    expect(card).to_have_count(1)
    card.get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("plain")
    page.get_by_role("tab", name="Files").click()
    versions = page.get_by_role("combobox", name="Version")
    expect(versions.locator("option:checked")).to_have_text("v2")
    versions.select_option("v1")
    expect(versions.locator("option:checked")).to_have_text("v1")
    page.go_back()
    expect(versions.locator("option:checked")).to_have_text("v2")
    assert violations(context, page) == "[]"
    page.get_by_role("link", name="latest changes").click()
    expect(page).to_have_url(re.compile(r"/diff/[0-9a-f]{64}\.\.\.[0-9a-f]{64}$"))
    expect(page.get_by_role("list", name="Number of changes")).to_contain_text("part")


def test_names_in_registries_are_shown_with_a_store(service: ServiceProcess, context: BrowserContext) -> None:
    with httpx.Client(base_url=service.url) as client:
        client.post("/api/repos/create", json={"organization": "ann", "name": "shown"})  # exists on the second screen
        commit(client, "models/ann/shown", {"m.bin": b"shown by name"}).raise_for_status()
        store = client.get("/v1/stores/ann%2Fshown@main").json()["id"]
        client.put("/v1/tags/shown:1", json={"store": store}).raise_for_status()
    page = opened(context, "/?tag=shown:")
    expect(page.locator(".cards li")).to_contain_text("ann/shown@main")
    page.locator(".cards li").get_by_role("link").first.click()
    expect(page.locator("header.model")).to_contain_text("Names: ann/shown@main")
    assert violations(context, page) == "[]"


def test_a_leaf_fills_the_treemap(context: BrowserContext, service: ServiceProcess) -> None:
    _put(service, "m.onnx&tag=leaf", onnx(80_000))
    page = opened(context, "/m/leaf/bytes?path=graph.initializer[0].raw_data")
    drawn = page.locator("main canvas").evaluate(
        "canvas => new Set(canvas.getContext('2d').getImageData(0, 0, canvas.width, 80).data).size"
    )
    assert drawn > 1
