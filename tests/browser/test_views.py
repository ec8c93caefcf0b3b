"""The page in a real browser: `make browser`; needs Debian's chromium and Playwright.

If `PROTOSLICE_SCREENSHOTS` names a folder, a picture of each view is saved there: `make screenshots`.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Request, Route, expect
from tests.browser.windows import opened, violations, window
from tests.support.golden import MODELS as GOLDEN
from tests.support.hub import commit
from tests.support.serve import ServiceProcess, service_process
from tests.support.streams import FRAMED, example

from protoslice.server.pages.html import assets

MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>"
VIEWS = {
    "library": "/",
    "repositories": "/?of=repositories",
    "weights": "/m/bert:1",
    "bytes": "/m/bert:1/bytes",
    "tensors": "/m/bert:1/tensors?tensor=path:graph.initializer[3]",
    "graph": "/m/bert:1/graph",
    "neighbours": "/m/bert:1/graph?around=layer.3/attention/softmax&node=graph.node[60]",
    "message": "/m/bert:1/message?path=graph.node[3]",
    "files": "/m/bert:1/files",
    "records": "/m/events/records?from=2990&record=2992",
    "rootless": "/m/notes",
    "diff": "/diff/bert:1...bert:2",
    "part": "/diff/bert:1...bert:2?at=part graph.node[7].op_type",
    "operations": "/operations",
}
FOLDERS = {
    "whisper:2": "coreml_mlprogram",
    "ocr:3": "paddle_separate",
    "mnist:1": "tf_sm_keras",
    "step:1": "hlo_jax_constants",
}
FIRST = 48 << 10
"""The compressed bytes of the page's document, scripts and style that a view may need."""
SHOTS = os.environ.get("PROTOSLICE_SCREENSHOTS")


def _model(version: int = 1) -> bytes:
    """A model of a hundred named tensors; one has markup as its name, and one has no elements.

    In the second version one layer was trained further, another layer has new names, and a node has another operator.
    """
    random = np.random.default_rng(1)
    tensors = [numpy_helper.from_array(random.standard_normal((2000, 256)).astype("<f4"), "embeddings.word.weight")]
    for layer in range(6):
        for part in ("attention.query", "attention.key", "attention.value", "attention.output", "ffn.in", "ffn.out"):
            array = (random.standard_normal((256, 256)) * 0.02).astype("<f2" if "ffn" in part else "<f4")
            if (version, layer) == (2, 3):
                array = array + array.std() * 0.05
            name = f"encoder.layer.{layer}.{part}.weight"
            tensors.append(
                numpy_helper.from_array(array, name.replace("layer", "block") if (version, layer) == (2, 5) else name)
            )
    tensors.append(numpy_helper.from_array(np.full((300, 300), np.nan, "<f4"), MARKUP))
    tensors += [numpy_helper.from_array(np.zeros(1, "<f4"), f"größe.שלום.{n}") for n in range(3000)]
    nodes = [helper.make_node("MatMul", [f"x{n}", "w"], [f"x{n + 1}"], name=f"matmul_{n}") for n in range(20)]
    nodes += [node for layer in range(6) for node in _layer(layer)]
    if version == 2:
        nodes[7].op_type = "Gemm"
    return helper.make_model(helper.make_graph(nodes, MARKUP, [], [], tensors)).SerializeToString()


def _layer(number: int) -> Iterator[onnx.NodeProto]:
    """The nodes of an encoder's layer, in their order."""
    place, weight = f"layer.{number}", f"encoder.layer.{number}"
    steps = [
        ("attention/query", "MatMul", "", [f"{weight}.attention.query.weight"]),
        ("attention/key", "MatMul", "", [f"{weight}.attention.key.weight"]),
        ("attention/value", "MatMul", "", [f"{weight}.attention.value.weight"]),
        ("attention/scores", "MatMul", "attention/query attention/key", []),
        ("attention/softmax", "Softmax", "attention/scores", []),
        ("attention/context", "MatMul", "attention/softmax attention/value", []),
        ("attention/output", "MatMul", "attention/context", [f"{weight}.attention.output.weight"]),
        ("attention/add", "Add", "attention/output in", []),
        ("ffn/in", "MatMul", "attention/add", [f"{weight}.ffn.in.weight"]),
        ("ffn/gelu", "Gelu", "ffn/in", []),
        ("ffn/out", "MatMul", "ffn/gelu", [f"{weight}.ffn.out.weight"]),
        ("add", "Add", "ffn/out attention/add", []),
    ]
    before = f"layer.{number - 1}/add" if number else "x20"
    for name, op, takes, weights in steps:
        inputs = [before if each == "in" else f"{place}/{each}" for each in (takes or "in").split()]
        more: dict[str, Any] = {"axis": -1} if op == "Softmax" else {}
        yield helper.make_node(op, [*inputs, *weights], [f"{place}/{name}"], name=f"{place}/{name}", **more)


