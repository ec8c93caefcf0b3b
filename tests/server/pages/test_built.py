"""The page that `make web` builds: its shell, its files, and a checkout without them."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.serve import assert_problem

from protoslice.server.pages import html

SCRIPT, STYLE = b"console.log(1)", b"body{}"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A page as it is built, of two files."""
    folder = tmp_path / "built"
    folder.mkdir()
    parts = {"main": ["a.js"], "library": ["l.js", "a.js"], "model": ["m.js"], "weights": ["w.js"], "tensors": ["t.js"]}
    listed = {"script": "main-AB.js", "style": "style-CD.css", "parts": parts}
    (folder / "first.json").write_text(json.dumps(listed))
    for name, data in (("main-AB.js", SCRIPT), ("style-CD.css", STYLE)):
        (folder / name).write_bytes(data)
        (folder / f"{name}.gz").write_bytes(gzip.compress(data))
        (folder / f"{name}.br").write_bytes(b"br of " + data)
    yield from _over(tmp_path, monkeypatch)


@pytest.fixture
def no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A checkout in which the page was not built."""
    yield from _over(tmp_path, monkeypatch)


def _over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    caches = html.assets, html._first
    monkeypatch.setattr(html, "files", lambda package: folder)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.mark.usefixtures("page")
@pytest.mark.parametrize(
    "path", ["/", "/m/resnet50:4", "/m/resnet50:4/tensors", "/diff/resnet50:3...resnet50:4", "/operations"]
)
def test_every_address_of_the_page_is_its_shell(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert '<script type="module" src="/assets/main-AB.js"></script>' in answer.text
    assert '<link rel="stylesheet" href="/assets/style-CD.css">' in answer.text
    policy = dict(each.split(" ", 1) for each in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert (policy["worker-src"], policy["trusted-types"]) == ("'self'", "strip")


@pytest.mark.usefixtures("page")
@pytest.mark.parametrize(
    ("path", "scripts"),
    [
        ("/", ["a.js", "l.js"]),
        ("/m/resnet50:4", ["a.js", "m.js", "w.js"]),
        ("/m/resnet50:4/tensors", ["a.js", "m.js", "t.js"]),
        ("/m/resnet50:4/files", ["a.js", "m.js"]),
        ("/operations", ["a.js"]),
    ],
)
def test_all_scripts_of_the_first_view_are_asked_for_at_once(
    client: httpx.Client, path: str, scripts: list[str]
) -> None:
    assert re.findall('<link rel="modulepreload" href="/assets/([^"]+)">', client.get(path).text) == scripts


@pytest.mark.usefixtures("page")
def test_without_scripts_there_is_the_plain_page(client: httpx.Client) -> None:
    plain = client.get("/").text.split("<noscript>")[1]
    assert "curl -X POST -T model.onnx" in plain
    assert "make web" not in plain


@pytest.mark.usefixtures("page")
@pytest.mark.parametrize(
    ("taken", "coding", "body"),
    [("gzip, deflate, br", "br", b"br of " + SCRIPT), ("gzip", "gzip", SCRIPT), ("identity", None, SCRIPT)],
)
def test_files_come_packed_and_last(client: httpx.Client, taken: str, coding: str | None, body: bytes) -> None:
    with client.stream("GET", "/assets/main-AB.js", headers={"accept-encoding": taken}) as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers.get("content-encoding") == coding
    assert (gzip.decompress(raw) if coding == "gzip" else raw) == body
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["vary"] == "accept-encoding"


@pytest.mark.usefixtures("page")
@pytest.mark.parametrize("name", ["nothing.js", "first.json", "main-AB.js.br", "..%2Ffirst.json", "%2e%2e"])
def test_no_other_file_is_served(client: httpx.Client, name: str) -> None:
    assert client.get(f"/assets/{name}").status_code == 404


@pytest.mark.usefixtures("no_page")
def test_a_checkout_says_how_to_build_the_page(client: httpx.Client) -> None:
    assert "<code>make web</code>" in client.get("/").text
    answer = client.get("/operations")
    assert_problem(answer.status_code, answer.headers, answer.content, expected=404, slug="not-found")
    assert "make web" in answer.json()["detail"]


@pytest.mark.usefixtures("no_page")
@pytest.mark.parametrize("root", ["", "/spaces/default"])
@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/m/resnet50:4", "/v1/stores/resnet50:4"),
        ("/m/resnet50:4/tensors", "/v1/stores/resnet50:4"),
        ("/m/a%2Fb@main", "/v1/stores/a%2Fb@main"),
        ("/m/%2F%2Fevil.example", "/v1/stores/%2F%2Fevil.example"),
        ("/m//evil.example", "/v1/stores/"),
    ],
)
def test_model_address_without_the_page_leads_to_the_facts(
    client: httpx.Client, root: str, path: str, place: str
) -> None:
    answer = client.get(root + path, follow_redirects=False)
    assert answer.status_code == 302
    assert answer.headers["location"] == root + place
