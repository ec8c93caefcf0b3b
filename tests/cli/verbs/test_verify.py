"""`verify`: it names damaged files, and reports files that have no digest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support import bundles
from tests.support.bundles import Variable, bundle
from tests.support.streams import FRAMED
from tests.support.wire import faulty_proxy
from typer.testing import CliRunner

from protoslice import _core, open_model
from protoslice.cli import app as program
from protoslice.client import Client
from protoslice.sizes import format_size


def test_a_sound_store_is_told_to_be(call: Any, store: str) -> None:
    assert call("verify", store).stdout == "OK: 1 file, 5 chunks verified (1.14 MiB)\n"
    output = json.loads(call("verify", store, "--json").stdout)
    assert output["sound"]
    assert [check["what"] for check in output["checks"]] == ["file", *["chunk"] * 5]
    assert all(check["digest"] for check in output["checks"])


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
    output = json.loads(call("verify", "@damaged:1", "--json", code=3).stdout)
    bad = [check["name"] for check in output["checks"] if check["error"]]
    assert not output["sound"]
    assert bad == ["damaged.pb", '3 (node[2].attr["value"].tensor.tensor_content)']


def test_the_records_of_a_chunked_file_are_compared(call: Any, model: Path, tmp_path: Path) -> None:
    call("split", model, tmp_path / "parts", "--min-chunk", "64KiB")
    path = tmp_path / "parts.cpb"
    assert call("verify", path).stdout.startswith("OK: 1 chunked file verified (1.1")
    data = bytearray(path.read_bytes())
    data[data.index(b"\x02" * 1000) + 500] ^= 1
    path.write_bytes(data)
    assert json.loads(call("verify", path, "--json", code=3).stdout)["checks"][0]["error"]


def test_the_checksums_of_a_bundle_are_compared(call: Any, tmp_path: Path) -> None:
    variables = [Variable(name, 1, (100,), bytes(range(200)) * 2) for name in ("one", "two")]
    for name, data in bundle("variables", variables).items():
        (tmp_path / name).write_bytes(data)
    index = tmp_path / "variables.index"
    assert call("verify", index).stdout == "OK: 2 tensors verified (800 B)\n"
    (shard,) = tmp_path.glob("*.data-*")
    damaged = bytearray(shard.read_bytes())
    damaged[600] ^= 1
    shard.write_bytes(damaged)
    output = json.loads(call("verify", index, "--json", code=3).stdout)
    assert [check["name"] for check in output["checks"] if check["error"]] == ["two"]


def test_what_has_no_digest_is_said_to_have_none(call: Any, model: Path) -> None:
    assert call("verify", model).stdout.startswith("well-formed, but has no checksums")
    output = json.loads(call("verify", model, "--json").stdout)
    assert [check["digest"] for check in output["checks"]] == [False]


def test_the_root_is_read_once(call: Any, service: str, graph_of: Any, tmp_path: Path) -> None:
    path = tmp_path / "graph.pb"
    path.write_bytes(graph_of(*(bytes([number]) * (2 << 20) for number in range(4))))
    call("split", path, tmp_path / "parts")
    for model, tag in ((path, "once:1"), (tmp_path / "parts.cpb", "once:2")):
        call("push", model, "--tag", tag)
        with faulty_proxy(service) as proxy:
            output = call("verify", f"{proxy.url}/v1/stores/{tag}").stdout
            assert output == f"OK: 1 file, 5 chunks verified ({format_size(model.stat().st_size)})\n"
            assert path.stat().st_size < proxy.sent_down < 1.1 * path.stat().st_size


def _verified(path: Path) -> int:
    return CliRunner().invoke(program.app, ["verify", str(path)]).exit_code


@pytest.mark.long
def test_every_flipped_byte_of_a_chunked_file_is_found(call: Any, graph_of: Any, tmp_path: Path) -> None:
    source = tmp_path / "graph.pb"
    source.write_bytes(graph_of(*(bytes([number]) * 80 for number in range(1, 5))))
    call("split", source, tmp_path / "parts", "--min-chunk", "64")
    path = tmp_path / "parts.cpb"
    data = path.read_bytes()
    assert _verified(path) == 0
    missed = []
    for place in range(0, len(data), 11):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        if _verified(path) != 3:
            missed.append(place)
    assert missed == []


def _content(index: Path) -> dict[str, bytes]:
    with open_model(index) as model:
        return {tensor.name: model.read(tensor).read() for tensor in model.matching()}


@pytest.mark.long
def test_every_flipped_byte_of_a_bundle_that_matters_is_found(tmp_path: Path) -> None:
    variables = [Variable(name, 1, (100,), bytes(range(200)) * 2) for name in ("one", "two")]
    for name, data in bundle("variables", variables).items():
        (tmp_path / name).write_bytes(data)
    index = tmp_path / "variables.index"
    assert _verified(index) == 0
    sound, passed = _content(index), 0
    for path in sorted(tmp_path.iterdir()):
        data = path.read_bytes()
        for place in range(0, len(data), 3 if path == index else 31):
            path.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
            if _verified(index) != 3:  # in bytes that are never read: an empty block of the table, and padding
                assert _content(index) == sound
                assert path == index
                assert place > 64
                passed += 1
        path.write_bytes(data)
    assert passed < 20


def test_large_tensors_of_a_bundle_are_compared(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "crc32c", _core.crc32c)
    size = (64 << 20) + 4096
    for name, data in bundle("variables", [Variable("large", 1, (size // 4,), bytes(size))]).items():
        (tmp_path / name).write_bytes(data)
    assert call("verify", tmp_path).stdout == "OK: 1 tensor verified (64.0 MiB)\n"
    with (tmp_path / "variables.data-00000-of-00001").open("r+b") as shard:
        shard.seek(size - 5000)
        shard.write(b"x")
    assert "bad: tensor large" in call("verify", tmp_path, code=3).stderr


def test_verify_compares_records_with_their_checksums(call: Any, tmp_path: Path) -> None:
    data = bytearray(FRAMED["tfrecord"]([bytes(90)] * 10))
    stream = tmp_path / "a.tfrecord"
    stream.write_bytes(data)
    assert "1 record file verified" in call("verify", stream).stdout
    data[4 * 106 + 20] ^= 1
    stream.write_bytes(data)
    assert "a record does not match its checksum" in call("verify", stream, code=3).stderr
