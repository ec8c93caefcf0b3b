"""Verbs on URIs: they do the same as on files, with few requests.

A client reads parts of stores by file, by path into records, and by the tags of meta graphs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.bundles import GRAPHS, VALUES, write_meta_graphs
from tests.support.counted import CountedBucket, counted_bucket
from tests.support.streams import FRAMED, example
from tests.support.web import RawWeb, web_server

from protoslice.client import Client
from protoslice.errors import NotFound

Call = Callable[..., Any]


@pytest.fixture
def bucket() -> Iterator[CountedBucket]:
    with counted_bucket() as found:
        yield found


@pytest.fixture(scope="module")
def graph(graph_of: Callable[..., bytes]) -> bytes:
    """Graph of six constants of 1 MiB."""
    return graph_of(*(bytes([number]) * (1 << 20) for number in range(6)))


def same_on(call: Call, name: str, path: Path, *args: object) -> None:
    """Assert that the verb prints the same for `name` as for `path`."""
    verb, *rest = args
    theirs, ours = call(verb, name, *rest), call(verb, path, *rest)
    assert theirs.stdout_bytes.replace(name.encode(), b"NAME") == ours.stdout_bytes.replace(os.fsencode(path), b"NAME")


@pytest.mark.parametrize(
    "args",
    [
        ("info",),
        ("info", "--json"),
        ("tree", "node", "--depth", "2"),
        ("chunks",),
        ("cat", "node[2].name"),
        ("tensor",),
        ("tensor", "constant_3", "--slice", "5:9"),
        ("merge", "-", "--omit-larger-than", "1KiB"),
        ("verify",),
    ],
)
def test_a_verb_says_of_a_uri_what_it_says_of_a_file(
    call: Call, bucket: CountedBucket, graph: bytes, tmp_path: Path, args: tuple[str, ...]
) -> None:
    (tmp_path / "g.pb").write_bytes(graph)
    bucket.fill({"d/g.pb": graph})
    same_on(call, f"{bucket.uri}/d/g.pb", tmp_path / "g.pb", *args)
    same_on(call, (tmp_path / "g.pb").as_uri(), tmp_path / "g.pb", *args)


def test_info_costs_one_round_trip_for_each_large_part_and_two_more(
    call: Call, bucket: CountedBucket, graph: bytes
) -> None:
    bucket.fill({"d/g.pb": graph})
    call("info", f"{bucket.uri}/d/g.pb")
    assert [name for name, _ in bucket.requests[:2]] == ["stat", "get"]
    assert len(bucket.requests) <= 2 + 6
    assert bucket.bytes_read <= 8 * (128 << 10)


def test_info_of_a_folder_looks_at_the_likely_root_alone(
    call: Call, bucket: CountedBucket, saved_model: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = saved_model(tmp_path / "model")
    for number in range(100):
        (folder / "assets").mkdir(exist_ok=True)
        (folder / "assets" / f"{number}.txt").write_text("text")
    bucket.fill_from(folder, "m")
    same_on(call, f"{bucket.uri}/m", folder, "info")
    assert len(bucket.requests) <= 8


def test_what_a_verb_writes_is_the_same(call: Call, bucket: CountedBucket, graph: bytes, tmp_path: Path) -> None:
    bucket.fill({"g.pb": graph})
    call("split", f"{bucket.uri}/g.pb", tmp_path / "g")
    bucket.fill({"g.cpb": (tmp_path / "g.cpb").read_bytes()})
    call("merge", f"{bucket.uri}/g.cpb", tmp_path / "again.pb")
    assert (tmp_path / "again.pb").read_bytes() == graph
    call("diff", f"{bucket.uri}/g.cpb", f"{bucket.uri}/g.pb")


def test_output_to_a_uri_is_refused(call: Call, bucket: CountedBucket, graph: bytes) -> None:
    bucket.fill({"g.pb": graph})
    assert "write to a local file" in call("merge", f"{bucket.uri}/g.pb", f"{bucket.uri}/out.pb", code=3).stderr


def test_a_push_takes_a_uri(
    call: Call, bucket: CountedBucket, saved_model: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = saved_model(tmp_path / "model")
    (folder / "note").write_bytes(os.urandom(16))  # the service has stores of other tests
    bucket.fill_from(folder, "m")
    pushed, again = (json.loads(call("push", name, "--json").stdout) for name in (f"{bucket.uri}/m", folder))
    assert (pushed["created"], again["created"]) == (True, False)
    assert pushed["store"]["id"] == again["store"]["id"]
    alone = json.loads(call("push", f"{bucket.uri}/m/saved_model.pb", "--json").stdout)
    assert [file["path"] for file in alone["store"]["files"]] == ["saved_model.pb"]
    by_uri = json.loads(call("push", folder.as_uri(), "--json").stdout)
    assert by_uri["store"]["id"] == again["store"]["id"]


@pytest.fixture
def web() -> Iterator[RawWeb]:
    with web_server() as found:
        yield found


def test_a_url_is_a_file_unless_it_names_a_store(call: Call, web: RawWeb, graph: bytes, tmp_path: Path) -> None:
    (tmp_path / "g.pb").write_bytes(graph)
    web.objects["g.pb"] = graph
    same_on(call, f"http://127.0.0.1:{web.port}/files/g.pb", tmp_path / "g.pb", "info")
    missing = call("info", f"http://127.0.0.1:{web.port}/files/m:1", code=4).stderr
    assert "was tried as the URL of a file; for a store of a service, use @TAG or http://HOST/v1/stores/TAG" in missing


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("nosuch://host/x", 2, "available: az, counted"),
        ("memory://none/x", 4, "There is no object memory://none/x"),
        ("file:///none/x", 4, "No such file"),
        ("C:\\model.onnx", 4, "No such file"),
        ("s3://a//b", 2, "Invalid storage URI"),
        ("http://127.0.0.1:1/x", 6, "the server sent no complete response"),
    ],
)
def test_what_is_wrong_is_one_line(call: Call, bucket: CountedBucket, name: str, code: int, told: str) -> None:
    for verb in (["info"], ["tensor"], ["verify"], ["cat", "a"]):
        stderr = call(verb[0], name, *verb[1:], code=code).stderr
        assert told in stderr
        assert stderr.count("\n") == 1


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