@pytest.fixture(scope="module")
def service(service: ServiceProcess) -> ServiceProcess:
    """A service with the model and a store without a root."""
    assert assets(), "build the page first: make web"
    with httpx.Client(base_url=service.url, timeout=60) as client:
        for name in ("bert-base", "resnet-50", "whisper-small"):
            client.post("/api/repos/create", json={"organization": "ann", "name": name})
        for number, title in enumerate(("first", "train layer 3 on"), 1):
            files = {"model.onnx": _model(number), "README.md": title.encode()}
            assert commit(client, "models/ann/bert-base", files).status_code == 200
        commit(client, "models/ann/resnet-50", {"model.onnx": _model(), "config.json": b"{}", "labels.txt": b"cat"})
        path = "/api/2.0/mlflow-artifacts/artifacts/7/models/m-7b0d2c/artifacts/model.onnx"
        client.put(path, content=_model()).raise_for_status()
    for tag, folder in FOLDERS.items():
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for file in (GOLDEN / folder).rglob("*"):
                if file.is_file() and file.name not in {"expected.json", "how.txt"}:
                    tar.add(file, file.relative_to(GOLDEN / folder))
        headers = {"content-type": "application/x-tar"}
        httpx.put(f"{service.url}/v1/stores?tag={tag}", content=packed.getvalue(), headers=headers, timeout=60)
    models = (("bert.onnx&tag=bert:1", _model()), ("bert.onnx&tag=bert:2", _model(2)))
    events = ("events.tfrecord&tag=events", FRAMED["tfrecord"]([example(number) for number in range(3000)]))
    for query, content in (*models, events, ("notes.txt&tag=notes", b"hello")):
        httpx.put(f"{service.url}/v1/stores?filename={query}", content=content, timeout=60).raise_for_status()
    return service


