"""The weight map in a real browser: `make browser`."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.browser.windows import fetched, opened, violations, window
from tests.support.golden import MODELS as GOLDEN
from tests.support.serve import ServiceProcess, service_process

LAYERS = 400
BLOCK = {
    "attention.query": (2560, 2560),
    "attention.key": (2560, 2560),
    "attention.value": (2560, 2560),
    "ffn.in": (2560, 2805),
}
FOLDERS = ("coreml_mlprogram", "paddle_separate", "tf_sm_keras", "tf_sm_functions", "onnx_types_raw", "caffe_new")
LEAST = 0.95
"""The share of the map that must belong to tiles with a name."""
SHARE = """() => {
  const map = document.querySelector('.map'), box = map.getBoundingClientRect();
  let [all, named] = [0, 0];
  for (let y = box.top + 2; y < box.bottom; y += 5) for (let x = box.left + 2; x < box.right; x += 5) {
    const name = document.elementFromPoint(x, y)?.closest('.tile')?.querySelector('.label b');
    all += 1;
    if (name && /[\\p{L}\\p{N}]/u.test(name.textContent) && name.getBoundingClientRect().width > 6) named += 1;
  }
  return named / all;
}"""


def named(page: Page) -> float:
    """Return the share of the map's area in which the tile below the pointer shows a name."""
    page.evaluate("document.querySelector('.map').scrollIntoView({ block: 'center' })")
    return float(page.evaluate(SHARE))


def layered(tensors: Iterator[TensorProto]) -> bytes:
    """A model with these tensors."""
    return helper.make_model(helper.make_graph([], "layers", [], [], list(tensors))).SerializeToString()


def vast() -> Iterator[TensorProto]:
    """Tensors of 20 GiB in another file."""
    at = 0
    for layer in range(LAYERS):
        for part, dims in BLOCK.items():
            size = 2 * dims[0] * dims[1]
            name = f"encoder.layer.{layer}.{part}.weight"
            tensor = TensorProto(name=name, data_type=TensorProto.FLOAT16, dims=dims)
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", "model.data"), ("offset", at), ("length", size)):
                tensor.external_data.add(key=key, value=str(value))
            at += size
            yield tensor


def flat() -> Iterator[TensorProto]:
    """Names without a hierarchy, for tensors of different sizes; some have other scripts or markup."""
    random = np.random.default_rng(2)
    for number in range(3000):
        yield numpy_helper.from_array(random.standard_normal(1 + number % 50).astype("<f4"), f"重み_{number}")
    yield numpy_helper.from_array(random.standard_normal((100, 300)).astype("<f4"), "<b>größe</b>")
    yield numpy_helper.from_array(np.arange(5, dtype="<i8"), "שלום.עולם")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """Run a service with models of several formats, one of them of 20 GiB that take no space on the disk."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "model.onnx").write_bytes(layered(vast()))
    with (folder / "model.data").open("wb") as data:
        data.truncate(LAYERS * sum(2 * a * b for a, b in BLOCK.values()))
    settings = {"PROTOSLICE_SPACE_WATERMARK_BYTES": "0", "PROTOSLICE_REGISTER_ALLOW": f"{folder.as_uri()}/"}
    with service_process("--storage", tmp_path_factory.mktemp("storage").as_uri(), settings=settings) as running:
        with httpx.Client(base_url=running.url, timeout=60) as client:
            files = {name: f"{folder.as_uri()}/{name}" for name in ("model.onnx", "model.data")}
            client.post("/v1/stores/register", json={"files": files, "tags": ["vast"]}).raise_for_status()
            client.put("/v1/stores?filename=flat.onnx&tag=flat", content=layered(flat())).raise_for_status()
            nothing = layered(iter(()))
            client.put("/v1/stores?filename=none.onnx&type=onnx.ModelProto&tag=none", content=nothing)
            for name in FOLDERS:
                headers = {"content-type": "application/x-tar"}
                answer = client.put(f"/v1/stores?tag={name}", content=packed(GOLDEN / name), headers=headers)
                answer.raise_for_status()
        yield running


def packed(folder: Path) -> bytes:
    """Return the files of a golden model as a tar."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for file in folder.rglob("*"):
            if file.is_file() and file.name not in {"expected.json", "how.txt"}:
                tar.add(file, file.relative_to(folder))
    return data.getvalue()


@pytest.mark.parametrize("model", ["vast", "flat", *FOLDERS])
def test_map_names_what_it_shows(context: BrowserContext, model: str) -> None:
    page = opened(context, f"/m/{model}")
    expect(page.locator(".tile").first).to_be_visible()
    assert named(page) >= LEAST
    assert violations(context, page) == "[]"
    assert page.locator("main b b, main img, main script").count() == 0


