"""A browser's fetch from a page of another origin: `make browser`; needs Debian's chromium."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import httpx
import pytest
from tests.support.serve import ServiceProcess, service_process
from tests.support.stores import onnx
from tests.support.wire import in_a_thread

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

PAGE = """<!doctype html><script type="module">
const base = %s;
const digest = async bytes => [...new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))]
  .map(byte => byte.toString(16).padStart(2, "0")).join("");
const shown = answer => ({status: answer.status, ...Object.fromEntries(answer.headers)});
const run = async () => { %s };
let result;
try { result = {value: await run()}; } catch (error) { result = {error: String(error)}; }
await fetch("/result", {method: "POST", body: JSON.stringify(result)});
</script>"""


class Pages(BaseHTTPRequestHandler):
    """A server of one page, which also receives the result of the page's script."""

    def __init__(self, page: str, results: Queue[str], *arguments: Any) -> None:
        self._page = page
        self._results = results
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """Serve the page."""
        self._answer(self._page.encode() if self.path == "/" else b"")

    def do_POST(self) -> None:
        """Receive the result of the script."""
        self._results.put(self.rfile.read(int(self.headers["content-length"])).decode())
        self._answer(b"")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Write no log lines."""


@contextmanager
def served(page: str, results: Queue[str], port: int = 0) -> Iterator[int]:
    """Serve the page at a loopback port, which is another origin than the service's."""
    server = ThreadingHTTPServer(("127.0.0.1", port), partial(Pages, page, results))
    with in_a_thread(server):
        yield server.server_address[1]


class Browser:
    """A browser that runs pages; its cache lasts as long as its folder."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        assert program is not None, "install chromium first"
        self._command = [program, *FLAGS, f"--user-data-dir={folder}"]

    def run(self, base: str, script: str, port: int = 0) -> Any:
        """Return the result of `script`, an async function's body, in a page; `base` is the service's address."""
        results: Queue[str] = Queue()
        with served(PAGE % (json.dumps(base), script), results, port) as port:
            browser = subprocess.Popen(
                [*self._command, f"http://127.0.0.1:{port}/"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            try:
                result = json.loads(results.get(timeout=60))
            finally:
                browser.terminate()
                browser.wait(30)
        if "error" in result:
            raise RuntimeError(result["error"])
        return result["value"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """Run a service that pages of any origin may use."""
    storage = tmp_path_factory.mktemp("storage")
    settings = {"PROTOSLICE_SPACE_WATERMARK_BYTES": "0", "PROTOSLICE_CORS_ORIGINS": "*"}
    with service_process("--storage", storage.as_uri(), settings=settings) as running:
        yield running


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    """Return a browser with an empty cache."""
    return Browser(tmp_path)


def metric(service: ServiceProcess, name: str, route: str) -> dict[str, float]:
    """Return the values of a metric for GET at `route`, by status."""
    start = re.escape(f'protoslice_{name}{{method="GET",route="{route}",status="')
    text = httpx.get(f"{service.url}/metrics").text
    return {status: float(count) for status, count in re.findall(start + r'(\d+)"} (\S+)', text)}


def test_ranges(browser: Browser, service: ServiceProcess, stored: Any) -> None:
    script = """
      const url = `${base}/files/model.onnx`;
      const part = async (range, more) => {
        const answer = await fetch(url, {headers: {range}, ...more});
        return {...shown(answer), body: await digest(await answer.arrayBuffer())};
      };
      return {first: await part("bytes=0-99999"), over: await part("bytes=50000-149999"),
              last: await part("bytes=-7"), none: await part("bytes=99999999-", {cache: "no-store"}),
              whole: await digest(await (await fetch(url)).arrayBuffer()),
              again: await part("bytes=1-3")};
    """
    seen = browser.run(stored.url, script)

    def sha(start: int, end: int) -> str:
        return hashlib.sha256(stored.data[start:end]).hexdigest()

    size = len(stored.data)
    assert (seen["first"]["status"], seen["first"]["body"]) == (206, sha(0, 100_000))
    assert seen["first"]["content-range"] == f"bytes 0-99999/{size}"
    assert seen["first"]["accept-ranges"] == "bytes"
    assert (seen["over"]["status"], seen["over"]["body"]) == (206, sha(50_000, 150_000))
    assert (seen["last"]["status"], seen["last"]["body"]) == (206, sha(size - 7, size))
    assert (seen["none"]["status"], seen["none"]["content-range"]) == (416, f"bytes */{size}")
    assert seen["whole"] == sha(0, size)
    assert (seen["again"]["status"], seen["again"]["body"]) == (206, sha(1, 4))


def test_head_and_conditions(browser: Browser, stored: Any) -> None:
    script = """
      const url = `${base}/chunks/0`;
      const head = await fetch(url, {method: "HEAD"});
      const etag = head.headers.get("etag");
      const known = await fetch(url, {headers: {"if-none-match": etag}, cache: "no-store"});
      const other = await fetch(url, {headers: {"if-match": '"other"'}, cache: "no-store"});
      return {head: shown(head), length: (await head.arrayBuffer()).byteLength, known: shown(known),
              other: shown(other), problem: await other.json()};
    """
    seen = browser.run(stored.url, script)
    assert seen["head"]["status"] == 200
    assert seen["head"]["x-protobuf-message"] == "onnx.ModelProto"
    assert seen["head"]["content-length"] == str(len(httpx.get(f"{stored.url}/chunks/0").content))
    assert seen["length"] == 0
    assert seen["known"]["status"] == 304
    assert seen["known"]["etag"] == seen["head"]["etag"]
    assert seen["other"]["status"] == seen["problem"]["status"] == 412
    assert seen["problem"]["request_id"] == seen["other"]["x-request-id"]


def test_what_lies_under_an_id_is_fetched_once(browser: Browser, service: ServiceProcess, stored: Any) -> None:
    """A page requests a tag's content again, but the service does not send it again."""
    store = stored.url.rpartition("/")[2]
    httpx.put(f"{service.url}/v1/tags/cached", json={"store": store}).raise_for_status()
    route = "/v1/stores/{ref}/chunks/{n}"
    before = metric(service, "requests_total", route)
    script = """
      const get = async ref => await digest(await (await fetch(`${base}/v1/stores/${ref}/chunks/1`)).arrayBuffer());
      return [await get("%s"), await get("%s"), await get("cached"), await get("cached")];
    """
    seen = browser.run(service.url, script % (store, store))
    assert set(seen) == {hashlib.sha256(httpx.get(f"{stored.url}/chunks/1").content).hexdigest()}
    after = metric(service, "requests_total", route)
    assert after["200"] - before.get("200", 0) == 3  # one of these connections is the test's
    assert after["304"] - before.get("304", 0) == 1


