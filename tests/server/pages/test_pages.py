"""Pages for people: whole, true to the OpenAPI document, and with nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest

from protoslice.server.pages.api_reference import ApiPage
from protoslice.server.pages.html import home_page
from protoslice.server.problems import BY_SLUG, PROBLEMS


@pytest.fixture(autouse=True)
def not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of a checkout in which `make web` has not run."""
    monkeypatch.setattr("protoslice.server.api.pages.is_built", lambda: False)


VOID = {"meta", "link", "path", "br"}
PAGES = ["/", "/docs", *(f"/problems/{problem.slug}" for problem in PROBLEMS)]


class Page(HTMLParser):
    """Content of a page: tags, attributes, and text by its tag."""

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
        """The values of an attribute, wherever it stands."""
        return [attributes[attribute] for _, attributes in self.tags if attribute in attributes]


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


def test_every_link_leads_somewhere(client: httpx.Client) -> None:
    page = Page(client.get("/docs").text)
    ids = page.all_of("id")
    assert len(ids) == len(set(ids))
    for link in set(page.all_of("href")):
        if link.startswith("#"):
            assert link[1:] in ids
        elif link.startswith("/"):
            assert client.get(link).status_code == 200, link


def test_examples_go_to_where_the_page_came_from(client: httpx.Client) -> None:
    commands = [text for text in Page(client.get("/docs").text).text["code"] if text.startswith("curl ")]
    assert f"curl '{client.base_url}/v1/stores/resnet50%3A3/merge'".replace("%3A", ":") in commands
    assert f"curl -X POST '{client.base_url}/v1/stores?filename=FILE' -T FILE" in commands
    assert len(commands) > 20
    for command in commands:
        if "{" not in command:
            assert str(client.base_url) in command


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


def test_the_start_page_shows_no_deprecated_call(client: httpx.Client, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"model")
    code = [text for text in Page(client.get("/").text).text["code"] if " -T " in text]
    assert len(code) == 1
    done = subprocess.run([*shlex.split(code[0]), "-si"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "201 Created" in done.stdout
    assert "deprecation" not in done.stdout.lower()


def test_the_page_is_made_once(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    before = client.get("/docs").text
    monkeypatch.setattr("protoslice.server.pages.api_reference.page", lambda *_: pytest.fail("the page is made again"))
    again = client.get("/docs", headers={"host": f"localhost:{client.base_url.port}"}).text
    assert again == before.replace("127.0.0.1", "localhost")


def test_what_a_client_says_of_the_host_is_text(document: dict[str, Any]) -> None:
    evil = "http://\"'><script>alert(1)</script>"
    for content in (home_page([], evil), ApiPage(document).show(evil)):
        assert "script" not in {tag for tag, _ in Page(content).tags}
