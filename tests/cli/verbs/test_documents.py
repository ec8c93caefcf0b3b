"""Parts of stores by file, by path into records and by the tags of meta graphs, asked by a client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.meta_graphs import GRAPHS, VALUES, write_meta_graphs
from tests.support.streams import FRAMED, example

from protoslice.client import Client
from protoslice.errors import NotFound


@pytest.fixture(scope="module", params=["tfrecord", "delimited"])
def stream(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream of examples."""
    path = tmp_path_factory.mktemp("stream") / f"train.{request.param}"
    path.write_bytes(FRAMED[request.param]([example(n) for n in range(30)]))
    return path


def test_variables_of_a_saved_model_are_named_by_their_file(
    call: Any, saved_model: Any, service: str, tmp_path: Path
) -> None:
    folder = saved_model(tmp_path / "saved")
    with Client(service) as client:
        ref = client.push(folder).store.id
        file = "variables/variables.index"
        assert [node.path for node in client.tree(ref, file=file)] == ["header", "entries"]
        assert client.merge(ref, 'entries["two"].size', file=file) == b"400"
        assert client.merge(ref, "meta_graphs[0].meta_info_def.tags[0]") == b"serve"


def test_parts_of_records_are_rendered(call: Any, stream: Path, service: str) -> None:
    with Client(service) as client:
        ref = client.push(stream).store.id
        answer = httpx.get(
            f"{service}/v1/stores/{ref}/merge",
            params={"path": 'records[3].features.feature["label"]'},
            headers={"accept": "application/json"},
        )
        assert answer.json() == {"int64_list": {"value": ["3"]}}
        assert "immutable" not in answer.headers["cache-control"]


def test_a_store_is_asked_by_tags(service: str, tmp_path: Path) -> None:
    with Client(service) as client:
        ref = client.push(write_meta_graphs(tmp_path)).store.id
        for number, tags in enumerate(GRAPHS):
            listed = {entry.name for entry in client.tensors(ref, tags=tags)}
            assert listed == {"w", f"own{number}", "v"}
            assert client.tensor(ref, "w", tags=tags).tolist() == VALUES[number].tolist()
            assert client.stats(ref, "w", tags=tags).max == VALUES[number].max()
            (only,) = client.tensors(ref, name="w*", tags=tags)
            assert only.address.startswith(f"path:meta_graphs[{number}].")
        with pytest.raises(NotFound, match="No meta graph"):
            list(client.tensors(ref, tags=["tpu"]))
        etags = {client.source(ref, "safetensors", [("tags", ",".join(tags))]).facts.headers["etag"] for tags in GRAPHS}
        assert len(etags) == len(GRAPHS)
