"""One id, one content: whatever decides which bytes the views of a store give is in its id."""

from __future__ import annotations

import pytest

from protoslice import identity
from protoslice.storage import Storage
from protoslice.stores import IngestRequest, StoreInfo, Stores
from protoslice.testing.stores import in_memory, onnx, upload


def computed(info: StoreInfo) -> str:
    """The id that a client computes from what the service shows of a store."""
    policy = identity.Policy(
        root=info.root,
        type=info.type,
        min_chunk=info.min_chunk,
        max_chunk=info.max_chunk,
        schema=info.schema,
        planner=info.planner,
    )
    return identity.store_id([(file.path, file.size, file.sha256 or "") for file in info.files], policy)


@pytest.mark.parametrize(
    ("files", "schema", "planner"),
    [
        ({"model.onnx": onnx(3000)}, True, True),
        ({"graph.pbtxt": b'node { name: "a" op: "Const" }', "note.txt": b"hello"}, True, True),
        ({"x": bytes.fromhex("0a0161"), "y": b""}, False, True),
    ],
)
def test_a_client_computes_the_id_from_what_is_shown(files: dict[str, bytes], schema: bool, planner: bool) -> None:
    async def work(stores: Stores, _: Storage) -> None:
        info = (await upload(stores, files, IngestRequest(root=next(iter(files))))).store
        assert (info.schema is not None, info.planner is not None) == (schema, planner)
        assert computed(info) == info.id

    in_memory(work)
