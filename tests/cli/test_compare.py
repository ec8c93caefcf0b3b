"""`verify` and `diff`: what is wrong is named, and what is equal is not fetched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protoslice import schema
from protoslice.client import Client
from protoslice.testing.bundles import Variable, bundle
from protoslice.testing.proxy import FaultyProxy, faulty_proxy


@pytest.fixture
def proxy(service: str) -> Iterator[FaultyProxy]:
    """Counts what goes over the wire."""
    with faulty_proxy(service) as proxy:
        yield proxy


def test_a_sound_store_is_told_to_be(call: Any, store: str) -> None:
    assert call("verify", store).stdout == "sound: 1 × file, 5 × chunk (2.29 MiB)\n"
    told = json.loads(call("verify", store, "--json").stdout)
    assert told["sound"]
    assert [check["what"] for check in told["checks"]] == ["file", *["chunk"] * 5]
    assert all(check["digest"] for check in told["checks"])


def test_a_damaged_store_is_found_and_the_place_named(
    call: Any, service: str, storage: Path, model: Path, tmp_path: Path
) -> None:
    needle = b"\xd7" * 300_000
    path = tmp_path / "damaged.pb"
    path.write_bytes(model.read_bytes().replace(b"\x03" * 300_000, needle))
    with Client(service) as client:
        at = client.push(path, tags=["damaged:1"], min_chunk="64KiB").store.id
        assert len(list(client.chunks(at))) == 5
    call("verify", "@damaged:1")
    (kept,) = [each for each in storage.rglob("*") if each.is_file() and needle in each.read_bytes()]
    data = bytearray(kept.read_bytes())
    data[data.index(needle) + 150_000] ^= 1
    kept.chmod(0o644)
    kept.write_bytes(data)
    told = json.loads(call("verify", "@damaged:1", "--json", code=3).stdout)
    bad = [check["name"] for check in told["checks"] if check["error"]]
    assert not told["sound"]
    assert bad == ["damaged.pb", '3 (node[2].attr["value"].tensor.tensor_content)']


def test_the_records_of_a_chunked_file_are_compared(call: Any, model: Path, tmp_path: Path) -> None:
    call("split", model, tmp_path / "parts", "--min-chunk", "64KiB")
    path = tmp_path / "parts.cpb"
    assert call("verify", path).stdout.startswith("sound: 1 × records (1.1")
    data = bytearray(path.read_bytes())
    data[data.index(b"\x02" * 1000) + 500] ^= 1
    path.write_bytes(data)
    assert json.loads(call("verify", path, "--json", code=3).stdout)["checks"][0]["error"]


def test_the_checksums_of_a_bundle_are_compared(call: Any, tmp_path: Path) -> None:
    variables = [Variable(name, 1, (100,), bytes(range(200)) * 2) for name in ("one", "two")]
    for name, data in bundle("variables", variables).items():
        (tmp_path / name).write_bytes(data)
    index = tmp_path / "variables.index"
    assert call("verify", index).stdout == "sound: 2 × tensor (800 B)\n"
    (shard,) = tmp_path.glob("*.data-*")
    damaged = bytearray(shard.read_bytes())
    damaged[600] ^= 1
    shard.write_bytes(damaged)
    told = json.loads(call("verify", index, "--json", code=3).stdout)
    assert [check["name"] for check in told["checks"] if check["error"]] == ["two"]


def test_what_has_no_digest_is_said_to_have_none(call: Any, model: Path) -> None:
    assert "1 without a digest" in call("verify", model).stdout


def _found(done: Any) -> list[tuple[str, str, str]]:
    return [(each["change"], each["what"], each["path"]) for each in json.loads(done.stdout)["differences"]]


EXPECTED = [
    ("changed", "file", "graph.pb"),
    ("changed", "tensor", "constant_2"),
    ("added", "tensor", "constant_4"),
    ("added", "part", "node[4]"),
]


def test_files_and_stores_differ_in_the_same(call: Any, service: str, store: str, model: Path, changed: Path) -> None:
    with Client(service) as client:
        client.push(changed, tags=["changed:1"], min_chunk="64KiB")
    for one in (model, store):
        for other in (changed, "@changed:1"):
            assert _found(call("diff", one, other, "--json", code=8)) == EXPECTED, (one, other)
        for same in (model, store):
            assert call("diff", one, same).stdout == ""
            assert json.loads(call("diff", one, same, "--json").stdout) == {"equal": True, "differences": []}
    shown = call("diff", "@changed:1", store, code=8).stdout
    assert "removed  tensor      400 B" in shown


def test_what_is_equal_is_not_fetched(call: Any, store: str, proxy: FaultyProxy, changed: Path) -> None:
    address = f"{proxy.url}/v1/stores/model:1"
    call("diff", address, changed, code=8)
    assert 0 < proxy.sent_down < 60_000, "of 1.2 MB"
    assert not [path for _, path, _ in proxy.done if "/files/" in path or "/tensors/" in path]


def test_small_things_are_named_by_path(call: Any, store: str, model: Path, tmp_path: Path) -> None:
    other = tmp_path / "graph.pb"
    other.write_bytes(model.read_bytes().replace(b"Const", b"Other", 1))
    told = json.loads(call("diff", store, other, "--json", code=8).stdout)["differences"]
    parts = [each for each in told if each["what"] != "file"]
    assert ("part", "node[0].op") in {(each["what"], each["path"]) for each in parts}


def test_what_moves_is_no_difference_but_of_the_file(call: Any, store: str, model: Path, tmp_path: Path) -> None:
    message: Any = schema.bundled().message_class("tensorflow.GraphDef")()
    message.ParseFromString(model.read_bytes())
    del message.node[0]
    other = tmp_path / "graph.pb"
    other.write_bytes(message.SerializeToString())
    assert _found(call("diff", store, other, "--json", code=8)) == [
        ("changed", "file", "graph.pb"),
        ("removed", "tensor", "constant_0"),
        ("removed", "part", "node[0]"),
    ]


def test_another_shape_is_told(call: Any, tmp_path: Path) -> None:
    paths = []
    for name, shape in (("one", (4, 25)), ("two", (100,))):
        for file, data in bundle("v", [Variable("weight", 1, shape, bytes(400))]).items():
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / file).write_bytes(data)
        paths.append(tmp_path / name)
    assert "weight  F32 4×25 → F32 100" in call("diff", *paths, code=8).stdout


def test_what_is_not_there_cannot_differ(call: Any, store: str, tmp_path: Path) -> None:
    call("diff", store, tmp_path / "absent.pb", code=4)
    call("diff", "@absent", store, code=4)


def test_protos_that_are_no_models_are_compared_too(call: Any, service: str, tmp_path: Path) -> None:
    one, other = tmp_path / "one.pb", tmp_path / "other.pb"
    one.write_bytes(b"\x0a\x03abc\x10\x07")
    other.write_bytes(b"\x0a\x03abc\x10\x09")
    call("push", one, "--tag", "plain:1")
    for before in (one, "@plain:1"):
        assert _found(call("diff", before, other, "--json", code=8)) == [
            ("changed", "file", "other.pb"),
            ("changed", "part", "2"),
        ]
    assert call("verify", "@plain:1").stdout == "sound: 1 × file, 1 × chunk (14 B)\n"
