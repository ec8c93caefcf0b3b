"""Uploads by the page in a real browser that loses its connection, is closed, and continues: `make browser`.

`PROTOSLICE_UPLOAD_BYTES` sets the size of the file, 12 MiB by default. `PROTOSLICE_UPLOAD_FILES` sets the number of
files in a folder of many files.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect
from tests.browser.windows import opened, violations, window
from tests.support.catalogues import upload_ids
from tests.support.serve import ServiceProcess, service_process
from tests.support.wire import Relay

SIZE = int(os.environ.get("PROTOSLICE_UPLOAD_BYTES", 12 << 20))
MIB = 1 << 20
MANY = int(os.environ.get("PROTOSLICE_UPLOAD_FILES", "300"))
PATIENCE = 30_000 + SIZE // 20_000
"""The milliseconds for an upload: 20 MB/s plus half a minute."""
LOST = "Failed to load resource: "
# The browser keeps a file for a closed window, so the test need not answer a file dialog.
DROPS = """async ([name, size]) => {
  const folder = await navigator.storage.getDirectory();
  const handle = await folder.getFileHandle(name, {create: true});
  const writer = await handle.createWritable();
  await writer.write(new Uint8Array(size).fill(7));
  await writer.close();
  const entry = {isFile: true, name, file: take => void handle.getFile().then(take)};
  const item = {kind: "file", webkitGetAsEntry: () => entry, getAsFileSystemHandle: async () => handle};
  const event = new Event("drop");
  event.dataTransfer = {types: ["Files"], items: [item]};
  dispatchEvent(event);
}"""


# The browser saves its data after half a second, and not at all if the tab is closed before.
SLOW_TO_KEEP = """
const put = IDBObjectStore.prototype.put;
IDBObjectStore.prototype.put = function (value) {
  const [request, until] = [put.call(this, value), performance.now() + 500];
  const hold = () => { if (performance.now() < until) this.count().onsuccess = hold; };
  hold();
  return request;
};
"""


class Services:
    """Services over one storage, one after the other, behind a relay that can break connections."""

    def __init__(self, storage: Path) -> None:
        self._folder = storage
        self._storage = storage.as_uri()
        self._stack = ExitStack()
        self.running = self._started()
        self.line = self._stack.enter_context(Relay(self.running.url))

    def _started(self) -> ServiceProcess:
        settings = {"PROTOSLICE_SPACE_WATERMARK_BYTES": "0", "PROTOSLICE_MAX_UPLOAD": "8GiB"}
        return self._stack.enter_context(service_process("--storage", self._storage, settings=settings))

    def kill(self) -> None:
        """Kill the service, as a power cut does."""
        self.running.running.kill()
        self.running.running.wait()

    def start(self) -> None:
        """Start another service, and lead the relay to it."""
        self.running = self._started()
        self.line.lead_to(self.running.url)

    def offsets(self) -> dict[str, int]:
        """Return how many bytes of each upload the service has, once it has noticed the broken connections."""
        before: dict[str, int] | None = None
        now = self._offsets()
        for _ in range(100):
            if now == before:
                return now
            time.sleep(0.3)
            before, now = now, self._offsets()
        raise AssertionError(f"the service is still receiving: {now}")

    def _offsets(self) -> dict[str, int]:
        return {each: self._offset(each) for each in upload_ids(self._folder)}

    def _offset(self, upload: str) -> int:
        answer = httpx.head(f"{self.running.url}/v1/uploads/{upload}", headers={"tus-resumable": "1.0.0"}, timeout=30)
        return int(answer.raise_for_status().headers["upload-offset"])

    def close(self) -> None:
        """End the service and the relay."""
        self._stack.close()


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    services = Services(tmp_path / "storage")
    yield services
    services.close()


@pytest.fixture
def context(browser: Browser, services: Services) -> Iterator[BrowserContext]:
    with window(browser, services.line.url, may_say=LOST) as context:
        yield context


def noise(path: Path, size: int) -> str:
    """Write `size` random bytes; return their SHA-256."""
    digest, source = hashlib.sha256(), random.Random(str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for at in range(0, size, MIB):
            piece = source.randbytes(min(MIB, size - at))
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def stored(page: Page, services: Services) -> dict[str, str]:
    """Return the SHA-256 by path of the bytes in the store whose page is open."""
    page.wait_for_url("**/m/*", timeout=PATIENCE)
    store = page.url.rpartition("/")[2]
    found = {}
    files = httpx.get(f"{services.running.url}/v1/stores/{store}").json()["files"]
    for path in (each["path"] for each in files):
        digest = hashlib.sha256()
        with httpx.stream("GET", f"{services.running.url}/v1/stores/{store}/files/{path}", timeout=60) as answer:
            for piece in answer.iter_raw():
                digest.update(piece)
        found[path] = digest.hexdigest()
    return found


def test_a_file_goes_on_after_the_tab_was_closed_and_the_service_killed(
    context: BrowserContext, services: Services, tmp_path: Path
) -> None:
    path = tmp_path / "größe שלום <img src=x>.bin"
    digest = noise(path, SIZE)
    page = opened(context, "/")
    services.line.begin(up=SIZE * 0.6, holds=True)
    page.get_by_label("Files to upload").set_input_files(path)
    assert services.line.reached.wait(PATIENCE / 1000)
    page.close()
    services.line.begin()
    ((upload, had),) = services.offsets().items()
    assert had > SIZE * 0.1, "what lay in the buffers of a busy machine is lost with the line"

    page = opened(context, "/")
    row = page.get_by_label("Upload", exact=True)
    expect(row).to_contain_text(path.name)
    expect(row).to_contain_text("Drop or choose the same file again to resume.")
    expect(row.locator("[data-said]").first).to_have_text("not finished")
    knows_of(page, had)
    assert violations(context, page) == "[]"
    begun = beginnings(page)
    services.line.begin(up=SIZE * 0.2, holds=True)
    page.get_by_label("Files to upload").set_input_files(path)
    assert services.line.reached.wait(PATIENCE / 1000)
    services.kill()
    services.line.begin()
    expect(row.locator("[data-said]").first).to_have_text("waiting for the service", timeout=PATIENCE)
    services.start()
    assert stored(page, services) == {path.name: digest}
    assert begun[0] == (upload, had)
    assert all(each >= begun[0] for each in begun), "what the service had is not sent again"
    page.goto("/")
    expect(page.get_by_role("progressbar")).to_have_count(0)


def test_a_folder_goes_on_and_its_finished_files_are_not_sent_again(
    context: BrowserContext, services: Services, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    digests = {f"part-{n:02}/data": noise(folder / f"part-{n:02}" / "data", 2 * MIB) for n in range(8)}
    digests |= {"README.md": noise(folder / "README.md", 20), "empty": noise(folder / "empty", 0)}
    page = opened(context, "/")
    services.line.begin(up=11 * MIB, holds=True)
    drop(context, page, folder)
    assert services.line.reached.wait(30)
    page.close()
    services.line.begin()
    had = services.offsets()
    whole = {upload for upload, size in had.items() if size == 2 * MIB}
    assert whole

    page = opened(context, "/")
    expect(page.get_by_label("Upload", exact=True)).to_contain_text("checkpoint")
    knows_of(page, sum(had.values()))
    begun = beginnings(page)
    page.get_by_label("Folder to upload").set_input_files(folder)
    assert stored(page, services) == digests
    assert not whole & {upload for upload, _ in begun}
    assert [(upload, had.get(upload, 0)) for upload, _ in begun] == begun
    # The tab may be closed before it receives an upload's address. Such an upload stays without a byte.
    large = [size for size in services.offsets().values() if size > 20]
    assert large == [2 * MIB] * 8, "no bytes of a file went to two uploads"


def beginnings(page: Page) -> list[tuple[str, int]]:
    """Return the uploads to which the page sends bytes from now on, with the offset; the result grows meanwhile.

    Bytes on the relay tell less, because Chromium resends a request over a reused connection that breaks.
    """
    found: list[tuple[str, int]] = []

    def note(request: Request) -> None:
        if request.method == "PATCH":
            found.append((request.url.rpartition("/")[2], int(request.headers["upload-offset"])))

    page.on("request", note)
    return found


def knows_of(page: Page, size: int) -> None:
    """Wait until the page's only upload is known to have `size` bytes at the service."""
    expect(page.get_by_role("progressbar")).to_have_js_property("value", size)


