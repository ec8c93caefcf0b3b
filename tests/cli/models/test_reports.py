"""Reports of pushes; with --strict a push refuses models that lack parts or fail their own checksums."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protoslice.client import AsyncClient, Client
from protoslice.errors import UnsoundModel

WriteOnnx = Callable[..., Path]
Write = Callable[[Path], Path]


def test_a_model_without_its_files(call: Any, service: str, onnx_beside: WriteOnnx, tmp_path: Path) -> None:
    path = onnx_beside(tmp_path, (4000, 8004))
    done = call("push", path, "--tag", "lacking:1")
    assert "model.onnx: onnx.ModelProto, 2 tensors\n" in done.stderr
    assert "missing files: the model refers to weights.bin, but they were not sent\n" in done.stderr
    assert "run: protoslice push" in done.stderr
    told = json.loads(call("push", path, "--json").stdout)["report"]
    assert (told["tensors"], told["missing"], told["complete"]) == (2, ["weights.bin"], True)
    refused = call("push", path, "--strict", "--tag", "strict:1", code=3)
    assert "'weights.bin'" in refused.stderr
    assert "run: protoslice push" in refused.stderr
    assert refused.stdout == ""
    with Client(service) as client:
        assert "strict:1" not in {tag.name for tag in client.tags()}
    call("push", tmp_path, "--strict")


def test_a_bundle_with_a_bad_checksum(call: Any, saved_model: Write, tmp_path: Path) -> None:
    folder = saved_model(tmp_path / "model")
    (shard,) = (folder / "variables").glob("*.data-*")
    data = bytearray(shard.read_bytes())
    data[600] ^= 1
    shard.write_bytes(data)
    assert call("push", folder, "--strict", code=3).stderr.count("two: ") == 1
    assert "2 tensors" in call("push", folder).stderr
    data[600] ^= 1
    shard.write_bytes(data)
    call("push", folder, "--strict")


def test_a_file_that_is_no_model(call: Any, tmp_path: Path) -> None:
    path = tmp_path / "passwd"
    path.write_text("root:x:0:0:root:/root:/bin/bash\n" * 10)
    done = call("push", path)
    assert "stored as plain files: " in done.stderr
    assert "passwd is not in a supported format" in done.stderr
    assert "no tensors" not in done.stderr, "which goes without saying"


def test_names_that_several_tensors_bear(call: Any, graph_of: Callable[..., bytes], tmp_path: Path) -> None:
    path = tmp_path / "graph.pb"
    path.write_bytes(graph_of(b"\x01" * 400) + graph_of(b"\x02" * 400))
    assert "Duplicate tensor names: constant_0\n" in call("push", path, "--strict").stderr


async def test_the_clients_say_it_too(service: str, onnx_beside: WriteOnnx, tmp_path: Path) -> None:
    path = onnx_beside(tmp_path, (4000, 8008))
    async with AsyncClient(service) as client:
        with pytest.raises(UnsoundModel, match="weights"):
            await client.push(path, strict=True)
        report = (await client.push(path)).report
    assert report is not None
    assert (report.type, report.tensors, report.missing) == ("onnx.ModelProto", 2, ("weights.bin",))


def test_a_large_upload_may_be_strict(service: str, onnx_beside: WriteOnnx, tmp_path: Path) -> None:
    """The push goes as resumable uploads that are assembled."""
    onnx_beside(tmp_path, (4000, 8012))
    with (tmp_path / "padding.bin").open("wb") as file:
        file.truncate(65 << 20)
    (tmp_path / "weights.bin").unlink()
    with Client(service) as client:
        with pytest.raises(UnsoundModel, match="weights"):
            client.push(tmp_path, strict=True)
        pushed = client.push(tmp_path)
        assert pushed.report is not None
        assert pushed.report.missing == ("weights.bin",)
