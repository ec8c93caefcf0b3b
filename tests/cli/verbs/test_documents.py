"""Paths into the index of a bundle and into streams of records: in files, and the same on a service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.bundles import Variable, bundle
from tests.support.streams import FRAMED, example

from protoslice import schema
from protoslice.client import Client

ENTRY = "tensorflow.BundleEntryProto"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a bundle."""
    folder = tmp_path_factory.mktemp("checkpoint")
    variables = [Variable(name, 1, (100,), bytes(range(200)) * 2) for name in ("one", "two")]
    for name, data in bundle("model", variables).items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture(scope="module", params=["tfrecord", "delimited"])
def stream(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream of examples."""
    path = tmp_path_factory.mktemp("stream") / f"train.{request.param}"
    path.write_bytes(FRAMED[request.param]([example(n) for n in range(30)]))
    return path


def test_header_and_entries_of_a_bundle(call: Any, checkpoint: Path, service: str) -> None:
    index = checkpoint / "model.index"
    call("push", checkpoint, "--tag", "checkpoint:1")
    for args in (["tree"], ["tree", 'entries["two"]'], ["cat", "header"], ["cat", 'entries["two"].offset']):
        verb, *path = args
        said = call(verb, index, *path).stdout_bytes
        assert said == call(verb, "@checkpoint:1", *path).stdout_bytes
        assert said
    merged = call("merge", index, "-", "--path", 'entries["two"]').stdout_bytes
    entry: Any = schema.bundled().message_class(ENTRY).FromString(merged)
    assert (entry.offset, entry.size, entry.shard_id) == (400, 400, 0)
    told = json.loads(call("info", index, "--json").stdout)["bundle"]
    assert told == {"shards": 1, "endianness": "little", "version": 1}
    assert "1 shard, little-endian, version 1" in call("info", index).stdout


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


def test_paths_lead_into_records(call: Any, stream: Path, service: str) -> None:
    tag = stream.name
    call("push", stream, "--tag", tag)
    label = 'records[7].features.feature["label"].int64_list.value[0]'
    for args in (
        ["tree"],
        ["tree", "records", "--limit", "30"],
        ["tree", "records[7]"],
        ["cat", label],
        ["cat", "records[7]"],
    ):
        verb, *path = args
        said = call(verb, stream, *path).stdout_bytes
        assert said == call(verb, f"@{tag}", *path).stdout_bytes
        assert said
    assert call("cat", stream, label).stdout == "7"
    masked = call("merge", stream, "-", "--path", "records[7]", "--fields", 'features.feature["label"]').stdout_bytes
    assert 0 < len(masked) < len(example(7))
    assert "30" in call("cat", stream, "records[30]", code=4).stderr
    assert "30" in call("cat", f"@{tag}", "records[30]", code=4).stderr


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
