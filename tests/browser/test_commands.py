"""Commands and code that the page prints, run in a shell with hostile names: `make browser`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from onnx import helper, numpy_helper
from playwright.sync_api import Browser, BrowserContext, expect
from tests.browser.windows import counted_calls, opened, violations, window
from tests.clients.hub import WITH
from tests.support.environments import python_of
from tests.support.hub import commit
from tests.support.serve import ServiceProcess
from tests.support.stores import onnx

EVIL = "x;touch PWNED;$(touch PWNED)"
NAMES = (
    EVIL,
    "`touch PWNED`",
    'it\'s "quoted"',
    "a  b",
    "100%25",
    "-rf",
    ".hidden",
    "~root",
    "é\N{SNOWMAN}\N{GRINNING FACE}",
    "a&b|c>PWNED<d*?[e]{f,g}!h#i\\",
    "$PWNED${PWNED}",
    "' || touch PWNED || '",
    '"); __import__("os").system("touch PWNED"); ("',
)
SHELL_WAYS = ("curl", "CLI", "Hugging Face", "oras", "git")
RUNTIME = """from pathlib import Path
class InferenceSession:
    def __init__(self, path): self.path = Path(path)
    def get_inputs(self): return [] if self.path.stat().st_size else None
"""
"""A module that replaces ONNX Runtime, which refuses a model without nodes."""
HUB = "huggingface_hub==2.4.0"
ORAS = Path(__file__).parents[2] / ".make"
"""The folder of oras, which `make browser` builds."""
DATA = onnx(4000)


@pytest.fixture
def context(browser: Browser, service: ServiceProcess) -> Iterator[BrowserContext]:
    """Open a window of one size, because the lines are the same in all sizes."""
    with window(browser, service.url) as context:
        yield context


def _put(service: ServiceProcess, path: str, data: bytes) -> httpx.Response:
    return httpx.put(f"{service.url}{path}", content=data, timeout=60)


def _ways(context: BrowserContext, place: str) -> Iterator[tuple[str, str]]:
    """Return kind and text of each line below "Use this model" on a model's page."""
    page = opened(context, place)
    page.locator("main").get_by_text("Use this model", exact=True).click()
    rows = page.locator("dl.ways")
    yield from zip(rows.locator("dt").all_inner_texts(), rows.locator("dd code").all_text_contents(), strict=True)
    page.close()