def test_no_byte_goes_where_a_page_opened_later_would_not_find_it(
    context: BrowserContext, services: Services, tmp_path: Path
) -> None:
    """The tab is closed as soon as bytes are sent, while the browser is slow to save the upload's address."""
    path = tmp_path / "model.bin"
    noise(path, 4 * MIB)
    context.add_init_script(SLOW_TO_KEEP)
    page = opened(context, "/")
    services.line.begin(up=2 * MIB, holds=True)
    page.get_by_label("Files to upload").set_input_files(path)
    assert services.line.reached.wait(30)
    page.close()
    services.line.begin()
    (had,) = services.offsets().values()
    assert had > 0
    knows_of(opened(context, "/"), had)


def drop(context: BrowserContext, page: Page, path: Path) -> None:
    """Drop a file or a folder on the page, as a user does."""
    session = context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "dragOver", "drop"):
        data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
        session.send("Input.dispatchDragEvent", {"type": kind, "x": 300, "y": 300, "data": data})
        if kind == "dragOver":  # the browser drops nothing before the page has accepted the drag
            expect(page.locator(".drop.over")).to_be_visible()


def test_a_file_that_the_browser_still_has_goes_on_by_a_click(context: BrowserContext, services: Services) -> None:
    page = opened(context, "/")
    services.line.begin(up=3 * MIB, holds=True)
    page.evaluate(DROPS, ["kept.bin", 5 * MIB])
    assert services.line.reached.wait(30)
    page.close()
    services.line.begin()
    ((upload, had),) = services.offsets().items()

    page = opened(context, "/")
    assert had > 0
    knows_of(page, had)
    begun = beginnings(page)
    page.get_by_role("button", name="Resume").click()
    assert stored(page, services) == {"kept.bin": hashlib.sha256(b"\7" * 5 * MIB).hexdigest()}
    assert begun == [(upload, had)]


