"""The index of `files/` as clients that follow links read it."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import urljoin

import httpx
import pytest
from tests.server.bodies.ways import tar_of

HOSTILE = ["<script>alert(1)", '" onmouseover="x', "http:evil", "javascript:alert(1)", "a?b#%20&amp;", "模型 ü"]
FILES = {
    "model.onnx": b"m", "sub/deep/x.bin": b"x" * 5000, "sub/y": b"", **{name: b"h" for name in HOSTILE},
    "{title}/{rows}": b"f",
}  # fmt: skip


class Links(HTMLParser):
    """Links and elements of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.hrefs: list[str] = []
        self.texts: list[str] = []
        self.elements: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        assert {name for name, _ in attributes} <= {"href", "lang", "charset"}
        self.hrefs += [value for name, value in attributes if name == "href" and value]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def store(client: httpx.Client) -> str:
    headers = {"content-type": "application/x-tar"}
    made = client.put("/v1/stores", params={"tag": "index:1"}, content=tar_of(FILES), headers=headers)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


@pytest.mark.parametrize("by", ["id", "tag"])
def test_all_files_are_found_by_following_links(client: httpx.Client, store: str, by: str) -> None:
    root = f"/v1/stores/{store if by == 'id' else 'index:1'}/files/"
    found: dict[str, bytes] = {}
    left, seen = [root], set[str]()
    while left:
        url = left.pop()
        seen.add(url)
        answer = client.get(url)
        assert answer.status_code == 200, url
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        for href in Links(answer.text).hrefs:
            below = urljoin(url, href)
            assert below.startswith(root), "no link leaves the folder"
            if below.endswith("/"):
                left += [below] if below not in seen else []
            else:
                found[below] = client.get(below).content
    paths = {httpx.URL(url).path.removeprefix(root): data for url, data in found.items()}
    assert paths == FILES


def test_names_are_text_and_nothing_may_run(client: httpx.Client, store: str) -> None:
    for folder in ("", "sub/", "{title}/"):
        answer = client.get(f"/v1/stores/{store}/files/{folder}")
        assert Links(answer.text).elements <= {"html", "meta", "title", "h1", "ul", "li", "a"}
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert client.head(f"/v1/stores/{store}/files/{folder}").headers["content-type"] == "text/html; charset=utf-8"
    texts = Links(client.get(f"/v1/stores/{store}/files/").text).texts
    assert set(HOSTILE) < set(texts)


@pytest.mark.parametrize("path", ["none/", "sub/y/", "su/", "/", "sub//", "../"])
def test_other_folders_are_missing(client: httpx.Client, store: str, path: str) -> None:
    url = f"{client.base_url}/v1/stores/{store}/files/{path.replace('.', '%2e')}"
    answer = client.get(url)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
