"""Webhooks on the command line, against a service that delivers to a receiver of the test.

Reports of pushes; with --strict, a push refuses models that lack parts or fail their checksums.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from tests.support.receiver import running_receiver
from tests.support.serve import service_process
from tests.support.stores import onnx

from protoslice.client import AsyncClient, Client
from protoslice.errors import UnsoundModel
from protoslice.sources.files import BytesSource


def test_a_webhook_from_put_to_rm(call: Any, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(onnx(1000))
    with running_receiver() as receiver:
        settings = {
            "PROTOSLICE_STORAGE": (tmp_path / "storage").as_uri(),
            "PROTOSLICE_SPACE_WATERMARK_BYTES": "0",
            "PROTOSLICE_WEBHOOK_ALLOW": receiver.url.removesuffix("/hooks"),
            "PROTOSLICE_WEBHOOK_NETWORKS": "127.0.0.1",
        }
        with service_process(settings=settings) as service:
            site = {"PROTOSLICE_URL": service.url}
            secret = call("webhook", "put", "ci", receiver.url, "--event", "tag.set", **site).stdout.strip()
            assert secret.startswith("whsec_")
            assert secret not in call("webhook", "ls", "--json", **site).stdout
            assert receiver.url in call("webhook", "ls", **site).stdout
            call("push", tmp_path / "m.onnx", "--tag", "m:1", **site)
            assert receiver.came.wait(20)
            assert receiver.events() == [("tag.set", "m:1")]
            assert receiver.is_signed(0, secret)

            receiver.status = 410
            receiver.came.clear()
            call("tag", "m:2", "@m:1", **site)
            assert receiver.came.wait(20)
            dead: list[dict[str, Any]] = []
            while not dead:  # the delivery is recorded after the answer
                dead = json.loads(call("webhook", "letters", "ci", "--dead", "--json", **site).stdout)
            assert [(each["subject"], each["error"]) for each in dead] == [
                ("m:2", "the receiver responded with status 410")
            ]
            receiver.status = 204
            receiver.came.clear()
            assert "1 events" in call("webhook", "redeliver", "ci", **site).stdout
            assert receiver.came.wait(20)
            assert receiver.events()[-1] == ("tag.set", "m:2")
            call("webhook", "rm", "ci", **site)
            assert call("webhook", "ls", "--json", **site).stdout.strip() == "[]"


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
    """The push is sent as resumable uploads that are assembled."""
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
