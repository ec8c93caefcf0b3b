# mypy: ignore-errors
# The package is generated, and not there when types are checked.
"""Calls of the generated Python client, run in its environment by `tests/generated_clients.py`."""

from __future__ import annotations

import sys

from protoslice_client import Client
from protoslice_client.api.stores import list_stores
from protoslice_client.api.views import get_metadata, get_tree, list_tensors


def main(url: str) -> None:
    """List stores, then read the metadata, the tree and the tensors of the one there is."""
    client = Client(base_url=url, raise_on_unexpected_status=True)
    (store,) = list_stores.sync(client=client).items
    assert store.tags == ["m:1"], store
    assert [file.path for file in store.files] == ["model.onnx"], store
    metadata = get_metadata.sync_detailed(store.id, client=client)
    assert metadata.headers["x-protobuf-message"].endswith("ChunkMetadata"), metadata.headers
    assert metadata.parsed.payload.read() == metadata.content != b""
    graph = next(node for node in get_tree.sync("m:1", client=client).items if node.name == "graph")
    assert (graph.kind, graph.deeper) == ("message", True), graph
    tensors = list_tensors.sync("m:1", client=client)
    assert tensors.total == len(tensors.items) > 0, tensors


if __name__ == "__main__":
    main(sys.argv[1])