def _run(what: str, line: str, folder: Path) -> str:
    """Run a printed line in an empty folder, and return its output; assert that it succeeds and does nothing else."""
    clients = [str(python_of(HUB, *WITH).parent)] if what == "Hugging Face" else []
    path = os.pathsep.join([*clients, str(Path(sys.executable).parent), str(ORAS), os.environ["PATH"]])
    command = ["sh", "-c", line] if what in SHELL_WAYS else [sys.executable, "-c", line]
    home = folder.with_name(f"{folder.name}-home")
    home.mkdir()
    (home / "onnxruntime.py").write_text(RUNTIME)
    given = {"PATH": path, "HOME": str(home), "PYTHONPATH": str(home)}
    done = subprocess.run(
        command, cwd=folder, env=os.environ | given, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, (line, done.stderr)
    assert not [each for each in folder.rglob("*") if each.name == "PWNED"], line
    return done.stdout


def _check(context: BrowserContext, place: str, tmp_path: Path, data: bytes, *more: str) -> None:
    """Run every line that a page prints; assert that each line fetches `data`."""
    lines = list(_ways(context, place))
    assert {what for what, _ in lines} == {"curl", "Python", "CLI", "NumPy", "ONNX Runtime", *more}
    for number, (what, line) in enumerate(lines):
        folder = tmp_path / str(number)
        folder.mkdir()
        _run(what, line, folder)
        files = [each for each in folder.rglob("*") if each.is_file()]
        if what == "NumPy":
            assert files == []
            continue
        assert any(each.read_bytes() == data for each in files), (line, files)
        assert not [each for each in folder.iterdir() if each.name[0] in ".-~"], (line, files)


@pytest.mark.parametrize("name", NAMES)
def test_commands_for_a_hostile_file_do_only_what_they_say(
    context: BrowserContext, service: ServiceProcess, tmp_path: Path, name: str
) -> None:
    name = name.replace("\\", "")  # paths of files have none
    made = httpx.put(f"{service.url}/v1/stores", params={"filename": f"{name}.onnx"}, content=DATA, timeout=60)
    assert made.status_code in {200, 201}, made.text
    _check(context, f"/m/{made.json()['id']}", tmp_path, DATA)


@pytest.mark.parametrize("name", NAMES)
def test_commands_for_a_hostile_repository_do_only_what_they_say(
    context: BrowserContext, service: ServiceProcess, tmp_path: Path, name: str
) -> None:
    """Folders of MLflow may have any name."""
    name = name.replace("\\", "")
    path = f"/api/2.0/mlflow-artifacts/artifacts/{quote(name, safe='')}/artifacts/model.onnx"
    made = _put(service, path, DATA)
    assert made.status_code == 200, made.text
    found = httpx.get(f"{service.url}/v1/repositories", params={"limit": 100}, timeout=60).json()["items"]
    ref = next(each["ref"] for each in found if name in each["name"])
    _check(context, f"/m/{quote(ref, safe='')}", tmp_path, DATA)


def test_commands_for_a_tag_do_only_what_they_say(
    context: BrowserContext, service: ServiceProcess, tmp_path: Path
) -> None:
    tag = "a.b_c:d@e~f+g-h"
    made = _put(service, f"/v1/stores?filename=m.onnx&tag={quote(tag, safe='')}", DATA)
    assert made.status_code in {200, 201}, made.text
    _check(context, f"/m/{quote(tag, safe='')}", tmp_path, DATA)


@pytest.mark.parametrize("name", NAMES)
def test_the_code_for_one_tensor_loads_it_and_nothing_else(
    context: BrowserContext, service: ServiceProcess, tmp_path: Path, name: str
) -> None:
    tensor = numpy_helper.from_array(np.arange(12, dtype="<f4").reshape(3, 4), name)
    data = helper.make_model(helper.make_graph([], "g", [], [], [tensor])).SerializeToString()
    tag = f"one:{NAMES.index(name)}"
    _put(service, f"/v1/stores?filename=m.onnx&tag={tag}", data).raise_for_status()
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    for number, (slice_, printed) in enumerate((("", "(3, 4) float32"), ("1:, :2", "(2, 2) float32"))):
        page = opened(context, f"/m/{tag}/tensors?tensor=path:graph.initializer[0]&slice={quote(slice_)}")
        drawer = page.get_by_role("complementary", name="Tensor")
        drawer.get_by_role("button", name="Copy the Python code").click()
        expect(page.locator("body > [aria-live]")).to_contain_text("Copied the Python code")
        line = page.evaluate("navigator.clipboard.readText()")
        assert line == drawer.locator("dl.ways code").text_content()
        folder = tmp_path / str(number)
        folder.mkdir()
        assert _run("NumPy", line, folder).splitlines() == [printed]
        assert list(folder.iterdir()) == []
        page.close()


def test_commands_of_registries_fetch_the_model(
    context: BrowserContext, service: ServiceProcess, tmp_path: Path
) -> None:
    with httpx.Client(base_url=service.url, timeout=60) as client:
        client.post("/api/repos/create", json={"organization": "ann", "name": "m.o-del_1"})
        assert commit(client, "models/ann/m.o-del_1", {"model.onnx": DATA}).status_code == 200
    _check(context, "/m/ann%2Fm.o-del_1%40main", tmp_path, DATA, "Hugging Face", "oras", "git")


README = """---
license: mit
---
# A <script>alert(1)</script> model

Trained on *many* **pictures**, see [the paper](https://papers.example/1), [this](javascript:alert(2)) and
![a picture](https://tracker.example/pixel.png) <img src=x onerror=alert(3)>.

- one `item`
- two

| name | value |
|------|-------|
| a    | [b](http://b.example "title") |

```python
import <nothing>
```
"""


HOSTILE = {
    "blanks": "# a" + " " * 60_000 + "a",
    "quotes": ">" * 60_000,
    "quotes of lines": "> > > > > > > > > > > >\n" * 2_000,
    "brackets": "[](" * 20_000,
    "open": "[" * 60_000,
    "images": "![a](" * 12_000,
    "titles": '[a](b "' * 8_000,
    "addresses": "<http://" * 7_500,
    "stars": "**a*" * 15_000,
    "ticks": "`a" * 30_000,
    "cells": "|" * 60_000,
    "blank cells": ("|" + " " * 30) * 2_000 + "x",
    "hashes": "# " + "a #" * 20_000,
    "front": "---\n" * 15_000,
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_readme_does_not_freeze_the_page(context: BrowserContext, service: ServiceProcess, case: str) -> None:
    """A text took seconds or minutes if an expression was quadratic in its length, or it failed by its depth."""
    name = case.replace(" ", "-")
    with httpx.Client(base_url=service.url, timeout=60) as client:
        client.post("/api/repos/create", json={"organization": "hurt", "name": name})
        files = {"model.onnx": DATA, "README.md": f"# Begin\n\n{HOSTILE[case]}\n\n## End".encode()}
        assert commit(client, f"models/hurt/{name}", files).status_code == 200
    page = opened(context, f"/m/hurt%2F{name}%40main")
    expect(page.locator("main").get_by_text("README")).to_be_visible()
    assert page.locator(".markdown").count() == 0, "nothing is read before it is opened"
    page.get_by_role("button", name="README").click()
    # Do not search by role, because Playwright would then look at each of 20,000 items.
    expect(page.locator(".markdown h3")).to_have_text("End")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the window"


@pytest.mark.parametrize(
    "lines", ["- a\n", "  a\n", "| a |\n", "> a\n", "a\n\n"], ids=["items", "text", "rows", "quotes", "blanks"]
)
def test_a_readme_of_four_times_the_lines_takes_four_times_the_calls(
    context: BrowserContext, service: ServiceProcess, lines: str
) -> None:
    """The test counts function calls, since time depends on the machine's load."""
    calls = []
    for number in (1_000, 4_000):
        text = f"- begin\n{lines * number}\n\n## End"
        with httpx.Client(base_url=service.url, timeout=60) as client:
            client.post("/api/repos/create", json={"organization": "long", "name": "readme"})
            files = {"model.onnx": DATA, "README.md": text.encode()}
            assert commit(client, "models/long/readme", files).status_code == 200
        page = opened(context, "/m/long%2Freadme%40main")
        with counted_calls(context, page) as count:
            page.get_by_role("button", name="README").click()
            expect(page.locator(".markdown h3")).to_have_text("End", timeout=60_000)
        calls.append(count())
        page.close()
    assert 1_000 < calls[0] < calls[1] < 5 * calls[0], calls


def test_a_quantized_model_of_a_repository_is_run_by_ollama(context: BrowserContext, service: ServiceProcess) -> None:
    """`tests/clients/ollama.py` pulls such a name with Ollama itself."""
    model = (Path(__file__).parents[1] / "golden/models/gguf_types/a.gguf").read_bytes()
    with httpx.Client(base_url=service.url, timeout=60) as client:
        client.post("/api/repos/create", json={"organization": "ann", "name": "tiny"})
        assert commit(client, "models/ann/tiny", {"tiny.gguf": model}).status_code == 200
    lines = dict(_ways(context, "/m/ann%2Ftiny%40main"))
    assert lines["Ollama"] == f"ollama run --insecure {service.url}/ann/tiny:main"
    assert "ONNX Runtime" not in lines


def test_a_readme_is_text_with_links_to_the_web_alone(context: BrowserContext, service: ServiceProcess) -> None:
    with httpx.Client(base_url=service.url, timeout=60) as client:
        client.post("/api/repos/create", json={"organization": "ann", "name": "card"})
        files = {"model.onnx": DATA, "README.md": README.encode()}
        assert commit(client, "models/ann/card", files).status_code == 200
    page = opened(context, "/m/ann%2Fcard%40main")
    page.get_by_role("button", name="README").click()
    shown = page.locator(".markdown")
    expect(shown.get_by_role("heading")).to_have_text("A <script>alert(1)</script> model")
    expect(shown.locator("em")).to_have_text("many")
    expect(shown.locator("li")).to_have_text(["one item", "two"])
    expect(shown.locator("td").first).to_have_text("a")
    expect(shown.locator("pre")).to_have_text("import <nothing>")
    places = [link.get_attribute("href") for link in shown.locator("a").all()]
    assert places == ["https://papers.example/1", "https://tracker.example/pixel.png", "http://b.example"]
    assert page.locator("main img, main script").count() == 0
    assert violations(context, page) == "[]"


def test_a_description_is_markdown_without_html(context: BrowserContext, service: ServiceProcess) -> None:
    id = _put(service, "/v1/stores?filename=m.onnx&tag=described:9", onnx(4009)).json()["id"]
    for text in ("**Bold** <img src=x onerror=alert(1)> [bad](javascript:alert(2)) [good](https://a.example)", README):
        httpx.patch(f"{service.url}/v1/stores/{id}", json={"description": text}, timeout=60).raise_for_status()
        page = opened(context, "/m/described:9")
        shown = page.locator(".description")
        expect(shown).to_be_visible()
        if text == README:
            expect(shown.locator("summary")).to_have_text(re.compile("^A <script>alert\\(1\\)</script> model"))
            shown.locator("summary").click()
        else:
            expect(shown.locator("strong")).to_have_text("Bold")
        links = [(link.get_attribute("href"), link.get_attribute("rel")) for link in shown.locator("a").all()]
        rel = "noopener noreferrer nofollow"
        assert links[-1:] == [("https://a.example" if text != README else "http://b.example", rel)]
        assert all(place and place.startswith(("http://", "https://")) for place, _ in links)
        assert page.locator("main img, main script").count() == 0
        assert violations(context, page) == "[]"
        page.close()
