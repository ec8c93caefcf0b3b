"""Run the backup of `docs/deployment.md`, and read every kind of data from a service over the copy.

Run by `make backup`, which installs rclone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest
from google.protobuf import descriptor_pb2
from tests.server.registries.test_oci import descriptor, digest_of, push, put_manifest
from tests.support.hub import commit
from tests.support.live import live_server
from tests.support.stores import onnx

from protoslice.server.app import create_app
from protoslice.server.settings import Settings
from protoslice.server.transport.uvicorn_config import uvicorn_config

PAGE: Final = (Path(__file__).parents[1] / "docs/deployment.md").read_text()
SECTION: Final = PAGE.partition("## Backup, moving, upgrading")[2].partition("\n## ")[0]
BACKUP, RESTORE = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)
LIVE, COPY = "/var/lib/protoslice", "/backup/protoslice"
MLFLOW: Final = "/api/2.0/mlflow-artifacts/artifacts/1/run/artifacts"
TUS: Final = {"tus-resumable": "1.0.0", "content-type": "application/offset+octet-stream"}
HALF: Final = bytes(range(100))
TYPES: Final = descriptor_pb2.FileDescriptorSet(
    file=[descriptor_pb2.FileDescriptorProto(name="kept.proto", package="kept", syntax="proto3")]
)
TYPES.file[0].message_type.add(name="Kept")


@contextmanager
def served(folder: Path, token: str | None = None) -> Iterator[tuple[httpx.Client, str]]:
    """A service over a directory, and a client of it with an admin token, by default the first one."""
    settings = Settings(
        storage=folder.as_uri(), space_watermark_bytes=0, auth="tokens", webhook_allow=("https://hooks.example/",)
    )
    app = create_app(settings)
    with live_server(uvicorn_config(app, settings)) as live:
        if token is None:
            assert app.services.first_token is not None
            token = app.services.first_token.text
        bearer = {"authorization": f"Bearer {token}"}
        with httpx.Client(base_url=live.url, timeout=60, headers=bearer) as client:
            yield client, token


def run(script: str, places: dict[str, Path]) -> None:
    """Run commands of the page with other paths; `protoslice` is that of this environment."""
    for path, place in places.items():
        assert path in script
        script = script.replace(path, str(place))
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-eu", "-c", script], check=True, env=environment, timeout=300)


def backup(live: Path, copy: Path, script: str = BACKUP) -> None:
    run(script, {LIVE: live, COPY: copy})


def restored(copy: Path, new: Path) -> Path:
    run(RESTORE, {COPY: copy, LIVE: new})
    return new


def ok(answer: httpx.Response) -> httpx.Response:
    assert answer.is_success, (answer.request.url, answer.status_code, answer.text)
    return answer


def stored(client: httpx.Client, path: str, model: bytes) -> str:
    return str(ok(client.post(path, content=model)).json()["id"])


def read(client: httpx.Client, path: str) -> bytes:
    return ok(client.get(path)).content


class Data:
    """One of each kind of data, made over HTTP in a service and read back from another."""

    def __init__(self, client: httpx.Client) -> None:
        self.models = [onnx(1000 + each, seed=each) for each in range(8)]
        self.tagged = stored(client, "/v1/stores?filename=m.onnx&tag=m:1", self.models[0])
        self.removed = stored(client, "/v1/stores?filename=m.onnx&tag=gone:1", self.models[1])
        ok(client.delete(f"/v1/stores/{self.removed}?force=gone:1"))
        ok(client.put("/v1/spaces/team"))
        self.in_space = stored(client, "/spaces/team/v1/stores?filename=m.onnx&tag=s:1", self.models[2])
        begun = ok(client.post("/v1/uploads?filename=half.bin&tag=half:1", headers=TUS | {"upload-length": "200"}))
        self.upload = begun.headers["location"]
        ok(client.patch(self.upload, content=HALF, headers=TUS | {"upload-offset": "0"}))
        ok(client.post("/api/repos/create", json={"organization": "ann", "name": "net"}))
        for model in self.models[3:5]:
            ok(commit(client, "models/ann/net", {"m.onnx": model}))
        ok(client.post("/api/models/ann/net/tag/main", json={"tag": "v2"}))
        push(client, self.models[5], "/v2/ben/img")
        ok(put_manifest(client, "1", "/v2/ben/img", layers=[descriptor(self.models[5], "m.onnx")]))
        ok(client.put(f"{MLFLOW}/large.bin", content=self.models[6] * 100))
        ok(client.put(f"{MLFLOW}/small.txt", content=b"small"))
        self.folder = ok(client.get("/v1/stores/mlflow-artifacts:%2F1%2Frun%2Fartifacts")).json()["id"]
        made = ok(client.post("/v1/tokens", json={"name": "reader", "scopes": ["read"]})).json()
        self.token = made["token"]
        ok(client.put("/v1/webhooks/ci", json={"url": "https://hooks.example/x", "events": ["tag.set"]}))
        kind = {"content-type": "application/protobuf"}
        ok(client.put("/v1/schemas/kept", content=TYPES.SerializeToString(), headers=kind))

    def check(self, client: httpx.Client) -> None:
        """Read everything back."""
        assert read(client, "/v1/stores/m:1/files/m.onnx") == self.models[0]
        assert {each["id"] for each in ok(client.get("/v1/stores?tag=m:")).json()["items"]} == {self.tagged}
        assert client.get(f"/v1/stores/{self.removed}").status_code == 404
        assert ok(client.post(f"/v1/stores/{self.removed}/restore")).json()["tags"] == ["gone:1"]
        assert read(client, "/v1/stores/gone:1/files/m.onnx") == self.models[1]
        assert read(client, "/spaces/team/v1/stores/s:1/files/m.onnx") == self.models[2]
        assert [each["name"] for each in ok(client.get("/v1/spaces")).json()["items"]] == ["default", "team"]
        self._check_upload(client)
        self._check_registries(client)
        with httpx.Client(base_url=client.base_url, headers={"authorization": f"Bearer {self.token}"}) as reader:
            assert reader.get("/v1/stores").status_code == 200
            assert reader.put("/v1/stores?filename=m.onnx", content=b"x").status_code == 403
        hooks = ok(client.get("/v1/webhooks")).json()["items"]
        assert [(each["name"], each["url"]) for each in hooks] == [("ci", "https://hooks.example/x")]
        assert descriptor_pb2.FileDescriptorSet.FromString(read(client, "/v1/schemas/kept")) == TYPES

    def _check_upload(self, client: httpx.Client) -> None:
        assert ok(client.head(self.upload, headers=TUS)).headers["upload-offset"] == "100"
        ok(client.patch(self.upload, content=HALF, headers=TUS | {"upload-offset": "100"}))
        assert ok(client.get("/v1/stores/half:1/files/half.bin")).content == HALF * 2

    def _check_registries(self, client: httpx.Client) -> None:
        commits = ok(client.get("/api/models/ann/net/commits/main")).json()
        assert len(commits) == 2
        for revision, model in (("main", 4), ("v2", 4), (commits[1]["id"], 3)):
            assert read(client, f"/ann/net/resolve/{revision}/m.onnx") == self.models[model]
        manifest = ok(client.get("/v2/ben/img/manifests/1")).json()
        assert manifest["layers"][0]["digest"] == digest_of(self.models[5])
        assert read(client, f"/v2/ben/img/blobs/{digest_of(self.models[5])}") == self.models[5]
        assert read(client, f"{MLFLOW}/large.bin") == self.models[6] * 100
        assert read(client, f"{MLFLOW}/small.txt") == b"small"
        folder = ok(client.get("/v1/stores/mlflow-artifacts:%2F1%2Frun%2Fartifacts")).json()
        assert folder["id"] == self.folder


def test_every_kind_of_data_is_restored(tmp_path: Path) -> None:
    live, copy = tmp_path / "live", tmp_path / "copy"
    with served(live) as (client, token):
        data = Data(client)
        backup(live, copy)  # while the service runs
    with served(restored(copy, tmp_path / "new"), token) as (client, _):
        data.check(client)
    with served(live, token) as (client, _):
        data.check(client)  # the check itself is sound


def remove_some(client: httpx.Client, data: Data) -> None:
    ok(client.delete(f"/v1/stores/{data.tagged}?force=m:1"))
    ok(client.request("DELETE", "/api/repos/delete", json={"organization": "ann", "name": "net"}))
    for each in ok(client.get("/v1/tokens")).json()["items"]:
        if each["name"] == "reader":
            ok(client.delete(f"/v1/tokens/{each['id']}"))
    ok(client.delete(MLFLOW))
    ok(client.post("/v1/stores?filename=m.onnx&tag=new:1", content=data.models[7]))


def check_removed(client: httpx.Client, data: Data) -> None:
    """Nothing that was removed is there, and what is new is."""
    assert client.get(f"/v1/stores/{data.tagged}").status_code == 404
    assert "m:1" not in {each["name"] for each in ok(client.get("/v1/tags")).json()["items"]}
    assert client.get("/ann/net/resolve/main/m.onnx").status_code == 404
    assert client.get(f"{MLFLOW}/small.txt").status_code == 404
    assert client.get("/v1/stores", headers={"authorization": f"Bearer {data.token}"}).status_code == 401
    assert ok(client.get("/v1/stores/new:1/files/m.onnx")).content == data.models[7]
    assert ok(client.get("/spaces/team/v1/stores/s:1/files/m.onnx")).content == data.models[2]


def test_a_second_run_takes_removals_over(tmp_path: Path) -> None:
    live, copy = tmp_path / "live", tmp_path / "copy"
    with served(live) as (client, token):
        data = Data(client)
        backup(live, copy)
        remove_some(client, data)
        backup(live, copy)
    with served(restored(copy, tmp_path / "new"), token) as (client, _):
        check_removed(client, data)


def test_a_database_that_is_copied_after_the_objects_is_found(tmp_path: Path) -> None:
    live, copy = tmp_path / "live", tmp_path / "copy"
    (objects,) = (line for line in BACKUP.splitlines() if line.startswith("rclone copy"))
    with served(live) as (client, token):
        backup(live, copy, f"LIVE={LIVE}\nCOPY={COPY}\n{objects}")
        data = Data(client)
        backup(live, copy, BACKUP.replace(objects, ""))
    with pytest.raises(AssertionError, match="500"), served(restored(copy, tmp_path / "new"), token) as (client, _):
        data.check(client)


def test_objects_without_their_database_are_refused(tmp_path: Path) -> None:
    live, copy = tmp_path / "live", tmp_path / "copy"
    with served(live) as (client, _):
        Data(client)
        backup(live, copy)
    new = restored(copy, tmp_path / "new")
    (new / "catalog.sqlite").unlink()
    done = subprocess.run(
        [Path(sys.executable).with_name("protoslice"), "gc", "--storage", new.as_uri()], capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "another database" in done.stderr


def test_the_copy_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    live, copy = tmp_path / "live", tmp_path / "copy"
    with served(live) as (client, _):
        ok(client.get("/v1/stores"))
    backup(live, copy)
    modes = {path: path.stat().st_mode & 0o077 for path in (copy, *copy.rglob("*"))}
    assert not any(modes.values()), json.dumps({str(path): oct(mode) for path, mode in modes.items() if mode})
