"""Reports of pushes; with --strict a push refuses models that lack parts or fail their own checksums."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest

from protoslice.client import AsyncClient, Client
from protoslice.errors import UnsoundModel
from protoslice.sources.files import BytesSource

WriteOnnx = Callable[..., Path]
Write = Callable[[Path], Path]


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


def test_client_download_into_a_folder_with_a_slash_makes_it(service: str, tmp_path: Path) -> None:
    tag, data = "slash:2", b"\x0a\x22\x0a\x20" + b"0123456789abcdef" * 2
    with Client(service) as client, chdir(tmp_path):
        client.push({"model.pb": BytesSource(data)}, tags=[tag])
        (got,) = client.download(tag, "one/")
        assert got.path == Path("one", "model.pb")
        client.download(tag, "two/", view="chunks/0")
    assert (tmp_path / "one" / "model.pb").read_bytes() == data
    assert (tmp_path / "two" / "0").is_file()