@pytest.mark.parametrize("screen", ["wide", "phone"])
def test_who_is_not_known_is_asked_to_sign_in(browser: Browser, tmp_path: Path, screen: str) -> None:
    settings = {"PROTOSLICE_AUTH": "tokens"}
    with (
        service_process("--storage", tmp_path.as_uri(), settings=settings) as closed,
        window(browser, closed.url, screen, may_say="Failed to load resource") as context,
    ):
        page = opened(context, "/")
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        assert violations(context, page) == "[]"
        shot(page, f"sign-in-{screen}")
        page.get_by_label("Token").fill("psl_wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator(".trouble")).to_be_visible()


def test_nothing_at_an_address_is_told_with_a_way_back(browser: Browser, service: ServiceProcess) -> None:
    with window(browser, service.url, may_say="Failed to load resource") as context:
        for place in ("/m/no:1", "/diff/...no:1"):
            page = opened(context, place)
            expect(page.get_by_role("heading", level=1)).to_have_text("Not found")
            assert violations(context, page) == "[]"
            page.get_by_role("link", name="Back to the library").click()
            expect(page.locator(".cards li").first).to_be_visible()


def test_a_service_that_is_away_is_told_in_words(browser: Browser, service: ServiceProcess) -> None:
    with window(browser, service.url, may_say="Failed to load resource") as context:
        page = opened(context, "/")
        page.route("**/v1/**", lambda route: route.abort())
        page.get_by_role("button", name="Repositories").click()
        expect(page.locator(".trouble")).to_contain_text("Cannot reach the service")
        page.unroute("**/v1/**")
        page.get_by_role("button", name="Models").click()
        expect(page.locator(".cards li").first).to_be_visible()
        expect(page.locator(".trouble")).to_have_count(0)


PICTURED = ("library", "repositories", "records", "operations", "sign-in")
"""The views with a picture in the documentation; `real_models.py` takes the pictures of models."""


def shot(page: Page, name: str) -> None:
    """Save a picture if pictures are wanted."""
    if SHOTS is not None and name.rpartition("-")[0] in PICTURED:
        page.screenshot(path=Path(SHOTS) / f"{name}.png")


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_whole_and_can_be_used_by_everybody(
    context: BrowserContext, view: str, request: pytest.FixtureRequest
) -> None:
    page = opened(context, VIEWS[view])
    expect(page.locator("main")).not_to_contain_text("Loading")
    expect(page.locator(".tiles")).not_to_contain_text("…") if view == "operations" else None
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the window"
    assert violations(context, page) == "[]"
    shot(page, f"{view}-{request.node.callspec.params['context']}")


def test_no_view_scrolls_sideways_at_320_pixels_and_fields_and_choices_have_edges(
    browser: Browser, service: ServiceProcess
) -> None:
    """WCAG 1.4.10 and 1.4.11, and choices in forced colors, which hide backgrounds and shadows."""
    chosen = "[aria-pressed=true], [role=tab][aria-selected=true], nav [aria-current], .chosen, :focus-visible"
    with window(browser, service.url) as context:
        page = context.new_page()
        page.set_viewport_size({"width": 320, "height": 700})
        page.emulate_media(forced_colors="active")
        wide, plain = {}, {}
        for view, place in VIEWS.items():
            page.goto(place)
            page.wait_for_load_state("networkidle")
            page.keyboard.press("Tab")
            wide[view] = page.evaluate("document.documentElement.scrollWidth")
            plain[view] = page.locator(chosen).evaluate_all(
                "all => all.filter(each => getComputedStyle(each).outlineStyle === 'none').map(each => each.outerHTML)"
            )
        assert {view: width for view, width in wide.items() if width > 320} == {}
        assert {view: found for view, found in plain.items() if found} == {}
        for scheme in ("light", "dark"):
            page.emulate_media(forced_colors="none", color_scheme="dark" if scheme == "dark" else "light")
            page.goto("/")
            edge, inside = page.get_by_role("searchbox").evaluate(
                "field => [getComputedStyle(field).borderTopColor, getComputedStyle(field).backgroundColor]"
            )
            assert _contrast(edge, inside) >= 3, scheme


def _contrast(one: str, other: str) -> float:
    """Return the contrast of two colors as WCAG defines it."""
    lights = []
    for color in (one, other):
        parts = [int(each) / 255 for each in re.findall(r"\d+", color)[:3]]
        red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
        lights.append(0.2126 * red + 0.7152 * green + 0.0722 * blue)
    return (max(lights) + 0.05) / (min(lights) + 0.05)


@pytest.mark.parametrize("view", VIEWS)
def test_a_link_to_any_view_loads_little(browser: Browser, service: ServiceProcess, view: str) -> None:
    with window(browser, service.url) as context:
        page, loaded = context.new_page(), list[Request]()
        page.on("requestfinished", lambda request: loaded.append(request))
        page.goto(VIEWS[view])
        page.wait_for_load_state("networkidle")
        own = [each for each in loaded if each.resource_type in {"document", "script", "stylesheet"}]
        size = sum(each.sizes()["responseBodySize"] for each in own)
    assert {each.resource_type for each in own} == {"document", "script", "stylesheet"}
    assert size <= FIRST


def test_all_parts_of_the_page_are_small() -> None:
    packed = [asset.coded["br"] for asset in assets().values()]
    assert sum(map(len, packed)) <= 150 << 10


def test_the_tree_is_walked_by_keys(context: BrowserContext) -> None:
    page = opened(context, "/m/bert:1/bytes")
    items = page.get_by_role("treeitem")
    expect(page.get_by_role("treeitem", name="initializer")).to_be_visible()
    items.first.focus()
    page.keyboard.press("End")
    expect(page.get_by_role("treeitem", name="opset_import")).to_be_focused()
    page.keyboard.press("Home")
    expect(items.first).to_be_focused()
    for name in ("graph", "node", "name", "initializer"):
        page.keyboard.press("ArrowDown")
        expect(page.locator("[role=treeitem]:focus .what")).to_have_text(name)
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("treeitem", name="initializer").first).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="view message")).to_have_attribute(
        "href", "/m/bert%3A1/message?path=graph.initializer"
    )


