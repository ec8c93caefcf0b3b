"""Metadata of model cards, whose YAML is hostile as any other input."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from tests.support.hub import commit

Made = Callable[..., str]

CARD = b"""---
language:
- en
license: apache-2.0
library_name: transformers
pipeline_tag: text-classification
tags: [a, "b c", text-classification]
model-index:
- name: 'x'
  results: [{metrics: [{type: f1, value: 0.5, verified: true, runs: 3, date: 2024-01-02, none: ~}]}]
---
# A model
---
tags: [none]
---
"""


def test_metadata_of_a_card_are_those_of_its_commit(client: httpx.Client, made: Made) -> None:
    name = made({"README.md": CARD, "w.bin": b"w"})
    first = client.get(f"/api/models/{name}").json()
    assert (first["pipeline_tag"], first["library_name"]) == ("text-classification", "transformers")
    assert first["tags"] == ["transformers", "text-classification", "a", "b c", "en", "license:apache-2.0"]
    metric = {"type": "f1", "value": 0.5, "verified": True, "runs": 3, "date": "2024-01-02", "none": None}
    assert first["cardData"] == {
        "language": ["en"],
        "license": "apache-2.0",
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["a", "b c", "text-classification"],
        "model-index": [{"name": "x", "results": [{"metrics": [metric]}]}],
    }
    commit(client, f"models/{name}", {"README.md": CARD.replace(b"text-cl", b"image-cl")})
    assert client.get(f"/api/models/{name}").json()["pipeline_tag"] == "image-classification"
    assert client.get(f"/api/models/{name}/revision/{first['sha']}").json() == first


@pytest.mark.parametrize(
    "front",
    [
        b"",
        b"- a",
        b"a: [",
        b"a: \xff",
        b"a: &x [1]\nb: *x",
        b"a: &x [1]\nb: [*x, *x]",
        b"a: " + b"[" * 21 + b"]" * 21,
        b"a: " + b"[" * 60_000,
        b"- " * 30_000,
        b"? " * 30_000,
        b"{a: " * 15_000,
        b"[a]: b",
        b"a: b\na: " + b"- " * 9,
        b"k: " * 20_000,
        b"#" * 70_000,
        b'a: "\\ud800"',
        b"a: [" + b"b," * 30_000 + b"]",
        b"a: !!python/object/apply:os.system [ls]\nb: !!binary [",
    ],
    ids=lambda front: repr(front[:12]),
)
def test_a_hostile_card_has_no_metadata(client: httpx.Client, made: Made, front: bytes) -> None:
    name = made({"README.md": b"---\n" + front + b"\n---\n"})
    found = client.get(f"/api/models/{name}")
    assert found.status_code == 200
    assert found.json()["tags"] == []
    assert not {"cardData", "pipeline_tag", "library_name"} & found.json().keys()


@pytest.mark.parametrize("text", [b"9" * 60_000, b"1:" * 30_000 + b"1", b"1e999999", b"0x" + b"f" * 60_000, b".nan"])
def test_numbers_that_json_cannot_hold_are_texts(client: httpx.Client, made: Made, text: bytes) -> None:
    name = made({"README.md": b"---\na: " + text + b"\ntags: 3\npipeline_tag: [x]\n---\n"})
    found = client.get(f"/api/models/{name}").json()
    assert found["cardData"] == {"a": text.decode(), "tags": 3, "pipeline_tag": ["x"]}
    assert found["tags"] == []
    assert "pipeline_tag" not in found
