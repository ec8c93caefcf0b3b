"""The strip of blocks in a real browser: `make browser`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import onnx
import pytest
from onnx import TensorProto, helper
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect
from tests.browser.test_weights import packed
from tests.browser.windows import fetched, memory_of, opened, violations, window
from tests.support.golden import MODELS as GOLDEN
from tests.support.serve import ServiceProcess, service_process

FOLDERS = (
    "tf_sm_keras",
    "tf_sm_functions",
    "paddle_combined",
    "hlo_jax_constants",
    "coreml_mlprogram",
    "coreml_nn_float32",
    "caffe_new",
    "onnx_subgraphs",
)
NODES = 16
"""The number of nodes in a layer of `encoder`."""
OVERFLOWING = """() => [...document.querySelectorAll('.strip-view .block')].filter(block => {
  const { left, right } = block.getBoundingClientRect();
  return [...block.querySelectorAll('.title b, .fact')].some(text => {
    const box = text.getBoundingClientRect();
    return box.width && (box.left < left - 1 || box.right > right + 1);
  });
}).map(block => block.textContent)"""
"""The blocks whose words reach beyond their border."""
FRAMES = """async () => {
  const map = document.querySelector('.strip-view'), box = map.getBoundingClientRect();
  const at = { clientX: box.x + box.width / 2, clientY: box.y + box.height / 2, cancelable: true, bubbles: true };
  const frame = () => new Promise(requestAnimationFrame), begin = await frame();
  let last = begin;
  for (let n = 0; n < 240; n += 1) {
    const step = n < 60 ? { deltaY: 25 } : n < 120 ? { deltaY: -25 } : { deltaY: n < 180 ? 30 : -30, ctrlKey: true };
    map.dispatchEvent(new WheelEvent('wheel', { ...at, ...step }));
    last = await frame();
  }
  return 240000 / (last - begin);
}"""
"""The frames per second while the strip is moved down and up, and zoomed out and in."""


def encoder(layers: int) -> onnx.ModelProto:
    """A transformer with named layers, whose values have types."""
    nodes, infos = list[onnx.NodeProto](), list[onnx.ValueInfoProto]()

    def add(name: str, op: str, *takes: str) -> str:
        nodes.append(helper.make_node(op, takes, [f"{name}_out"], name=name))
        infos.append(helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, ["batch", 512, 1024]))
        return f"{name}_out"

    before = add("/embeddings/Gather", "Gather", "words", "ids")
    for layer in range(layers):
        place = f"/encoder/layer.{layer}"
        query, key, value = (
            add(
                f"{place}/attention/{each}/Add",
                "Add",
                add(f"{place}/attention/{each}/MatMul", "MatMul", before, "w"),
                "b",
            )
            for each in ("query", "key", "value")
        )
        scores = add(f"{place}/attention/Softmax", "Softmax", add(f"{place}/attention/MatMul", "MatMul", query, key))
        context = add(f"{place}/attention/MatMul_1", "MatMul", scores, value)
        middle = add(
            f"{place}/attention/Add", "Add", add(f"{place}/attention/out/MatMul", "MatMul", context, "w"), before
        )
        inner = add(f"{place}/ffn/Gelu", "Gelu", add(f"{place}/ffn/in/MatMul", "MatMul", middle, "w"))
        ffn = add(f"{place}/ffn/out/Add", "Add", add(f"{place}/ffn/out/MatMul", "MatMul", inner, "w"), "b")
        before = add(f"{place}/Add", "Add", ffn, middle)
    weights = [helper.make_tensor(name, TensorProto.FLOAT, [64], range(64)) for name in ("words", "w", "b")]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", 512])
    out = helper.make_tensor_value_info(before, TensorProto.FLOAT, ["batch", 512, 1024])
    return helper.make_model(helper.make_graph(nodes, "encoder", [ids], [out], weights, value_info=infos))


def unnamed(blocks: int) -> onnx.ModelProto:
    """A convolutional network whose nodes have no names."""
    nodes, at = list[onnx.NodeProto](), 0
    for block in range(blocks):
        for op in ("Conv", "BatchNormalization", "Relu", "Conv", "BatchNormalization", "Add", "Relu"):
            takes = [f"v{at}", f"v{max(at - 5, 0)}"] if op == "Add" else [f"v{at}"]
            nodes.append(helper.make_node(op, takes, [f"v{at + 1}"]))
            at += 1
        if block % 4 == 3:
            nodes.append(helper.make_node("MaxPool", [f"v{at}"], [f"v{at + 1}"]))
            at += 1
    return helper.make_model(helper.make_graph(nodes, "<b>cnn</b>", [], []))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service with models of every dialect, one of them of 100 000 nodes."""
    settings = {"PROTOSLICE_SPACE_WATERMARK_BYTES": "0"}
    with service_process("--storage", tmp_path_factory.mktemp("storage").as_uri(), settings=settings) as running:
        with httpx.Client(base_url=running.url, timeout=60) as client:
            for name, model in (("encoder", encoder(12)), ("vast", encoder(100_000 // NODES)), ("cnn", unnamed(16))):
                data = model.SerializeToString()
                client.put(f"/v1/stores?filename=model.onnx&tag={name}", content=data).raise_for_status()
            for name in FOLDERS:
                headers = {"content-type": "application/x-tar"}
                client.put(f"/v1/stores?tag={name}", content=packed(GOLDEN / name), headers=headers).raise_for_status()
        yield running


def block(page: Page, name: str) -> Locator:
    return page.get_by_role("treeitem", name=re.compile(name.replace("/", r"\/"))).first


@pytest.mark.parametrize("model", ["encoder", "cnn", *FOLDERS])
def test_graph_is_a_strip_whose_words_stay_in_their_blocks(context: BrowserContext, model: str) -> None:
    page = opened(context, f"/m/{model}/graph")
    expect(page.get_by_role("treeitem").first).to_be_visible()
    assert page.evaluate(OVERFLOWING) == []
    assert violations(context, page) == "[]"
    assert page.locator("main b b, main img, main script").count() == 0


def test_check_of_words_finds_one_beyond_its_block(context: BrowserContext) -> None:
    """Test the check itself."""
    page = opened(context, "/m/encoder/graph")
    expect(page.get_by_role("treeitem").first).to_be_visible()
    page.evaluate("document.querySelector('.block .fact').style.cssText = 'width: 900px'")
    assert len(page.evaluate(OVERFLOWING)) == 1


def test_layers_are_one_block_that_opens_in_its_place(context: BrowserContext) -> None:
    page = opened(context, "/m/encoder/graph")
    layers = block(page, r"^encoder/layer, × 12")
    layers.locator(".twist").click()
    expect(page).to_have_url(re.compile(r"open=\d+"))
    expect(block(page, "^11, ")).to_be_attached()
    expect(layers).to_have_attribute("aria-expanded", "true")
    expect(layers).to_be_in_viewport()
    frame, inner, behind = (each.bounding_box() for each in (layers, block(page, "^0, "), block(page, "^output")))
    assert frame is not None
    assert inner is not None
    assert behind is not None
    assert frame["y"] < inner["y"] < behind["y"]
    page.reload()
    expect(block(page, "^11, ")).to_be_attached()
    expect(page.locator(".wires text").filter(has_text="F32").first).to_be_attached()
    layers.locator(".twist").click()
    expect(block(page, "^11, ")).to_have_count(0)


def test_strip_is_walked_by_keys(browser: Browser, service: ServiceProcess) -> None:
    with window(browser, service.url) as context:
        page = opened(context, "/m/encoder/graph")
        page.locator("[role=treeitem][tabindex='0']").focus()
        focused = page.locator("[role=treeitem]:focus")
        page.keyboard.press("Home")
        expect(focused).to_have_accessible_name(re.compile("input: ids I64"))
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        expect(focused).to_have_accessible_name(re.compile("encoder/layer, × 12"))
        page.keyboard.press("Enter")
        expect(block(page, "^0, ")).to_be_visible()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Space")
        expect(page.get_by_role("complementary", name="Block")).to_contain_text("Parameters")
        page.locator("[role=treeitem][tabindex='0']").focus()
        page.keyboard.press("Escape")
        expect(focused).to_have_accessible_name(re.compile("encoder/layer"))
        expect(block(page, "^0, ")).to_have_count(0)
        for key in ("+", "+", "-", "0"):
            page.keyboard.press(key)
        page.keyboard.press("s")
        page.keyboard.press("End")
        expect(focused).to_have_accessible_name(re.compile("^output"))
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("e")
        expect(page.get_by_role("region", name="Section")).to_contain_text("192 nodes")


def test_two_marks_select_a_sub_model_that_can_be_downloaded(context: BrowserContext) -> None:
    page = opened(context, "/m/encoder/graph?node=/encoder/layer.3/attention/Softmax")
    drawer = page.get_by_role("complementary", name="Node")
    expect(drawer).to_contain_text("/encoder/layer.3/attention/Softmax")
    drawer.get_by_role("button", name="Start section").click()
    page.get_by_role("searchbox").fill("layer.4/ffn/gelu")
    page.get_by_role("button", name="/encoder/layer.4/ffn/Gelu").click()
    drawer.get_by_role("button", name="End section").click()
    section = page.get_by_role("region", name="Section")
    expect(section).to_contain_text("22 nodes")
    expect(section.locator("dd code")).to_contain_text("--output /encoder/layer.4/ffn/Gelu_out")
    expect(page.locator(".block.within").first).to_be_attached()
    with page.expect_download() as started:
        section.get_by_role("link", name="Extract this sub-model").click()
    part = onnx.load_model_from_string(started.value.path().read_bytes(), format="protobuf")
    assert len(part.graph.node) == 22
    assert [output.name for output in part.graph.output] == ["/encoder/layer.4/ffn/Gelu_out"]
    section.get_by_role("button", name="Clear section").click()
    expect(section).to_have_count(0)


def test_a_found_node_is_brought_to_light(context: BrowserContext) -> None:
    page = opened(context, "/m/vast/graph")
    page.get_by_role("searchbox").fill("layer.4321/attention/softmax")
    page.get_by_role("button", name="/encoder/layer.4321/attention/Softmax").click()
    node = block(page, "^Softmax, /encoder/layer.4321/attention/Softmax")
    expect(node).to_be_in_viewport()
    expect(node).to_have_attribute("aria-selected", "true")
    page.reload()
    expect(node).to_be_in_viewport()


def test_constants_are_shown_when_asked_for(context: BrowserContext) -> None:
    page = opened(context, "/m/coreml_mlprogram/graph")
    expect(block(page, "^linear")).to_be_visible()
    expect(block(page, "^const")).to_have_count(0)
    page.get_by_role("checkbox", name=re.compile("Show constants")).check()
    expect(block(page, "^const")).to_be_visible()
    expect(page).to_have_url(re.compile("constants=1"))


def test_functions_of_tensorflow_are_strips(context: BrowserContext) -> None:
    page = opened(context, "/m/tf_sm_functions/graph")
    graphs = page.get_by_role("combobox", name="Graph")
    names = graphs.locator("option").all_inner_texts()
    assert len(names) > 3
    graphs.select_option(index=1)
    expect(page).to_have_url(re.compile("library"))
    expect(page.get_by_role("treeitem").first).to_be_visible()


def test_a_call_opens_its_function_in_its_place(context: BrowserContext) -> None:
    page = opened(context, "/m/tf_sm_functions/graph")
    call = page.get_by_role("treeitem", name=re.compile("PartitionedCall")).first
    path = call.get_attribute("data-key")
    assert path is not None
    expect(call).to_have_attribute("aria-expanded", "false")
    call.locator(".twist").click()
    call = page.locator(f'[data-key="{path}"]')
    expect(call).to_have_attribute("aria-expanded", "true")
    inside = page.locator('[role=treeitem][aria-level="2"][data-key*="library.function"]').first
    expect(inside).to_be_visible()
    place = inside.get_attribute("data-key")
    inside.locator(".title").click()
    drawer = page.get_by_role("complementary", name="Node")
    expect(drawer).to_contain_text(place or "no path")
    assert violations(context, page) == "[]"
    page.reload()
    expect(page.locator(f'[data-key="{place}"]')).to_have_attribute("aria-selected", "true")
    expect(drawer).to_contain_text(place or "no path")
    expect(page.locator(".trouble")).to_have_count(0)
    page.locator(f'[data-key="{place}"]').press("Escape")
    expect(page.locator(f'[data-key="{place}"]')).to_have_count(0)
    expect(page.locator(f'[data-key="{path}"]')).to_be_focused()


def test_an_address_that_opens_a_function_within_itself_has_an_end(context: BrowserContext) -> None:
    page = opened(context, "/m/tf_sm_functions/graph")
    call = page.get_by_role("treeitem", name=re.compile("PartitionedCall")).first
    call.locator(".twist").click()
    page.wait_for_url(re.compile("open="))
    inside = page.locator('[role=treeitem][aria-level="2"][data-key*="library.function"]').first
    function, _, path = parse_qs(urlsplit(page.url).query)["open"][0].partition("@")
    within = inside.get_attribute("data-key")
    entries = f"{function}@{within},{function}@{path},x@{within}"
    page = opened(context, f"/m/tf_sm_functions/graph?{urlencode({'open': entries})}")
    expect(page.get_by_role("treeitem").first).to_be_visible()


def test_a_hundred_thousand_nodes_stay_responsive(browser: Browser, service: ServiceProcess) -> None:
    with window(browser, service.url) as context:
        page = context.new_page()
        received = fetched(context, page)
        page.goto("/m/vast/graph")
        expect(block(page, r"^encoder/layer, × 6250")).to_be_visible(timeout=3000)
        block(page, "^encoder/layer").locator(".twist").click()
        expect(page.get_by_role("treeitem").nth(10)).to_be_attached()
        assert page.evaluate(FRAMES) >= 30
        assert memory_of(page) <= 250e6
        assert received() <= 200_000


OUTPUT = "/encoder/layer.11/Add_out"
"""The name of the output of `encoder`."""


def test_inputs_and_outputs_of_the_model_have_a_drawer(context: BrowserContext) -> None:
    page = opened(context, "/m/encoder/graph")
    drawer = page.get_by_role("complementary", name="Values")
    block(page, "^output: ").click()
    expect(drawer).to_contain_text(OUTPUT)
    expect(drawer).to_contain_text("F32 ?×512×1024")
    expect(drawer).to_contain_text("made by Add /encoder/layer.11/Add")
    block(page, "^input: ").click()
    expect(drawer).to_contain_text("idsI64")
    expect(drawer).to_contain_text("first used by Gather /embeddings/Gather")
    page.reload()
    drawer.get_by_role("button", name="/embeddings/Gather").click()
    node = page.get_by_role("complementary", name="Node")
    expect(node).to_contain_text("/embeddings/Gather")
    expect(page.locator(".trouble")).to_have_count(0)


def test_a_value_leads_to_the_node_that_makes_it(context: BrowserContext) -> None:
    page = opened(context, "/m/encoder/graph")
    page.get_by_role("searchbox").fill(OUTPUT)
    page.get_by_role("button", name="/encoder/layer.11/Add").click()
    expect(page.get_by_role("complementary", name="Node")).to_contain_text(f"{OUTPUT} → output of the model")
    page.get_by_role("searchbox").fill("nonesuch")
    expect(page.locator("main").get_by_text("No nodes match “nonesuch”.")).to_be_visible()
    expect(page.get_by_role("table")).to_have_count(0)


def test_outputs_of_a_node_are_values_and_the_nodes_that_take_them(context: BrowserContext) -> None:
    page = opened(context, "/m/encoder/graph?node=/encoder/layer.3/attention/Softmax")
    drawer = page.get_by_role("complementary", name="Node")
    expect(drawer).to_contain_text("/encoder/layer.3/attention/Softmax_out → /encoder/layer.3/attention/MatMul_1")


def test_the_focused_block_comes_into_a_low_window(browser: Browser, service: ServiceProcess) -> None:
    with window(browser, service.url) as context:
        page = opened(context, "/m/encoder/graph")
        page.set_viewport_size({"width": 1000, "height": 420})
        page.locator("[role=treeitem][tabindex='0']").focus()
        page.evaluate("scrollTo(0, 0)")
        page.keyboard.press("End")
        expect(page.locator("[role=treeitem]:focus")).to_have_accessible_name(re.compile("^output"))
        expect(page.locator("[role=treeitem]:focus")).to_be_in_viewport(ratio=1)
        page.evaluate("scrollTo(0, 0)")
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        expect(block(page, "^11, ")).to_be_attached()
        expect(block(page, r"^encoder/layer, × 12")).to_be_in_viewport(ratio=1)


def test_the_last_block_can_be_moved_out_from_below_the_minimap(browser: Browser, service: ServiceProcess) -> None:
    with window(browser, service.url, "phone") as context:
        page = opened(context, "/m/encoder/graph")
        block(page, "^encoder/layer").locator(".twist").click()
        expect(block(page, "^11, ")).to_be_attached()
        small = page.locator(".minimap")
        expect(small).to_have_css("opacity", "0.5")
        page.locator("[role=treeitem][tabindex='0']").focus()
        page.keyboard.press("End")
        page.locator(".strip-view").hover()
        for _ in range(20):
            page.mouse.wheel(0, 400)
        page.wait_for_timeout(300)
        last, over = block(page, "^output").bounding_box(), small.bounding_box()
        assert last is not None
        assert over is not None
        assert last["y"] + last["height"] <= over["y"] + 1
        small.hover()
        expect(small).to_have_css("opacity", "1")


def test_marks_of_nearby_nodes_say_what_they_mean(context: BrowserContext) -> None:
    page = opened(context, "/m/encoder/graph?around=/encoder/layer.3/attention/query/MatMul&hops=1")
    expect(page.locator(".node .rest title").first).to_have_text(re.compile(r"^\d more links? to nodes not shown"))
    expect(page.locator(".node .held title").first).to_have_text("Uses 1 weight: w")