def test_tensors_are_found_sorted_and_opened_by_keys(context: BrowserContext) -> None:
    page = opened(context, "/m/bert:1/tensors")
    rows = page.get_by_role("row")
    expect(rows.nth(1)).to_contain_text("embeddings.word.weight")
    assert rows.count() < 80, "only the rows in sight are in the page"
    page.get_by_role("searchbox").fill("LAYER.3 query")
    expect(page.locator("[data-said]").first).to_have_text("1 tensor")
    page.get_by_role("searchbox").fill("")
    expect(rows.nth(1)).to_contain_text("embeddings")
    page.get_by_role("grid").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    drawer = page.get_by_role("complementary", name="Tensor")
    expect(drawer).to_contain_text("Exact: all")
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)
    grid: Locator = page.get_by_role("grid")
    grid.focus()
    page.keyboard.press("End")
    page.keyboard.press("End")
    expect(rows.last).to_contain_text("größe")


def test_tensors_are_found_by_an_expression_and_gone_through_by_groups(context: BrowserContext) -> None:
    page = opened(context, "/m/bert:1/tensors")
    page.get_by_role("combobox", name="Search mode").select_option("Regex")
    page.get_by_role("searchbox").fill(r"layer\.(1|3)\..*(key|value)\.weight$")
    expect(page.locator("[data-said]").first).to_have_text("4 tensors")
    page.get_by_role("searchbox").fill("")
    page.get_by_role("checkbox", name="Group by name").check()
    rows = page.get_by_role("row")
    expect(rows.nth(3)).to_contain_text("▸ encoder.layer")
    expect(rows.nth(3)).to_contain_text("36 tensors" if page.viewport_size == {"width": 1360, "height": 860} else "▸")
    page.get_by_role("grid").focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    expect(page).to_have_url(re.compile(r"prefix=encoder\.layer\."))
    expect(rows).to_have_count(7)
    rows.nth(4).click()
    expect(page.get_by_role("navigation", name="Group")).to_contain_text("3.")
    expect(rows.nth(1)).to_contain_text("▸ attention")
    assert violations(context, page) == "[]"
    page.get_by_role("navigation", name="Group").get_by_role("button", name="all").click()
    expect(rows.nth(3)).to_contain_text("▸ encoder.layer")


def test_of_many_groups_small_neighbors_are_one_row(context: BrowserContext) -> None:
    page = opened(context, "/m/bert:1/tensors?grouped=1&prefix=größe.")
    rows, way = page.get_by_role("row"), page.get_by_role("navigation", name="Group")
    expect(rows.nth(1)).to_contain_text("0–")
    rows.nth(2).click()
    expect(page).to_have_url(re.compile(r"range=\d+-31$"))
    expect(way).to_contain_text(re.compile("all.*größe.*שלום.*–"))
    expect(rows.nth(1)).to_have_text(re.compile("^3[0-9]F32"))
    expect(page.locator("[data-said]").first).to_have_text("31 tensors")
    page.go_back()
    expect(page.locator("[data-said]").first).to_have_text("97 groups")
    assert violations(context, page) == "[]"


def test_an_expression_that_is_none_is_told(browser: Browser, service: ServiceProcess) -> None:
    with window(browser, service.url, may_say="Failed to load resource") as context:
        page = opened(context, "/m/bert:1/tensors?regex=(")
        expect(page.locator(".trouble")).to_contain_text("unclosed group")


def test_the_table_is_scrolled_to_anywhere_at_once(context: BrowserContext) -> None:
    page = opened(context, "/m/bert:1/tensors?sort=name")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    grid = page.get_by_role("grid")
    expect(grid).to_have_attribute("aria-rowcount", "3039")
    grid.evaluate("grid => { grid.scrollTop = 2000 * 33; }")
    expect(page.locator("#row-2004")).to_contain_text("größe.שלום.")
    assert len([each for each in asked if "/tensors?" in each]) == 1, "rows between are not asked for"


def test_a_record_is_found_by_its_number_and_read_by_keys(context: BrowserContext) -> None:
    page = opened(context, "/m/events")
    page.get_by_role("tab", name="Records").click()
    expect(page.locator("[data-said]").first).to_contain_text("3,000 records")
    page.get_by_role("spinbutton", name="Number of a record").fill("2996")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/m/events/records\?from=2996&record=2996$"))
    rows = page.get_by_role("row")
    expect(rows.nth(1)).to_contain_text("2,996")
    drawer = page.get_by_role("complementary", name="Record")
    expect(drawer).to_contain_text("value: 2996")
    drawer.get_by_role("combobox", name="Format").select_option("JSON")
    expect(drawer).to_contain_text('"2996"')
    page.get_by_role("grid").focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    expect(drawer).to_contain_text("value: 2998")
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)
    page.get_by_role("button", name="Previous").click()
    expect(rows.nth(1)).to_contain_text("2,796")


