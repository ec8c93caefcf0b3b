"""Tensors of one meta graph are asked for by its tags, of a folder and of a store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy
from tests.support.meta_graphs import GRAPHS, VALUES, write_meta_graphs

from protoslice.client import Client
from protoslice.errors import NotFound


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SavedModel of three meta graphs."""
    return write_meta_graphs(tmp_path_factory.mktemp("saved"))


def test_a_store_is_asked_by_tags(folder: Path, service: str) -> None:
    with Client(service) as client:
        ref = client.push(folder).store.id
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


@pytest.mark.parametrize("remote", [False, True])
def test_the_command_line_takes_tags(call: Any, folder: Path, service: str, remote: bool, tmp_path: Path) -> None:
    name = str(folder)
    if remote:
        with Client(service) as client:
            name = f"{service}/v1/stores/{client.push(folder).store.id}"
    rows = json.loads(call("tensor", name, "--tags", "gpu,serve", "--json").stdout)
    assert {row["name"] for row in rows} == {"w", "own1", "v"}
    out = tmp_path / "part.safetensors"
    call("tensor", name, "--tags", "serve", "-o", out)
    assert safetensors.numpy.load_file(out).keys() == {"w", "own0", "v"}
    assert json.loads(call("stats", name, "w", "--tags", "serve", "--json").stdout)["max"] == 3
    assert "No meta graph has exactly the tags tpu" in call("tensor", name, "--tags", "tpu", code=4).stderr
