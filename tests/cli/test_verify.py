"""`verify`: what is wrong is named, and what has no digest is said to have none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from protoslice.client import Client
from protoslice.testing.bundles import Variable, bundle


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
