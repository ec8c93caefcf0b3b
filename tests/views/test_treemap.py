"""Treemaps show the largest parts and count the others, within their room, whatever the proto."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.stores import field, in_memory, onnx, upload

from protoslice.errors import InvalidInput, NotFound
from protoslice.facts import Node
from protoslice.stores import Stores
from protoslice.views import documents
from protoslice.views.documents import MOST_CELLS


def treemap(data: bytes, path: str = "", depth: int = 16, min_share: float = 0.0) -> Node:
    async def work(stores: Stores, _: object) -> Node:
        store = await stores.view((await upload(stores, data)).store.id)
        return await documents.treemap(store, path, depth, min_share)

    return in_memory(work)


def below(node: Node) -> Iterator[Node]:
    for child in node.children:
        yield child
        yield from below(child)


def test_the_largest_come_first_and_the_others_are_counted() -> None:
    sizes = [*range(400), 90_000, 30_000, 60_000]
    found = treemap(onnx(*sizes), depth=3, min_share=0.05)
    graph = found.children[0]
    initializers = graph.children[0]
    assert (graph.path, initializers.path, initializers.count) == ("graph", "graph.initializer", 403)
    assert [node.path for node in initializers.children] == [f"graph.initializer[{n}]" for n in (400, 402, 401)]
    assert next(node.text for node in initializers.children) == '"weight-400"'
    assert initializers.more == 400
    assert all(not node.children and node.more is None for node in initializers.children)


def test_no_part_is_larger_than_its_whole() -> None:
    found = treemap(onnx(*range(0, 9000, 300)))
    for node in [found, *below(found)]:
        assert sum(child.size for child in node.children) <= node.size
        assert [child.size for child in node.children] == sorted((c.size for c in node.children), reverse=True)


def test_the_room_goes_to_where_the_bytes_are() -> None:
    found = treemap(onnx(*[10] * 3000, *[50_000] * 40))
    nodes = list(below(found))
    assert len(nodes) <= MOST_CELLS
    opened = [node for node in nodes if node.path.endswith(".raw_data") and node.size == 50_000]
    assert len(opened) == 40


def test_a_treemap_begins_at_any_path() -> None:
    found = treemap(onnx(100, 5000), "graph.initializer[1]", 1)
    assert (found.path, found.type, found.size > 5000) == ("graph.initializer[1]", "onnx.TensorProto", True)
    assert found.children[0].path == "graph.initializer[1].raw_data"
    whole = treemap(onnx(100, 5000), "graph.initializer", 1)
    assert [child.path for child in whole.children] == ["graph.initializer[1]", "graph.initializer[0]"]
    leaf = treemap(onnx(100, 5000), "graph.initializer[1].raw_data")
    assert (leaf.size, leaf.deeper, leaf.children) == (5000, False, ())
    with pytest.raises(NotFound):
        treemap(onnx(5), "graph.initializer[7]")


def test_bounds_are_kept() -> None:
    nested = b""
    for _ in range(60):
        nested = field(1, nested)
    treemap(nested)
    for depth, share in ((0, 0.1), (17, 0.1), (1, -0.1), (1, 1.5), (1, float("nan"))):
        with pytest.raises(InvalidInput):
            treemap(onnx(5), "", depth, share)