def test_uploads(browser: Browser, service: ServiceProcess) -> None:
    """Uploads of 32 MiB as a body and in a form, with progress events, which need a preflight."""
    script = """
      const head = new Uint8Array([0x0a, 0x80, 0x80, 0x80, 0x10]), rest = new Uint8Array(32 << 20).fill(7);
      const file = new File([head, rest], "browser.pb", {type: "application/protobuf"});
      let told = 0;
      const body = await new Promise((resolve, reject) => {
        const request = new XMLHttpRequest();
        request.upload.onprogress = () => { told += 1; };
        request.onload = () => resolve({status: request.status, store: JSON.parse(request.responseText)});
        request.onerror = () => reject("refused");
        request.open("PUT", `${base}/v1/stores?filename=browser.pb&tag=browser`);
        request.send(file);
      });
      const form = new FormData();
      form.append("file", file, "model.pb");
      form.append("file", new Blob(["notes"]), "notes.txt");
      const several = await fetch(`${base}/v1/stores`, {method: "POST", body: form});
      return {body, told, several: {status: several.status, location: several.headers.get("location"),
              store: await several.json()}};
    """
    seen = browser.run(service.url, script)
    sha = hashlib.sha256(b"\x0a\x80\x80\x80\x10" + b"\x07" * (32 << 20)).hexdigest()
    assert seen["body"]["status"] == seen["several"]["status"] == 201
    assert [file["sha256"] for file in seen["body"]["store"]["files"]] == [sha]
    assert seen["body"]["store"]["tags"] == ["browser"]
    assert seen["told"] > 1
    assert [file["path"] for file in seen["several"]["store"]["files"]] == ["model.pb", "notes.txt"]
    assert seen["several"]["location"] == f"/v1/stores/{seen['several']['store']['id']}"


def test_tags_with_compare_and_set(browser: Browser, service: ServiceProcess, stored: Any) -> None:
    script = """
      const put = async headers => await fetch(`${base}/v1/tags/page`, {method: "PUT",
        body: JSON.stringify({store: "%s"}), headers: {"content-type": "application/json", ...headers}});
      const first = await put({"if-none-match": "*"}), second = await put({"if-none-match": "*"});
      const removed = await fetch(`${base}/v1/tags/page`, {method: "DELETE",
        headers: {"if-match": first.headers.get("etag")}});
      return [first.status, second.status, removed.status];
    """
    seen = browser.run(service.url, script % stored.url.rpartition("/")[2])
    assert seen == [201, 412, 204]


def test_a_page_that_has_seen_enough(browser: Browser, service: ServiceProcess) -> None:
    """The page reads piece by piece, and nothing more arrives after it aborts."""
    data = onnx(200 << 20)
    store = httpx.put(f"{service.url}/v1/stores?filename=large.onnx", content=data, timeout=60).json()["id"]
    script = """
      const abort = new AbortController();
      const answer = await fetch(`${base}/v1/stores/%s/files/large.onnx`, {signal: abort.signal, cache: "no-store"});
      const reader = answer.body.getReader();
      let received = 0;
      while (received < 1 << 20) received += (await reader.read()).value.length;
      abort.abort();
      return received;
    """
    seen = browser.run(service.url, script % store)
    assert 1 << 20 <= seen < len(data)
    for _ in range(500):
        if sent := metric(service, "sent_bytes_total", "/v1/stores/{ref}/files/{path:path}").get("499", 0):
            break
        time.sleep(0.01)
    assert 1 << 20 <= sent < len(data)


def test_without_leave_a_page_sees_nothing(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> None:
    storage = tmp_path_factory.mktemp("other")
    with service_process("--storage", storage.as_uri()) as running:
        with pytest.raises(RuntimeError, match="Failed to fetch"):
            browser.run(running.url, "return (await fetch(`${base}/v1/stores`)).status;")
        with pytest.raises(RuntimeError, match="Failed to fetch"):
            browser.run(running.url, 'return (await fetch(`${base}/v1/tags/x`, {method: "DELETE"})).status;')


def test_only_pages_of_the_named_origin(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> None:
    storage = tmp_path_factory.mktemp("named")
    with served("", Queue()) as free:
        origins = f"https://elsewhere.example, http://127.0.0.1:{free}"
    script = "return (await fetch(`${base}/livez`)).status;"
    with service_process("--storage", storage.as_uri(), settings={"PROTOSLICE_CORS_ORIGINS": origins}) as running:
        assert browser.run(running.url, script, port=free) == 200
        with pytest.raises(RuntimeError, match="Failed to fetch"):
            browser.run(running.url, script)
