"""Cards with small maps, the history of a name, and changes of models by the page: `make browser`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from onnx import TensorProto, helper
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect
from tests.browser.windows import opened, violations, window
from tests.support.hub import commit
from tests.support.serve import ServiceProcess, service_process
from tests.support.stores import onnx

QUIET = ("Failed to load resource", "Clear-Site-Data header", "[DOM] Input elements")
BLANK = (
    "canvas => new Uint32Array(canvas.getContext('2d').getImageData(0, 0, 600, 88).data.buffer).every(each => !each)"
)
HOSTILE = "<b>=1</b> & “x”"


@pytest.fixture
def http(service: ServiceProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=60) as client:
        yield client


def put(http: httpx.Client, tag: str, data: bytes, space: str = "") -> str:
    answer = http.put(f"{space}/v1/stores?filename=m.onnx&tag={tag}", content=data).raise_for_status()
    id: str = answer.json()["id"]
    return id


def versions(http: httpx.Client, name: str) -> list[str]:
    """Return the ids of three versions: each one has one more changed tensor than the version before."""
    return [put(http, f"{name}:{n + 1}", data) for n, data in enumerate((onnx(5000), onnx(5001), onnx(5001, 70_000)))]


def open_edit(page: Page) -> None:
    page.get_by_role("button", name="Edit").click()
    expect(page.get_by_role("heading", name="Tags")).to_be_visible()


def test_a_card_has_a_small_map_and_the_number_of_parameters(context: BrowserContext, http: httpx.Client) -> None:
    put(http, "mapped:1", onnx(80_000, 40_000, 4000))
    page = opened(context, "/?name=mapped")
    card = page.locator(".cards li")
    expect(card).to_contain_text("124K parameters · I8")
    assert not card.locator("canvas").evaluate(BLANK)
    assert violations(context, page) == "[]"


def test_the_history_of_a_name_tells_what_changed(context: BrowserContext, http: httpx.Client) -> None:
    versions(http, "told")
    page = opened(context, "/m/told:2")
    page.get_by_role("button", name="History").click()
    steps = page.locator(".history li")
    expect(steps).to_have_count(3)
    expect(steps.nth(0)).to_contain_text("told:3")
    expect(steps.nth(0)).to_contain_text("1 tensor added")
    expect(steps.nth(1)).to_contain_text("1 tensor changed")
    expect(steps.nth(1)).to_have_attribute("aria-current", "true")
    assert violations(context, page) == "[]"
    steps.nth(0).get_by_role("link", name="1 tensor added").click()
    expect(page).to_have_url(re.compile(r"/diff/told%3A2\.\.\.told%3A3$"))


def test_the_history_shows_which_layers_moved_and_links_each(context: BrowserContext, http: httpx.Client) -> None:
    """All versions have the same columns; arrow keys move from cell to cell."""
    for n, data in enumerate((onnx(100, 200, seed=1), onnx(100, 200, seed=2), onnx(100, 300, 50, seed=2)), 1):
        put(http, f"layered:{n}", data)
    page = opened(context, "/m/layered:3")
    page.get_by_role("button", name="History").click()
    rows = page.locator(".history").get_by_role("group")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_have_attribute("aria-label", re.compile("^Changes by layer since layered:2"))
    names = [
        [each.get_attribute("aria-label") or "" for each in rows.nth(n).get_by_role("link").all()] for n in range(2)
    ]
    assert [re.sub(r": up to .*", "", each) for each in names[0]] == [
        "weight-0: no change found in a sample", "weight-1: reshaped", "weight-2: added",
    ]  # fmt: skip
    assert [each.partition(":")[0] for each in names[1]] == ["weight-0", "weight-1"]
    assert all("Relative change: up to" in each for each in names[1])
    assert violations(context, page) == "[]"
    rows.nth(0).get_by_role("link").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/diff/layered%3A2\.\.\.layered%3A3\?cell=weight-1"))
    changes = page.get_by_role("grid", name="Changes").get_by_role("row")
    expect(changes).to_have_count(2)
    expect(changes.nth(1)).to_contain_text("weight-1")


def test_rows_of_a_comparison_can_be_told_apart_on_a_phone(context: BrowserContext, http: httpx.Client) -> None:
    names = [f"model.layers.{layer}.self_attn.{kind}_proj.weight" for layer in (3, 100, 700) for kind in "qk"]
    for n in (1, 2):
        tensors = [helper.make_tensor(name, TensorProto.FLOAT, [1], [n]) for name in names]
        put(http, f"long:{n}", helper.make_model(helper.make_graph([], "g", [], [], tensors)).SerializeToString())
    page = opened(context, "/")
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto("/diff/long:1...long:2")
    ends = page.locator(".changes .cut > :last-child").filter(has_text="weight")
    expect(ends).to_have_count(len(names))
    assert all(ends.nth(n).evaluate("end => end.scrollWidth <= end.clientWidth") for n in range(len(names)))
    assert len({end.inner_text() for end in ends.all()}) == len(names)
    assert violations(context, page) == "[]"


def test_the_history_of_many_versions_comes_in_pages_the_newest_first(
    context: BrowserContext, http: httpx.Client
) -> None:
    for n in range(1, 61):
        put(http, f"many:{n}", b"version %d" % n)
    put(http, "too-many:1", b"of another name")
    page = opened(context, "/m/many:60")
    expect(page.get_by_role("link", name="changes since 59")).to_be_visible()
    page.get_by_role("button", name="History").click()
    steps = page.locator(".history li")
    expect(steps).to_have_count(50)
    assert {f"many:{n}" for n in range(11, 61)} == {step.locator("a").first.inner_text() for step in steps.all()}
    page.get_by_role("button", name="Older versions").click()
    expect(steps).to_have_count(60)
    expect(page.get_by_role("button", name="Older versions")).to_have_count(0)


def test_the_history_of_a_repository_lists_its_commits(context: BrowserContext, http: httpx.Client) -> None:
    http.post("/api/repos/create", json={"organization": "ann", "name": "told"})
    for title, data in (("Add the model", onnx(5000)), ("Train longer", onnx(5001))):
        commit(http, "models/ann/told", {"m.onnx": data}, summary=title)
    page = opened(context, "/m/ann%2Ftold@main")
    page.get_by_role("button", name="History").click()
    expect(page.locator(".history li").first).to_contain_text("Train longer")
    expect(page.locator(".history li").first).to_contain_text("1 tensor changed")


def test_a_single_version_promises_no_changes(context: BrowserContext, http: httpx.Client) -> None:
    put(http, "only:1", onnx(5003))
    page = opened(context, "/m/only:1")
    page.get_by_role("button", name="History").click()
    expect(page.locator("main")).to_contain_text("This is the only version of only.")


def test_a_description_is_edited(context: BrowserContext, http: httpx.Client) -> None:
    id = put(http, "described:1", onnx(6000))
    http.patch(f"/v1/stores/{id}", json={"description": ""})
    page = opened(context, "/m/described:1")
    open_edit(page)
    page.get_by_label("Description of this version").fill(HOSTILE)
    page.get_by_role("button", name="Save").click()
    expect(page.locator("header.model .description")).to_have_text(HOSTILE)
    expect(page.locator("main").get_by_text("Saved the description.")).to_be_visible()
    assert http.get(f"/v1/stores/{id}").json()["description"] == HOSTILE
    assert violations(context, page) == "[]"


def test_tags_are_added_moved_and_removed_by_keys(context: BrowserContext, http: httpx.Client) -> None:
    first, second, _ = versions(http, "moved")
    page = opened(context, "/m/moved:2")
    open_edit(page)
    field = page.get_by_label("Tag to add or move here")
    field.fill("moved:new")
    field.press("Enter")
    expect(page.locator("main").get_by_text("Added the tag moved:new.")).to_be_visible()
    field.fill("moved:1")
    field.press("Enter")
    expect(page.locator(".manage")).to_contain_text(f"moved:1 points at {first[:12]}.")
    assert http.get("/v1/tags/moved:1").json()["store"] == first, "not before the person agrees"
    page.get_by_role("button", name="Move it here").press("Enter")
    expect(page.locator("main").get_by_text("Moved the tag moved:1.")).to_be_visible()
    assert http.get("/v1/tags/moved:1").json()["store"] == second
    held, looks = list[Route](), re.compile(r"/v1/tags\?store=")
    page.route(looks, lambda route: held.append(route))
    with page.expect_request(looks):
        page.get_by_role("button", name="Remove the tag moved:new").press("Enter")
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    removed = page.locator("main").get_by_text("Removed the tag moved:new.")
    assert removed.count() == 0, "a result is shown once the next change is possible"
    held[0].continue_()
    expect(removed).to_be_visible()
    assert http.get("/v1/tags/moved:new").status_code == 404
    assert violations(context, page) == "[]"


def test_a_version_is_deleted_with_its_names_and_restored(context: BrowserContext, http: httpx.Client) -> None:
    _, id, _ = versions(http, "gone")
    http.put("/v1/tags/gone:also", json={"store": id}).raise_for_status()
    page = opened(context, "/m/gone:2")
    open_edit(page)
    page.get_by_role("button", name="Delete this version").click()
    expect(page.get_by_role("group", name="Confirm the deletion")).to_contain_text("gone:2")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Delete this version").click()
    assert violations(context, page) == "[]"
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator(".removed")).to_contain_text("Deleted gone:2.")
    assert http.get(f"/v1/stores/{id}").status_code == 404
    assert violations(context, page) == "[]"
    page.goto("/m/gone:3")
    page.get_by_role("link", name="Library").click()
    page.get_by_role("button", name="Restore").click()
    expect(page).to_have_url(re.compile("/m/gone%3A2$"))
    page.get_by_role("link", name="Library").click()
    expect(page.locator(".removed")).to_have_count(0)
    assert {"gone:2", "gone:also"} <= {*http.get(f"/v1/stores/{id}").json()["tags"]}


def test_a_removed_version_is_restored_in_another_browser(context: BrowserContext, http: httpx.Client) -> None:
    id = put(http, "elsewhere:1", onnx(5021))
    http.delete(f"/v1/stores/{id}?force=elsewhere:1").raise_for_status()
    page = opened(context, "/")
    page.get_by_role("button", name="Removed").click()
    expect(page.locator(".cards li", has_text="elsewhere:1")).to_contain_text(f"{id[:12]} · until ")
    assert violations(context, page) == "[]"
    page.get_by_role("button", name="Restore elsewhere:1").press("Enter")
    expect(page).to_have_url(re.compile("/m/elsewhere%3A1$"))
    assert http.get("/v1/tags/elsewhere:1").json()["store"] == id


@pytest.fixture
def wrong(browser: Browser, service: ServiceProcess) -> Iterator[BrowserContext]:
    """Open a window in which the service refuses a request."""
    with window(browser, service.url, may_say=QUIET) as context:
        yield context


def test_a_refused_tag_says_why_and_the_next_change_works(wrong: BrowserContext, http: httpx.Client) -> None:
    put(http, "refused:2&tag=refused:1", onnx(5004))
    page = opened(wrong, "/m/refused:1")
    open_edit(page)
    page.get_by_label("Tag to add or move here").fill("not a tag")
    page.get_by_role("button", name="Add").click()
    expect(page.locator(".trouble")).to_contain_text("tag")
    expect(page.get_by_label("Tag to add or move here")).to_have_accessible_description(re.compile("Invalid tag"))
    page.get_by_role("button", name="Remove the tag refused:2").press("Enter")
    expect(page.locator("main").get_by_text("Removed the tag refused:2.")).to_be_visible()
    expect(page.locator(".trouble")).to_have_count(0)


def test_a_model_without_a_tag_has_its_file_for_a_name(context: BrowserContext, http: httpx.Client) -> None:
    page = opened(context, "/?sort=")
    data = onnx(5017, page.evaluate("innerWidth"))  # another model in each window
    id = http.put("/v1/stores?filename=deep/nameless.onnx", content=data).raise_for_status().json()["id"]
    page.reload()
    card = page.locator(".cards li").first
    expect(card.locator("strong")).to_have_text("nameless.onnx")
    card.get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("nameless.onnx")
    expect(page).to_have_title("nameless.onnx — Protoslice")
    http.put(f"/v1/tags/named:{id[:12]}", json={"store": id}).raise_for_status()
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"named:{id[:12]}")


def test_a_file_that_is_cut_off_is_not_offered_again(wrong: BrowserContext, tmp_path: Path) -> None:
    (tmp_path / "cut.onnx").write_bytes(onnx(80_000)[:50_000])
    page = opened(wrong, "/")
    page.get_by_label("Files to upload").set_input_files(tmp_path / "cut.onnx")
    row = page.get_by_label("Upload", exact=True)
    expect(row.locator("[data-said]").first).to_have_text("not stored")
    expect(row.locator(".trouble")).to_contain_text("cut off")
    expect(row.get_by_role("button", name="Resume")).to_have_count(0)
    page.reload()
    page.wait_for_load_state("networkidle")
    expect(page.get_by_role("progressbar")).to_have_count(0)


def test_a_link_to_a_tensor_shows_its_row_and_name(context: BrowserContext, http: httpx.Client) -> None:
    put(http, "linked:1", onnx(*range(100, 400)))
    page = opened(context, "/m/linked:1/tensors?tensor=path:graph.initializer%5B40%5D")
    if page.evaluate("innerWidth") > 700:  # on a phone the drawer is visible
        expect(page.get_by_role("row", selected=True)).to_be_in_viewport()
    expect(page.locator(".row.focus")).to_have_count(1)
    expect(page.locator(".row.focus")).to_contain_text("weight-40")
    expect(page).to_have_title(re.compile("^weight-40 — linked:1"))


def test_changes_are_sorted_by_how_far_tensors_moved(context: BrowserContext, http: httpx.Client) -> None:
    for tag, factors in (("far:1", (0, 0, 0)), ("far:2", (0.1, 0.5, 0.01))):
        weights = [
            helper.make_tensor(f"layer.{n}", TensorProto.FLOAT, [64], [1 + factor * (at % 2) for at in range(64)])
            for n, factor in enumerate(factors)
        ]
        put(http, tag, helper.make_model(helper.make_graph([], "g", [], [], weights)).SerializeToString())
    page = opened(context, "/diff/far:1...far:2")
    page.get_by_role("columnheader", name="relative").get_by_role("button").click()
    expect(page).to_have_url(re.compile("sort=-relative"))
    names = [re.compile(name) for name in ("layer.1", "layer.0", "layer.2", "m.onnx")]
    expect(page.locator(".row:not(.head) .c-name")).to_have_text(names)
    page.get_by_role("columnheader", name="relative").get_by_role("button").click()
    expect(page.locator(".row:not(.head) .c-name").first).to_contain_text("layer.2")
    page.locator(".row:not(.head)").first.click()
    expect(page.get_by_role("link", name="Before: far:1")).to_be_visible()


def test_who_may_not_change_a_model_is_not_offered_it(browser: Browser, tmp_path: Path) -> None:
    settings = {"PROTOSLICE_AUTH": "tokens", "PROTOSLICE_SPACE_WATERMARK_BYTES": "0"}
    with service_process("--storage", (tmp_path / "s").as_uri(), settings=settings) as running:
        assert running.running.stdout is not None
        admin = re.search(r"psl_\w+", running.running.stdout.readline())
        assert admin is not None
        with httpx.Client(base_url=running.url, headers={"authorization": f"Bearer {admin[0]}"}, timeout=60) as http:
            put(http, "m:1", onnx(5000))
            tokens = {
                name: http.post("/v1/tokens", json={"name": name, "scopes": name.split("-")}).json()["token"]
                for name in ("read", "read-write", "read-delete")
            }
        for name, sees in (
            ("read", []), ("read-write", ["Description", "Tags"]), ("read-delete", ["Tags", "Delete"])
        ):  # fmt: skip
            with window(browser, running.url, may_say=QUIET) as context:
                page = opened(context, "/m/m:1")
                page.get_by_label("token").fill(tokens[name])
                page.get_by_role("button", name="Sign in").click()
                page.get_by_role("button", name="Edit").click()
                panel = page.get_by_role("region", name="Edit")
                if sees:
                    expect(panel.get_by_role("heading")).to_have_text(sees)
                else:
                    expect(panel).to_contain_text("You may read models here, but not change them.")


def focused(page: Page) -> str:
    """Return the name of the focused element, once the page is idle."""
    page.wait_for_load_state("networkidle")
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 100)))")
    return str(page.evaluate("document.activeElement.tagName"))


def test_focus_never_falls_to_the_body(context: BrowserContext, http: httpx.Client) -> None:
    versions(http, "focus")
    page = opened(context, "/?name=focus")
    page.get_by_role("link", name="Skip to the content").press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.locator(".card", has_text="focus").first.press("Enter")
    expect(page.get_by_role("heading", name="focus:3")).to_be_visible()
    assert focused(page) != "BODY"
    expect(page.locator("body > [aria-live]")).to_contain_text("focus:3")
    page.get_by_role("treeitem").first.press("Enter")
    expect(page.get_by_role("complementary", name="Tensor")).to_be_visible()
    page.get_by_role("button", name="Close").press("Enter")
    expect(page.get_by_role("complementary", name="Tensor")).to_have_count(0)
    assert focused(page) != "BODY"
    open_edit(page)
    page.get_by_label("Description of this version").fill(f"seen at {page.viewport_size}")
    page.get_by_role("button", name="Save").press("Enter")
    expect(page.locator("main").get_by_text("Saved the description.")).to_be_visible()
    assert focused(page) != "BODY"
    page.get_by_role("button", name="Delete this version").press("Enter")
    page.get_by_role("button", name="Cancel").press("Enter")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    assert focused(page) != "BODY"
    page.get_by_role("button", name="Delete this version").press("Enter")
    page.get_by_role("button", name="Delete", exact=True).press("Enter")
    expect(page.get_by_role("button", name="Restore")).to_be_visible()
    assert focused(page) != "BODY"
    page.get_by_role("button", name="Restore").press("Enter")
    expect(page.get_by_role("button", name="Restore")).to_have_count(0)
    assert focused(page) != "BODY"
    page.goto("/m/focus:1/tensors")
    page.get_by_role("button", name="Size").press("Enter")
    assert focused(page) == "BUTTON"
    expect(page.get_by_role("complementary", name="Tensor")).to_have_count(0)