def test_a_graph_is_walked_by_keys_and_leads_to_weights(context: BrowserContext) -> None:
    page = opened(context, "/m/bert:1/graph?around=layer.3/attention/scores&hops=1")
    node = page.get_by_role("button", name="layer.3/attention/scores")
    expect(page.locator("[data-said]").first).to_have_text("4 nearby nodes")
    node.focus()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("complementary", name="Node")).to_contain_text("layer.3/attention/query")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+Enter")
    expect(page).to_have_url(re.compile(r"around=graph\.node%5B60%5D"))
    expect(page.locator("[data-said]").first).to_have_text("3 nearby nodes")
    page.goto("/m/bert:1/graph?around=layer.3/attention/query&node=graph.node[56]")
    page.get_by_role("link", name="encoder.layer.3.attention.query.weight").click()
    expect(page.get_by_role("complementary", name="Tensor")).to_contain_text("F32")
    page.get_by_role("link", name="in the graph").click()
    expect(page.get_by_role("button", name="MatMul layer.3/attention/query", exact=False).first).to_be_visible()


def test_a_node_is_searched_for_and_the_same_stands_in_a_table(context: BrowserContext) -> None:
    page = opened(context, "/m/bert:1/graph")
    page.get_by_role("searchbox").fill("softmax LAYER.2")
    table = page.get_by_role("region", name="Nodes found")
    expect(table.get_by_role("button")).to_have_text(["layer.2/attention/softmax"])
    table.get_by_role("button").click()
    expect(page.get_by_role("treeitem", name="Softmax, layer.2/attention/softmax", exact=False)).to_be_visible()
    page.get_by_role("button", name="Show nearby nodes").click()
    page.locator("main").get_by_text("Show as a table").click()
    expect(page.get_by_role("region", name="Nearby nodes").get_by_role("row")).to_have_count(8)


def test_changes_are_shown_with_their_distances(context: BrowserContext) -> None:
    page = opened(context, "/m/bert:2")
    page.get_by_role("link", name="changes since 1").click()
    expect(page).to_have_url(re.compile(r"/diff/bert%3A1\.\.\.bert%3A2$"))
    counts = page.get_by_role("list", name="Number of changes")
    for output in ("6 tensors changed", "6 tensors renamed", "1 part changed"):
        expect(counts).to_contain_text(output)
    rows = page.get_by_role("grid", name="Changes")
    expect(rows).to_contain_text("encoder.layer.3.attention.key.weight")
    expect(rows).to_contain_text('"MatMul" → "Gemm"')
    rows.get_by_text("encoder.layer.3.attention.key.weight", exact=True).first.click()
    drawer = page.get_by_role("complementary", name="Tensor")
    expect(drawer).to_contain_text("Exact: all 65,536 elements.")
    expect(drawer).to_contain_text("cosine")
    assert violations(context, page) == "[]"
    drawer.get_by_role("link", name="After").click()
    expect(page).to_have_url(re.compile("/m/bert%3A2/tensors"))


def test_renamed_tensors_are_renamed_in_both_pictures(context: BrowserContext) -> None:
    page = opened(context, "/diff/bert:1...bert:2")
    expect(page.get_by_role("list", name="Number of changes")).to_contain_text("6 tensors renamed")
    strip = page.get_by_role("region", name="Changes by layer")
    strip.get_by_role("group").focus()
    said = set()
    for _ in range(20):
        page.keyboard.press("ArrowRight")
        for _ in range(8):
            page.keyboard.press("ArrowDown")
            said.add(strip.locator("[data-said]").last.inner_text())
        for _ in range(8):
            page.keyboard.press("ArrowUp")
            said.add(strip.locator("[data-said]").last.inner_text())
    assert sum(int(found[1]) for each in said if (found := re.search(r"(\d+) renamed", each))) == 6
    assert not [each for each in said if re.search("added|removed", each)]


def test_a_comparison_shows_how_far_it_is_until_it_is_done(context: BrowserContext) -> None:
    page, read, asked = context.new_page(), [1 << 30], list[str]()

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(status=202, json={"read": read[-1], "size": 10 << 30}) if read else route.continue_()

    page.route("**/diff?*", answer)
    page.goto("/diff/bert:1...bert:2")
    bar = page.get_by_role("progressbar", name="Bytes compared")
    for so_far in (1, 3):
        read.append(so_far << 30)
        expect(bar.locator("..")).to_have_text(f"Loading: comparing all bytes … {so_far}.0 GiB of at most 10.0 GiB")
        expect(bar).to_have_js_property("value", so_far << 30)
    read.clear()
    expect(page.get_by_role("list", name="Number of changes")).to_be_visible()
    expect(bar).to_have_count(0)
    assert all("wait=1" in each for each in asked)


