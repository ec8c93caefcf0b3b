"""Types of uploaded schemas: extensions by their printed paths, and well-known types as the runtime shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.engine.test_printed_paths import SET
from tests.schema import test_well_known as well_known
from tests.support.canonical import delimited

LEAF = delimited(1, b"y" * 20)
"""An `x.M` with `bytes`."""


def message(size: int) -> bytes:
    inner = delimited(101, delimited(1, b"z" * size))
    return delimited(100, LEAF) + delimited(101, inner) + delimited(102, LEAF) * 2


@pytest.fixture(scope="module")
def stores(client: httpx.Client) -> Iterator[list[str]]:
    """Ids of two stores that differ in an extension of an extension."""
    kind = {"content-type": "application/protobuf"}
    assert client.put("/v1/schemas/extended", content=SET.SerializeToString(), headers=kind).status_code == 201
    made = [client.put("/v1/stores?type=x.M&min_chunk=10", content=message(size)) for size in (30, 40)]
    yield [each.json()["id"] for each in made]
    assert client.delete("/v1/schemas/extended").status_code == 204


def paths(node: Any) -> Iterator[str]:
    if node.get("path"):
        yield node["path"]
    for child in node.get("children") or node.get("items") or ():
        yield from paths(child)


@pytest.mark.parametrize("view", ["tree?depth=8", "treemap?depth=8", "chunks", "diff"])
def test_printed_paths_are_accepted(client: httpx.Client, stores: list[str], view: str) -> None:
    before, after = stores
    query = f"?before={before}" if view == "diff" else ""
    answer = client.get(f"/v1/stores/{after}/{view}{query}")
    assert answer.status_code == 200, answer.text
    printed = [path for path in paths(answer.json()) if path != "model.pb" and ":" not in path]
    assert any("[x.ext]" in path for path in printed), answer.text
    for path in printed:
        if not path.startswith(("[", "x")):
            continue  # files of the stores
        for name, parameter in (("merge", "fields"), ("tree", "path"), ("treemap", "path")):
            got = client.get(f"/v1/stores/{after}/{name}", params={parameter: path})
            assert got.status_code == 200, (path, got.text)
    whole = client.get(f"/v1/stores/{after}/merge", params={"path": "[x.ext].[x.ext].bytes"})
    assert whole.content == b"z" * 40


def test_well_known_types_are_served_as_the_runtime_shows_them(client: httpx.Client) -> None:
    kind = {"content-type": "application/protobuf"}
    types, kinds = well_known.SET.SerializeToString(), well_known.KINDS
    assert client.put("/v1/schemas/well-known", content=types, headers=kind).status_code == 201
    made = {name: client.put("/v1/stores?type=own.All", content=well_known.message_of(name)) for name in kinds}
    assert client.delete("/v1/schemas/well-known").status_code == 204
    for name, stored in made.items():
        store = stored.json()["id"]
        shown = client.get(f"/v1/stores/{store}/merge", headers={"accept": "application/json"})
        assert shown.status_code == 200, (name, shown.text)
        assert shown.json() == well_known.rendered_by_the_runtime(well_known.message_of(name)), name
        assert client.get(f"/v1/stores/{store}/merge", headers={"accept": "text/plain"}).status_code == 200, name
