"""Pages for users: complete, equal to the OpenAPI document, and without content from other sites.

The page that `make web` builds: its shell, its files, and a checkout without them.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.serve import assert_problem

from protoslice.server.pages import html
from protoslice.server.pages.api_reference import ApiPage
from protoslice.server.pages.html import home_page
from protoslice.server.problems import BY_SLUG, PROBLEMS


@pytest.fixture
def not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of a checkout in which `make web` has not run."""
    monkeypatch.setattr("protoslice.server.api.pages.is_built", lambda: False)


VOID = {"meta", "link", "path", "br"}
PAGES = ["/", "/docs", *(f"/problems/{problem.slug}" for problem in PROBLEMS)]


class Page(HTMLParser):
    """The content of a page: tags, attributes, and text by its tag."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text: dict[str, list[str]] = {}
        self.feed(content)
        self.close()
        assert self.open == [], "every tag is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.text.setdefault(tag, []).append(data)

    def all_of(self, attribute: str) -> list[str]:
        """Return all values of an attribute."""
        return [attributes[attribute] for _, attributes in self.tags if attribute in attributes]


@pytest.mark.usefixtures("not_built")
@pytest.mark.parametrize("path", PAGES)
def test_nothing_comes_from_elsewhere_and_nothing_runs(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    page = Page(answer.text)
    problem = BY_SLUG.get(path.removeprefix("/problems/"))
    assert answer.status_code == 200
    assert problem is None or problem.title in "".join(page.text["h1"])
    assert {tag for tag, _ in page.tags} & {"script", "iframe", "img", "form", "object", "base"} == set()
    assert not [name for _, attributes in page.tags for name in attributes if name == "style" or name.startswith("on")]
    assert all(link.startswith(("/", "#", "data:")) for link in page.all_of("href") + page.all_of("src"))
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    style = base64.b64encode(hashlib.sha256("".join(page.text["style"]).encode()).digest()).decode()
    assert f"style-src 'sha256-{style}'" in policy
    assert "url(" not in "".join(page.text["style"])
    assert "import" not in "".join(page.text["style"])


@pytest.fixture(scope="module")
def document(client: httpx.Client) -> dict[str, Any]:
    return dict(client.get("/openapi.json").json())


@pytest.mark.usefixtures("not_built")
def test_every_call_is_told_with_parameters_and_problems(client: httpx.Client, document: dict[str, Any]) -> None:
    page = Page(client.get("/docs").text)
    code = page.text["code"]
    ids = page.all_of("id")
    for path, operations in document["paths"].items():
        assert path in code
        told = [operation["operationId"] in ids for operation in operations.values()]
        assert any(told)
        for operation in operations.values():
            assert all(parameter["name"] in code for parameter in operation.get("parameters", ()))
            assert all(media in code for media in operation.get("requestBody", {}).get("content", ()))
    assert {"get", "post", "put", "delete", "head"} <= {
        name for names in page.all_of("class") for name in names.split()
    }
    for response in document["components"]["responses"].values():
        for example in response.get("content", {}).get("application/problem+json", {}).get("examples", {}):
            assert f"/problems/{example}" in page.all_of("href")


@pytest.mark.usefixtures("not_built")
def test_every_link_leads_somewhere(client: httpx.Client) -> None:
    page = Page(client.get("/docs").text)
    ids = page.all_of("id")
    assert len(ids) == len(set(ids))
    for link in set(page.all_of("href")):
        if link.startswith("#"):
            assert link[1:] in ids
        elif link.startswith("/"):
            assert client.get(link).status_code == 200, link


@pytest.mark.usefixtures("not_built")
def test_examples_go_to_where_the_page_came_from(client: httpx.Client) -> None:
    commands = [text for text in Page(client.get("/docs").text).text["code"] if text.startswith("curl ")]
    assert f"curl '{client.base_url}/v1/stores/resnet50%3A3/merge'".replace("%3A", ":") in commands
    assert f"curl -X POST '{client.base_url}/v1/stores?filename=FILE' -T FILE" in commands
    assert len(commands) > 20
    for command in commands:
        if "{" not in command:
            assert str(client.base_url) in command


@pytest.mark.usefixtures("not_built")
def test_experimental_and_deprecated_calls_are_marked(client: httpx.Client, document: dict[str, Any]) -> None:
    page = client.get("/docs").text
    sections = dict(re.findall(r'<section class="call" id="(\w+)">(.*?)</section>', page, re.DOTALL))
    marked = []
    for operations in document["paths"].values():
        for said in operations.values():
            if section := sections.get(said["operationId"]):
                marks = [bool(said.get("x-stability")), bool(said.get("deprecated"))]
                shown = [f'<span class="soft">{mark}' in section for mark in ("experimental", "deprecated: use POST")]
                assert shown == marks, said["operationId"]
                marked.append(shown)
    assert {(True, False), (False, True), (False, False)} == set(map(tuple, marked))


@pytest.mark.usefixtures("not_built")
def test_the_start_page_shows_no_deprecated_call(client: httpx.Client, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"model")
    code = [text for text in Page(client.get("/").text).text["code"] if " -T " in text]
    assert len(code) == 1
    done = subprocess.run([*shlex.split(code[0]), "-si"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "201 Created" in done.stdout
    assert "deprecation" not in done.stdout.lower()


@pytest.mark.usefixtures("not_built")
def test_the_page_is_made_once(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    before = client.get("/docs").text
    monkeypatch.setattr("protoslice.server.pages.api_reference.page", lambda *_: pytest.fail("the page is made again"))
    again = client.get("/docs", headers={"host": f"localhost:{client.base_url.port}"}).text
    assert again == before.replace("127.0.0.1", "localhost")


@pytest.mark.usefixtures("not_built")
def test_what_a_client_says_of_the_host_is_text(document: dict[str, Any]) -> None:
    evil = "http://\"'><script>alert(1)</script>"
    for content in (home_page([], evil), ApiPage(document).show(evil)):
        assert "script" not in {tag for tag, _ in Page(content).tags}


SCRIPT, STYLE = b"console.log(1)", b"body{}"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Return a built page of two files."""
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
    """Return a checkout in which the page was not built."""
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