def test_layers_that_moved_are_found_by_keys_and_linked(context: BrowserContext) -> None:
    page = opened(context, "/diff/bert:1...bert:2")
    strip = page.get_by_role("region", name="Changes by layer")
    told = strip.locator("[data-said]")
    expect(told.first).to_have_text(re.compile("^3,038 tensors compared, by a sample of their elements$"))
    strip.get_by_role("group").focus()
    page.keyboard.press("ArrowRight")
    for _ in range(20):
        if re.search(r"layer\.3 · attention", told.last.inner_text()):
            break
        page.keyboard.press("ArrowDown" if "layer.3" in told.last.inner_text() else "ArrowRight")
    expect(told.last).to_contain_text(
        re.compile(r"encoder\.layer\.3 · attention · 4 tensors · Relative change: up to 0\.05")
    )
    page.keyboard.press("Enter")
    rows = page.get_by_role("grid", name="Changes").get_by_role("row")
    expect(rows).to_have_count(5)
    rows.nth(1).click()
    drawer = page.get_by_role("complementary", name="Tensor")
    for title in ("Before", "After", "Difference"):
        expect(drawer.get_by_role("heading", name=title)).to_be_visible()
    expect(drawer.locator("canvas")).to_have_count(3)
    assert violations(context, page) == "[]"
    again = opened(context, page.url)
    expect(again.get_by_role("grid", name="Changes").get_by_role("row")).to_have_count(5)
    expect(again.get_by_role("complementary", name="Tensor").locator("canvas")).to_have_count(3)
    again.get_by_role("button", name="Show all").click()
    expect(again.get_by_role("grid", name="Changes").get_by_role("row")).not_to_have_count(5)
    again.get_by_role("combobox", name="Show").select_option("max |Δ|")
    expect(again).to_have_url(re.compile("metric=max"))


def test_what_is_taken_for_equal_by_checksums_is_said_and_compared_on_demand(
    context: BrowserContext, service: ServiceProcess
) -> None:
    """Two large tensors are the same in both versions, which were uploaded whole."""
    random = np.random.default_rng(5)
    arrays = {name: random.standard_normal((512, 512)).astype("<f4") for name in ("first", "second", "third")}
    for number, tag in enumerate(("raw:1", "tuned:1")):  # other names: an upload shares with versions of its name
        arrays["second"] = arrays["second"] + np.float32(number)
        tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
        model = helper.make_model(helper.make_graph([], "main", [], [], tensors))
        asked = {"filename": "m.onnx", "tag": tag}
        httpx.put(f"{service.url}/v1/stores", content=model.SerializeToString(), params=asked).raise_for_status()
    page = opened(context, "/diff/raw:1...tuned:1")
    output = page.locator(".changes > p.soft")
    expect(output).to_contain_text(re.compile(r"2(\.0)? MiB assumed equal, because the checksums of their blocks are"))
    assert violations(context, page) == "[]"
    page.get_by_role("button", name="Compare every byte").click()
    expect(output).to_contain_text("; the rest has equal checksums")
    expect(page).to_have_url(re.compile(r"exact=1"))
    expect(page.get_by_role("list", name="Number of changes")).to_contain_text("1 tensor changed")


def test_names_that_are_markup_are_text(context: BrowserContext) -> None:
    page = opened(context, "/m/bert:1/tensors?search=img")
    expect(page.get_by_role("row").nth(1)).to_contain_text(MARKUP)
    page.get_by_role("row").nth(1).click()
    expect(page.get_by_role("heading", level=2)).to_have_text(MARKUP)
    expect(page.get_by_role("complementary", name="Tensor")).to_contain_text("90,000 (100 %)")
    assert page.locator("img").count() == 0


def test_a_file_is_uploaded_and_shown(context: BrowserContext, tmp_path: Path) -> None:
    path = tmp_path / "new.onnx"
    path.write_bytes(onnx.helper.make_model(helper.make_graph([], str(tmp_path), [], [], [])).SerializeToString())
    page = opened(context, "/")
    page.get_by_label("Files to upload").set_input_files(path)
    page.wait_for_url("**/m/*")
    expect(page.get_by_role("tab", name="Files")).to_be_visible()
