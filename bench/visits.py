"""Visits to the page in chromium: a model of 20 GiB and 200 000 tensors, and differences of 5 GiB."""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
from bench.service import running_service
from bench.timing import Row, seconds
from playwright.sync_api import BrowserContext, Page
from tests.support.browser import chromium, fetched, memory_of, scrolled, window
from tests.support.vast import vast_onnx

from protoslice.client import Client

MIB = 1 << 20
LARGE = (5120, 5248)
"""Numbers of rows and columns of the matrices: 102 MiB each."""
TREEMAP = ".both canvas"
_IS_SHOWN = "selector => document.querySelector(selector)?.getBoundingClientRect().width > 0"


def visits(folder: Path, scale: float) -> Iterator[Row]:
    """Rows of what a visitor waits for; the models are holes in files, registered where they lie."""
    models = folder / "models"
    models.mkdir(exist_ok=True)
    settings = {"PROTOSLICE_REGISTER_ALLOW": models.as_uri()}
    with running_service(folder / "page", settings) as url, chromium() as browser:
        tensors = _register(url, models, "vast", max(1, int(200 * scale)), 999)
        with window(browser, url) as context:
            yield from _looked_at(context, tensors)


def differences(folder: Path, scale: float) -> Iterator[Row]:
    """Rows of pictures of what changed between versions of 5 GiB, at a service that has just begun.

    Of three versions, the second was pushed over the first, and the third sent whole. Those registered where they lie
    are holes in files.
    """
    models, store = folder / "models", folder / "differences"
    models.mkdir(exist_ok=True)
    settings, layers = {"PROTOSLICE_REGISTER_ALLOW": models.as_uri()}, max(2, int(50 * scale))
    with running_service(store, settings) as url, Client(url) as client:
        _store_versions(url, client, models / "tuned.onnx", layers)
        for version in (1, 2):
            _register(url, models, f"deep:{version}", layers, 20, changed=1 if version == 2 else None)
    for what, names in (
        ("a version pushed over it", "tuned:1...tuned:2"),
        ("a version sent whole", "tuned:1...tuned:3"),
        ("a version registered in place, cold", "deep:1...deep:2"),
        ("  and again, by another process", "deep:1...deep:2"),
    ):
        with running_service(store, settings) as url, chromium() as browser, window(browser, url) as context:
            yield from _compared(context, url, what, names)


def _store_versions(url: str, client: Client, path: Path, layers: int) -> None:
    """Store three versions of a model of random numbers; in each another tensor has changed."""
    vast_onnx(path, layers, LARGE, 20, holes=False)
    _send_whole(url, path, "tuned:1")
    _change(path, 1 / 3)
    client.push(path, tags=["tuned:2"])
    _change(path, 2 / 3)
    _send_whole(url, path, "tuned:3")
    path.unlink()


def _send_whole(url: str, path: Path, tag: str) -> None:
    asked = {"filename": path.name, "tag": tag}
    with path.open("rb") as body:
        httpx.put(f"{url}/v1/stores", content=body, params=asked, timeout=600).raise_for_status()


def _change(path: Path, where: float) -> None:
    with path.open("r+b") as file:
        file.seek(int(path.stat().st_size * where))
        file.write(os.urandom(4096))


def _register(url: str, models: Path, name: str, layers: int, small: int, changed: int | None = None) -> int:
    path = models / f"{name.replace(':', '-')}.onnx"
    tensors = vast_onnx(path, layers, LARGE, small, changed)
    asked = {"files": {path.name: path.as_uri()}, "tags": [name]}
    httpx.post(f"{url}/v1/stores/register", json=asked, timeout=600).raise_for_status()
    return tensors


def _looked_at(context: BrowserContext, tensors: int) -> Iterator[Row]:
    """Rows of a visit that begins at a cold service: the treemap, then the table from end to end."""
    page = context.new_page()
    received = fetched(context, page)
    first = _until(page, "/m/vast", TREEMAP)
    yield Row(f"first treemap of {tensors} tensors, cold", seconds(first), "1 s", first, 1, False)
    again = statistics.median(_until(page, "/m/vast", TREEMAP) for _ in range(5))
    yield Row("  and again", seconds(again), "1 s", again, 1, False)
    table = _until(page, "/m/vast/tensors", "[role=row][aria-rowindex='9']")
    yield Row("  first rows of the table, cold", seconds(table), "none", table, 60, False)
    found = scrolled(page, ".rows")
    what = f"  frames a second of scrolling it, slowest {seconds(found.slowest)}"
    yield Row(what, f"{found.rate:.3g}", "50", found.rate / 50, 1)
    # The rate is the machine's too: this much of 20 ms would the page alone take.
    yield Row("  time of the page's thread for a frame", seconds(found.busy), "20 ms", found.busy * 50, 1, False)
    held = memory_of(page)
    yield Row("  memory of the page", f"{held / 1e6:.0f} MB", "200 MB", held / 200e6, 1, False)
    size = received()
    yield Row("  bytes fetched for all of it", f"{size / 1e6:.2f} MB", "2 MB", size / 2e6, 1, False)


def _compared(context: BrowserContext, url: str, what: str, names: str) -> Iterator[Row]:
    """Rows of a comparison at a cold service: the strip of all tensors by a sample, and all bytes."""
    page, start = context.new_page(), time.perf_counter()
    page.goto(f"/diff/{names}", wait_until="commit")
    page.get_by_text(re.compile(r"compared by a sample$")).wait_for(timeout=180_000)
    took = time.perf_counter() - start
    yield Row(f"{what}: all tensors by a sample", seconds(took), "3 s", took / 3, 1, False)
    before, _, after = names.partition("...")
    page.close()  # which believes checksums of blocks: here they prove nothing
    start = time.perf_counter()
    found = httpx.get(f"{url}/v1/stores/{after}/diff", params={"before": before}, timeout=600).json()
    took = time.perf_counter() - start
    with httpx.Client(base_url=url) as client:
        size = sum(client.get(f"/v1/stores/{each}").json()["size"] for each in (before, after)) / 2**30
    what = f"  all bytes of {size:.3g} GiB, of which {found['read'] / MIB:.3g} MiB were read"
    yield Row(what, f"{size / took:.3g} GiB/s", "1 GiB/s", size / took, 1)


def _until(page: Page, place: str, selector: str) -> float:
    """Seconds from the call of a place until the page shows something."""
    start = time.perf_counter()
    page.goto(place, wait_until="commit")
    # A locator looks every half second after a while: here each frame does.
    page.wait_for_function(_IS_SHOWN, arg=selector, polling="raf", timeout=180_000)
    page.evaluate("() => new Promise(requestAnimationFrame)")
    return time.perf_counter() - start