def test_named_area_misses_tiles_without_a_name(context: BrowserContext) -> None:
    """Test the check itself: it finds a rest without a name that is as large as an eighth of the map."""
    page = opened(context, "/m/vast")
    expect(page.locator(".tile").first).to_be_visible()
    page.evaluate("""() => {
      const rest = document.createElement('div');
      Object.assign(rest.style, { position: 'absolute', inset: '0 87.5% 0 0', zIndex: 9 });
      rest.className = 'tile';
      document.querySelector('.layer').append(rest);
    }""")
    assert named(page) < LEAST


def test_map_of_20_gib_fetches_little(browser: Browser, service: ServiceProcess) -> None:
    with window(browser, service.url) as context:
        page = context.new_page()
        received = fetched(context, page)
        page.goto("/m/vast")
        page.wait_for_load_state("networkidle")
        expect(page.get_by_role("navigation", name="Place in the model")).to_contain_text("20.0 GiB")
        page.locator(".tile:not(.open)").first.click()
        expect(page).to_have_url(re.compile("at=encoder"))
        page.wait_for_load_state("networkidle")
    assert received() <= 2 << 20


def test_numbered_blocks_are_in_their_order(context: BrowserContext) -> None:
    page = opened(context, "/m/vast")
    expect(page.locator(".tile").first).to_be_visible()
    names = page.locator(".tile.closed .unseen").all_text_contents()
    numbers = [int(re.findall(r"\d+", name.partition(",")[0].partition("–")[0])[-1]) for name in names]
    assert len(numbers) > 30
    assert numbers == sorted(numbers)


def test_map_is_walked_by_keys_down_to_a_tensor_and_back(context: BrowserContext) -> None:
    page = opened(context, "/m/vast?at=encoder.layer.7.")
    place = page.get_by_role("navigation", name="Place in the model")
    expect(place.locator("[aria-current=location]")).to_have_text("7")
    page.locator(".tile[tabindex='0']").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
    focused = page.locator(".tile:focus")
    expect(focused.locator(".unseen")).to_contain_text("encoder.layer.7.")
    label = focused.locator(".unseen").inner_text()
    page.keyboard.press("Enter")
    drawer = page.get_by_role("complementary", name="Tensor")
    expect(drawer.get_by_role("heading", level=2)).to_have_text(label.split(",")[0])
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)
    page.locator(".tile[tabindex='0']").focus()
    page.keyboard.press("Escape")
    expect(place.locator("[aria-current=location]")).not_to_have_text("7")
    place.get_by_role("button", name="all").click()
    expect(page).not_to_have_url(re.compile("at="))


def test_map_is_zoomed_by_the_wheel_and_history_leads_back(browser: Browser, service: ServiceProcess) -> None:
    with window(browser, service.url) as context:
        page = opened(context, "/m/vast")
        box = page.locator(".map").bounding_box()
        assert box
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        for _ in range(30):
            page.mouse.wheel(0, -150)
        expect(page).to_have_url(re.compile(r"at=encoder\.layer\.\d+\."))
        assert named(page) >= LEAST
        for _ in range(60):
            page.mouse.wheel(0, 150)
        expect(page).not_to_have_url(re.compile(r"at=encoder\.layer\.\d+\."))
        page.goto("/m/flat")
        page.locator(".tile.closed").first.click()
        expect(page).to_have_url(re.compile("range="))
        expect(page.locator(".tile").first).to_be_visible()
        page.go_back()
        expect(page).not_to_have_url(re.compile("range="))


def test_colors_follow_statistics_that_come_in(context: BrowserContext) -> None:
    page = opened(context, "/m/flat?colour=deviation")
    legend = page.get_by_role("list", name="Colors")
    expect(legend.get_by_role("listitem")).to_have_count(7)
    expect(legend).to_contain_text(re.compile(r"\d\.\d"))
    page.get_by_role("combobox", name="Color").select_option("Data type")
    expect(legend).to_contain_text("F32")


def test_hovering_shows_facts_and_a_picture(browser: Browser, service: ServiceProcess) -> None:
    with window(browser, service.url) as context:
        page = opened(context, "/m/flat")
        page.get_by_role("treeitem", name="<b>größe</b>").hover()
        tip = page.locator(".tip")
        expect(tip).to_contain_text("F32 100 × 300")
        expect(tip.locator("canvas")).to_be_visible()
        page.get_by_role("treeitem", name="<b>größe</b>").click()
        expect(page.get_by_role("complementary", name="Tensor")).to_be_visible()
        expect(tip).to_have_count(0)