def test_another_file_of_the_same_name_is_sent_anew(
    context: BrowserContext, services: Services, tmp_path: Path
) -> None:
    path = tmp_path / "model.bin"
    noise(path, 4 * MIB)
    page = opened(context, "/")
    services.line.begin(up=2 * MIB, holds=True)
    page.get_by_label("Files to upload").set_input_files(path)
    assert services.line.reached.wait(30)
    page.close()
    services.line.begin()
    path.write_bytes(b"changed" * MIB)

    page = opened(context, "/")
    page.get_by_label("Files to upload").set_input_files(path)
    assert stored(page, services) == {"model.bin": hashlib.sha256(path.read_bytes()).hexdigest()}
    page.goto("/")
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_role("progressbar")).to_have_count(0)
    page.reload()
    page.wait_for_load_state("networkidle")
    expect(page.get_by_role("progressbar")).to_have_count(0)


def test_an_upload_is_paused_and_goes_on_by_keys(context: BrowserContext, services: Services, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    digest = noise(path, 4 * MIB)
    page = opened(context, "/")
    services.line.begin(up=2 * MIB, holds=True)
    page.get_by_label("Files to upload").set_input_files(path)
    assert services.line.reached.wait(30)
    page.get_by_role("button", name="Pause").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Upload", exact=True).locator("[data-said]")).to_have_text("paused")
    services.line.begin()
    ((upload, had),) = services.offsets().items()
    assert had > 0
    begun = beginnings(page)
    page.get_by_role("button", name="Resume").focus()
    page.keyboard.press("Enter")
    assert stored(page, services) == {"model.bin": digest}
    assert begun == [(upload, had)]


def test_a_folder_of_many_files_goes_on_as_one_upload(
    context: BrowserContext, services: Services, tmp_path: Path
) -> None:
    folder, deep = tmp_path / "many", "/".join(["größe-und-tiefe"] * 8)
    digests = {f"{n:03}": noise(folder / f"{n:03}", 40_000 + n) for n in range(MANY)}
    digests |= {f"{deep}/שלום.bin": noise(folder / deep / "שלום.bin", 513), "empty": noise(folder / "empty", 0)}
    page = opened(context, "/")
    services.line.begin(up=MANY * 20_000, holds=True)
    drop(context, page, folder)
    assert services.line.reached.wait(PATIENCE / 1000)
    page.close()
    services.line.begin()
    ((upload, had),) = services.offsets().items()
    assert had > MANY * 2_000

    page = opened(context, "/")
    expect(page.get_by_label("Upload", exact=True)).to_contain_text(f"{MANY + 2:,} files")
    knows_of(page, had)
    begun = beginnings(page)
    page.get_by_label("Folder to upload").set_input_files(folder)
    assert stored(page, services) == digests
    assert begun == [(upload, had)], "what the service had is not sent again"
    assert violations(context, page) == "[]"


def test_a_folder_of_many_files_of_which_one_is_another_is_sent_anew(
    context: BrowserContext, services: Services, tmp_path: Path
) -> None:
    digests = {f"{n:03}": noise(tmp_path / "many" / f"{n:03}", 40_000) for n in range(201)}
    page = opened(context, "/")
    services.line.begin(up=4_000_000, holds=True)
    page.get_by_label("Folder to upload").set_input_files(tmp_path / "many")
    assert services.line.reached.wait(30)
    page.close()
    services.line.begin()
    digests["005"] = noise(tmp_path / "many" / "005", 39_999)  # was sent before; the archive keeps its length

    page = opened(context, "/")
    page.get_by_label("Folder to upload").set_input_files(tmp_path / "many")
    assert stored(page, services) == digests


def names(services: Services) -> dict[str, set[str]]:
    """Return the tags of all stores by the paths of their files."""
    found = httpx.get(f"{services.running.url}/v1/stores").json()["items"]
    return {" ".join(each["path"] for each in store["files"]): set(store["tags"]) for store in found}


def test_an_upload_is_named_by_its_file_and_a_number(
    context: BrowserContext, services: Services, tmp_path: Path
) -> None:
    first, folder = tmp_path / "größe a.b.onnx", tmp_path / "nets v1.5"
    noise(first, MIB)
    noise(folder / "weights.bin", MIB)
    for path, label, name in (
        (first, "Files to upload", "gro-e-a.b:1"),
        (first, "Files to upload", "gro-e-a.b:1"),
        (tmp_path / "other" / first.name, "Files to upload", "gro-e-a.b:2"),
        (folder, "Folder to upload", "nets-v1.5:1"),
    ):
        if not path.exists():
            noise(path, MIB)
        page = opened(context, "/")
        page.get_by_label(label).set_input_files(path)
        page.wait_for_url(f"**/m/{name.replace(':', '%3A')}")
        expect(page.get_by_role("heading", level=1)).to_have_text(name.replace("ß", "-"))
        page.close()
    tags = [httpx.get(f"{services.running.url}/v1/tags/{name}").json() for name in ("gro-e-a.b:1", "gro-e-a.b:2")]
    assert tags[0]["store"] != tags[1]["store"]


@pytest.mark.parametrize("typed", ["", "mine:7", "taken:1"])
def test_the_name_of_an_upload_is_changed_while_it_is_sent(
    context: BrowserContext, services: Services, tmp_path: Path, typed: str
) -> None:
    noise(tmp_path / "model.bin", 4 * MIB)
    other = f"{services.running.url}/v1/stores?filename=other.bin&tag=taken:1"
    httpx.put(other, content=b"other").raise_for_status()
    page = opened(context, "/")
    services.line.begin(up=2 * MIB, holds=True)
    page.get_by_label("Files to upload").set_input_files(tmp_path / "model.bin")
    assert services.line.reached.wait(30)
    field = page.get_by_label("Name for model.bin")
    field.fill(typed)
    services.line.begin()
    field.press("Enter")
    if typed == "taken:1":
        expect(page.locator(".trouble")).to_have_text("taken:1 already names another model: choose another version")
        expect(field).to_have_accessible_description("taken:1 already names another model: choose another version")
        assert violations(context, page) == "[]"
        field.fill("taken:2")
        field.press("Enter")
    page.wait_for_url("**/m/*", timeout=PATIENCE)
    wanted = {"": set[str](), "mine:7": {"mine:7"}, "taken:1": {"taken:2"}}[typed]
    assert names(services) == {"model.bin": wanted, "other.bin": {"taken:1"}}


def test_an_upload_waits_for_the_person_in_the_field_of_its_name(
    context: BrowserContext, services: Services, tmp_path: Path
) -> None:
    noise(tmp_path / "model.bin", 4 * MIB)
    page = opened(context, "/")
    services.line.begin(up=2 * MIB, holds=True)
    page.get_by_label("Files to upload").set_input_files(tmp_path / "model.bin")
    assert services.line.reached.wait(30)
    field = page.get_by_label("Name for model.bin")
    expect(field).to_have_value("model:1")
    field.fill("half")
    services.line.begin()
    expect(page.get_by_label("Upload", exact=True)).to_contain_text(
        "press Enter to give it this name", timeout=PATIENCE
    )
    field.press("End")
    page.keyboard.type("-done:3")
    page.keyboard.press("Enter")
    page.wait_for_url("**/m/half-done%3A3")
    assert names(services) == {"model.bin": {"half-done:3"}}