def test_types_are_drawn_to_scale_and_names_keep_their_ends(context: BrowserContext) -> None:
    page = opened(context, "/m/tf_sm_keras/tensors")
    widths = page.locator(".scale i").evaluate_all("all => all.map(each => each.getBoundingClientRect().width)")
    shares = page.get_by_role("list", name="Bytes by data type").get_by_role("listitem").all_inner_texts()
    assert len(widths) == len(shares) > 1
    for width, share in zip(widths, shares, strict=True):
        assert 100 * width / sum(widths) == pytest.approx(float(share.split()[-2]), abs=0.6)
    cut = page.locator(".cut", has_text="/.ATTRIBUTES/VARIABLE_VALUE")
    assert cut.count() > 1
    sides = "all => all.map(each => [each.lastChild, each.parentNode].map(box => box.getBoundingClientRect().right))"
    assert all(end <= cell for end, cell in cut.evaluate_all(sides))


def test_head_is_low_and_its_labels_are_whole(browser: Browser, service: ServiceProcess) -> None:
    with window(browser, service.url) as context:
        page = opened(context, "/m/tf_sm_keras")
        expect(page.get_by_role("list", name="Bytes by data type")).to_be_visible()
        top = page.locator(".map").bounding_box()
        legend, choice = (
            page.get_by_role("list", name="Colors").bounding_box(),
            page.locator("label", has_text="Color").locator("select").bounding_box(),
        )
        assert top
        assert legend
        assert choice
        assert top["y"] < 300
        assert abs(legend["y"] + legend["height"] / 2 - choice["y"] - choice["height"] / 2) < 10
        cut = "all => all.filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.textContent)"
        assert page.locator(".label > *").evaluate_all(cut) == []
        page.get_by_role("button", name="History").click()
        expect(page.get_by_role("region", name="History")).to_be_visible()
        page.get_by_role("button", name="Edit").click()
        expect(page.get_by_role("region", name="History")).to_be_hidden()
        page.get_by_label("Description of this version").fill("typed")
        page.get_by_role("button", name="Edit").click()
        page.get_by_role("button", name="Edit").click()
        expect(page.get_by_label("Description of this version")).to_have_value("typed")


def test_tensors_of_missing_files_are_hatched(context: BrowserContext, service: ServiceProcess) -> None:
    here = numpy_helper.from_array(np.ones((500, 100), "<f4"), "here.weight")
    gone = TensorProto(name="gone.weight", data_type=TensorProto.FLOAT, dims=(500, 100))
    gone.data_location = TensorProto.EXTERNAL
    gone.external_data.add(key="location", value="<b>gone.data")
    data = layered(iter((here, gone)))
    httpx.put(f"{service.url}/v1/stores?filename=m.onnx&tag=gone", content=data, timeout=60).raise_for_status()
    page = opened(context, "/m/gone")
    expect(page.locator("header .warn")).to_contain_text("Missing file: <b>gone.data. Hatched tensors cannot be read.")
    expect(page.get_by_role("treeitem", name="gone.weight, 195 KiB, other, file missing")).to_be_visible()
    expect(page.get_by_role("treeitem", name="here.weight, 195 KiB, other", exact=True)).to_be_visible()
    tops = {page.locator(".tile", has_text=f"{name}.").evaluate("tile => tile.offsetTop") for name in ("gone", "here")}
    colours = """(canvas, across) => {
      const { width, height } = canvas, { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
      const found = [{}, {}];
      for (let at = 0; at < data.length; at += 4) {
        const [x, y] = [(at / 4) % width, Math.floor(at / 4 / width)];
        const half = found[across ? Number(x > width / 2) : Number(y > height / 2)];
        const colour = data.slice(at, at + 3).join();
        half[colour] = (half[colour] ?? 0) + 1;
      }
      return found.map(each => Math.max(...Object.values(each)) / Object.values(each).reduce((sum, one) => sum + one));
    }"""
    shares = sorted(page.locator(".map canvas").evaluate(colours, len(tops) == 1))
    assert shares[0] < 0.94 < 0.97 < shares[1], "lines across the tensor whose file is missing alone"
    assert violations(context, page) == "[]"
    page.get_by_role("link", name="Upload the whole folder").click()
    expect(page.get_by_role("region", name="Upload")).to_be_visible()


def test_model_without_tensors_leads_to_the_proto(context: BrowserContext) -> None:
    page = opened(context, "/m/none")
    page.get_by_role("link", name="Show the proto").click()
    expect(page.get_by_role("tree", name="Parts of the model")).to_be_visible()
