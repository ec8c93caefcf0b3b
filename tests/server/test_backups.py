"""The backup of `docs/how-to/operate/backup.md`: a service over the restored data returns every kind of data."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from google.protobuf import descriptor_pb2
from tests.server.registries.test_oci import descriptor, digest_of, push, put_manifest
from tests.support.hub import commit
from tests.support.postgres import TestServer
from tests.support.serve import serve
from tests.support.stores import onnx

from protoslice.database import Database, connect, upgrade
from protoslice.errors import IntegrityError, StorageUnavailable
from protoslice.server.app import create_app
from protoslice.server.settings import Settings
from protoslice.storage import open_storage
from protoslice.stores.backups import dump_daily, restore, snapshots
from protoslice.stores.collection import collect_garbage

PAGE: Final = (Path(__file__).parents[2] / "docs/how-to/operate/backup.md").read_text()
BACKUP, RESTORE, IN_PLACE, *_ = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
BUCKET: Final = "s3://models/production"
LIVE, COPY = "/var/lib/protoslice", "/backup/protoslice"
MLFLOW: Final = "/api/2.0/mlflow-artifacts/artifacts/1/run/artifacts"
TUS: Final = {"tus-resumable": "1.0.0", "content-type": "application/offset+octet-stream"}
HALF: Final = bytes(range(100))
NOT_KEPT: Final = {"number", "incarnation", "backed_up"}
"""Columns that belong to a restored catalogue alone: no snapshot knows the end of its backup."""
MADE_AGAIN: Final = ("sqlite_", "name_trigrams", "repository_trigrams", "changes", "holds", "deliveries")
"""The beginnings of the names of tables that a restored catalogue fills by itself."""
TYPES: Final = descriptor_pb2.FileDescriptorSet(
    file=[descriptor_pb2.FileDescriptorProto(name="kept.proto", package="kept", syntax="proto3")]
)
TYPES.file[0].message_type.add(name="Kept")


class Site:
    """The place of a service: a directory and a database, by default the database in the directory."""

    def __init__(self, folder: Path, database: str | None = None) -> None:
        self.folder = folder
        self.database = database


@contextmanager
def served(site: Site, token: str | None = None) -> Iterator[tuple[httpx.Client, str]]:
    """Run a service; yield it, and a client with an admin token, by default the first token."""
    settings = Settings(
        storage=site.folder.as_uri(), database=site.database, space_watermark_bytes=0, auth="tokens",
        webhook_allow=("https://hooks.example/",),
    )  # fmt: skip
    app = create_app(settings)
    with serve(app=app) as live:
        if token is None:
            assert app.services.initial_admin_token is not None
            token = app.services.initial_admin_token.text
        bearer = {"authorization": f"Bearer {token}"}
        with httpx.Client(base_url=live.url, timeout=60, headers=bearer) as client:
            yield client, token


def run(script: str, places: dict[str, Path], database: str | None, code: int | None = 0) -> str:
    """Run commands of the page with other paths, and return their output."""
    for path, place in places.items():
        assert path in script
        script = script.replace(path, shlex.quote(str(place)))
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment |= {} if database is None else {"PROTOSLICE_DATABASE": database}
    done = subprocess.run(["sh", "-eu", "-c", script], capture_output=True, text=True, env=environment, timeout=300)
    assert code in {None, done.returncode}, done.stdout + done.stderr
    return done.stdout + done.stderr


def back_up(live: Site, copy: Path, more: str = "", code: int = 0) -> str:
    return run(BACKUP.strip() + more, {LIVE: live.folder, COPY: copy}, live.database, code)


def restored(copy: Path, new: Site, more: str = "") -> Site:
    """Restore with the commands of the page, which also check the restored data."""
    first, *rest = RESTORE.strip().splitlines()
    run("\n".join([first + more, *rest]), {COPY: copy, LIVE: new.folder}, new.database)
    return new


def rows_of(site: Site) -> dict[str, list[Any]]:
    """Return all rows of a catalogue, without the columns and tables that a restoration creates again."""
    found = dict[str, list[Any]]()
    database = connect(site.database, site.folder.as_uri())

    async def work() -> None:
        try:
            tables = "SELECT name FROM sqlite_master WHERE type = 'table'"
            if database.dialect == "postgresql":
                tables = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
            for (table,) in await database.read(lambda tx: tx.all(tables)):
                if table.startswith(MADE_AGAIN):
                    continue
                columns = [each for each in await columns_of(table) if each not in NOT_KEPT]
                sql = f"SELECT {', '.join(columns)} FROM {table}" + " WHERE unpublished IS NULL" * (table == "objects")
                rows = await database.read(lambda tx: tx.all(sql))  # noqa: B023
                found[table] = sorted(
                    [[bytes(each) if isinstance(each, memoryview) else each for each in row] for row in rows], key=repr
                )
        finally:
            await database.close()

    async def columns_of(table: str) -> list[str]:
        sql = "SELECT name FROM pragma_table_info(:table)"
        if database.dialect == "postgresql":
            sql = """
                SELECT column_name FROM information_schema.columns
                WHERE table_name = :table AND table_schema = current_schema()"""
        return sorted(row[0] for row in await database.read(lambda tx: tx.all(sql, table=table)))

    asyncio.run(work())
    return found


def digests_of(folder: Path) -> dict[str, bytes]:
    """Return the content of all objects of a storage."""
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in (folder / "objects").rglob("*") if path.is_file()
    }


def ok(answer: httpx.Response) -> httpx.Response:
    assert answer.is_success, (answer.request.url, answer.status_code, answer.text)
    return answer


def stored(client: httpx.Client, path: str, model: bytes) -> str:
    return str(ok(client.post(path, content=model)).json()["id"])


def read(client: httpx.Client, path: str) -> bytes:
    return ok(client.get(path)).content


class Data:
    """One of each kind of data, made over HTTP in a service and read back from another service."""

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


@pytest.fixture
def live(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """Return the place of the service that is backed up, over SQLite unless the test names another engine."""
    return new_site(request, tmp_path / "live", getattr(request, "param", "sqlite"))


def new_site(request: pytest.FixtureRequest, folder: Path, engine: str) -> Site:
    if engine == "sqlite":
        return Site(folder)
    server: TestServer = request.getfixturevalue("postgres")
    url = server.new_database()
    asyncio.run(upgraded(url)) if folder.name == "live" else None
    return Site(folder, url)


async def upgraded(url: str) -> None:
    database = connect(url, "memory://")
    await upgrade(database)
    await database.close()


ENGINES = [("sqlite", "sqlite"), ("postgresql", "postgresql"), ("sqlite", "postgresql"), ("postgresql", "sqlite")]


@pytest.mark.parametrize(("live", "engine"), ENGINES, indirect=["live"])
def test_every_kind_of_data_is_restored(
    live: Site, engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    copy = tmp_path / "copy"
    with served(live) as (client, token):
        data = Data(client)
        back_up(live, copy)  # while the service runs
    before, objects = rows_of(live), digests_of(live.folder)
    new = restored(copy, new_site(request, tmp_path / "new", engine))
    assert rows_of(new) == before
    assert digests_of(new.folder) == objects
    with served(new, token) as (client, _):
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
    """Check that removed data are gone, and that new data exist."""
    assert client.get(f"/v1/stores/{data.tagged}").status_code == 404
    assert "m:1" not in {each["name"] for each in ok(client.get("/v1/tags")).json()["items"]}
    assert client.get("/ann/net/resolve/main/m.onnx").status_code == 404
    assert client.get(f"{MLFLOW}/small.txt").status_code == 404
    assert client.get("/v1/stores", headers={"authorization": f"Bearer {data.token}"}).status_code == 401
    assert ok(client.get("/v1/stores/new:1/files/m.onnx")).content == data.models[7]
    assert ok(client.get("/spaces/team/v1/stores/s:1/files/m.onnx")).content == data.models[2]


def test_a_second_run_takes_removals_over(live: Site, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with served(live) as (client, token):
        data = Data(client)
        assert " 0 already there" in back_up(live, copy)
        remove_some(client, data)
        back_up(live, copy)
    with served(restored(copy, Site(tmp_path / "new")), token) as (client, _):
        check_removed(client, data)
    assert len(run(f"protoslice restore-backup {COPY} --list", {COPY: copy}, None).splitlines()) == 2
    older = json.loads(run(f"protoslice restore-backup {COPY} --list --json", {COPY: copy}, None))[0]
    with served(restored(copy, Site(tmp_path / "older"), f" --snapshot {older}"), token) as (client, _):
        data.check(client)


@contextmanager
def at_work(live: Site, client: httpx.Client) -> Iterator[None]:
    """Add, remove and collect stores in the background until the block ends."""
    stop = threading.Event()

    def write(writer: int) -> None:
        made = list[str]()
        with httpx.Client(base_url=client.base_url, headers=client.headers, timeout=60) as own:
            for each in range(400):
                if stop.is_set():
                    return
                path = f"/v1/stores?filename=m.onnx&tag=w{writer}:{each}"
                made.append(stored(own, path, onnx(5000 + each, seed=writer * 1000 + each)))
                if len(made) > 3:
                    ok(own.delete(f"/v1/stores/{made.pop(0)}?force=w{writer}:{each - 3}"))
        raise AssertionError("the backups took too long")

    def collect() -> None:
        while not stop.wait(0.1):
            run(f"protoslice gc --grace-seconds 0 --storage {LIVE}", {LIVE: live.folder}, live.database)

    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(write, 0), pool.submit(write, 1), pool.submit(collect)]
        try:
            yield
        finally:
            stop.set()
        for job in jobs:
            job.result()


@pytest.mark.parametrize("live", ["sqlite", "postgresql"], indirect=True)
def test_a_backup_is_whole_while_stores_come_and_go(live: Site, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    copy = tmp_path / "copy"
    with served(live) as (client, token), at_work(live, client):
        for _ in range(3):
            back_up(live, copy)
    names = json.loads(run(f"protoslice restore-backup {COPY} --list --json", {COPY: copy}, None))
    assert len(names) == 3
    engine = "sqlite" if live.database is None else "postgresql"
    for name in names:
        new = restored(copy, new_site(request, tmp_path / name, engine), f" --snapshot {name}")
        run(f"protoslice check --read --storage {LIVE}", {LIVE: new.folder}, new.database)
        with served(new, token) as (client, _):
            for item in ok(client.get("/v1/stores?limit=1000")).json()["items"]:
                assert len(read(client, f"/v1/stores/{item['id']}/files/m.onnx")) == item["size"]


def test_old_snapshots_and_their_objects_are_deleted(live: Site, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with served(live) as (client, token):
        first = stored(client, "/v1/stores?filename=m.onnx", onnx(5000, seed=1))
        back_up(live, copy, " --keep 2")
        stored(client, "/v1/stores?filename=m.onnx&tag=kept", onnx(5000, seed=2))
        ok(client.delete(f"/v1/stores/{first}"))
        run(f"protoslice gc --grace-seconds 0 --storage {LIVE}", {LIVE: live.folder}, None)
        back_up(live, copy, " --keep 2")
        assert len(digests_of(copy)) == 2, "the older snapshot needs the object of the store that was removed"
        said = back_up(live, copy, " --keep 2")
    assert "1 object deleted that no snapshot refers to" in said
    assert len(digests_of(copy)) == 1
    with served(restored(copy, Site(tmp_path / "new")), token) as (client, _):
        assert len(read(client, "/v1/stores/kept/files/m.onnx")) > 5000


def test_an_interrupted_restoration_goes_on(live: Site, tmp_path: Path) -> None:
    copy, new = tmp_path / "copy", Site(tmp_path / "new")
    with served(live) as (client, token):
        data = Data(client)
        back_up(live, copy)
    missing, *_ = sorted((copy / "objects").rglob("*-*"))
    missing.rename(tmp_path / "aside")
    said = run(RESTORE.splitlines()[0], {COPY: copy, LIVE: new.folder}, None, code=3)
    assert missing.name in said
    assert "missing from the backup" in said
    (tmp_path / "aside").rename(missing)
    for file in new.folder.glob("catalog.sqlite*"):
        file.unlink()
    for verb in ("check", "gc", f"backup {tmp_path}/other"):  # they make no database where the restored one will be
        said = run(f"protoslice {verb} --storage {LIVE}", {LIVE: new.folder}, None, code=3)
        assert "run `protoslice restore-backup`" in said
    with served(restored(copy, new), token) as (client, _):
        data.check(client)


def test_places_that_are_in_use_are_refused(live: Site, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with served(live) as (client, _):
        stored(client, "/v1/stores?filename=m.onnx", onnx(5000))
        back_up(live, copy)
        with served(Site(tmp_path / "other")) as (other, _):
            stored(other, "/v1/stores?filename=m.onnx", onnx(5000))
        for target in (live.folder, live.folder / "objects/backup", tmp_path):
            assert "must not contain each other" in back_up(live, target, code=2)
        assert "not a backup" in back_up(live, tmp_path / "other", code=3)
        assert "backup of another service" in back_up(Site(tmp_path / "other"), copy, code=3)
        (tmp_path / "files").mkdir()
        (tmp_path / "files/mine.txt").write_text("x")
        assert "not empty and not a backup" in back_up(live, tmp_path / "files", code=3)
        first = RESTORE.splitlines()[0]
        assert "not empty" in run(first, {COPY: copy, LIVE: live.folder}, None, code=3)
        used = tmp_path / "other"
        assert "not empty" in run(first, {COPY: copy, LIVE: used}, None, code=3)
        fresh = f"sqlite:///{tmp_path}/fresh.sqlite"
        assert "another database" in run(first, {COPY: copy, LIVE: used}, fresh, code=3)
        assert "No snapshots" in run(first, {COPY: tmp_path / "files", LIVE: tmp_path / "new"}, None, code=4)
    gc = f"protoslice gc --storage {COPY}"
    assert "This is a backup" in run(gc, {COPY: copy}, f"sqlite:///{tmp_path}/new.sqlite", code=3)


async def dumped(site: Site) -> None:
    """Run the daily work of a service, for a moment in two processes."""
    database = connect(site.database, site.folder.as_uri())
    async with open_storage(site.folder.as_uri()) as storage:
        tasks = [asyncio.create_task(dump_daily(database, storage, keep=2, first_seconds=0)) for _ in range(2)]
        for _ in range(500):
            await asyncio.sleep(0.01)
            if names := await snapshots(storage):
                break
        await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len(await snapshots(storage)) == len(names) == 1
    await database.close()


def test_a_lost_database_is_restored_from_the_dump_in_the_storage(live: Site) -> None:
    with served(live) as (client, token):
        data = Data(client)
        asyncio.run(dumped(live))
        asyncio.run(dumped(live))  # the next dump is a day later
    for file in live.folder.glob("catalog.sqlite*"):
        file.unlink()
    assert "add --take-over" in run(IN_PLACE.replace(" --take-over", ""), {BUCKET: live.folder}, None, code=3)
    run(IN_PLACE, {BUCKET: live.folder}, None)
    with served(live, token) as (client, _):
        data.check(client)


def collect(site: Site, code: int = 0) -> str:
    """Let all delays pass, and collect garbage."""
    database = connect(site.database, site.folder.as_uri())

    async def pass_() -> None:
        await database.write(lambda tx: tx.run("UPDATE trash SET due = 1"))
        await database.close()

    gc = f"protoslice gc --grace-seconds 0 --storage {LIVE}"
    said = run(gc, {LIVE: site.folder}, site.database, code)
    asyncio.run(pass_())
    return said + run(gc, {LIVE: site.folder}, site.database, code)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_copy_over_the_storage_of_its_original_destroys_nothing(live: Site, tmp_path: Path, in_place: bool) -> None:
    """An operator who tries a backup may name the service's storage: two databases would then own its bytes."""
    copy, second = tmp_path / "copy", Site(live.folder, f"sqlite:///{tmp_path}/second.sqlite")
    with served(live) as (client, token):
        model = onnx(9000)
        id = stored(client, "/v1/stores?filename=m.onnx", model)
        back_up(live, copy)
        asyncio.run(dumped(live))
        source = live.folder if in_place else copy
        command = f"protoslice restore-backup {COPY} --storage={LIVE}"
        said = run(command, {COPY: source, LIVE: live.folder}, second.database, code=3)
        assert "add --take-over" in said
        ok(client.get("/readyz"))
        run(f"{command} --take-over", {COPY: source, LIVE: live.folder}, second.database)
        assert client.get("/readyz").status_code == 503
        ok(client.delete(f"/v1/stores/{id}"))
        objects = digests_of(live.folder)
        assert "a newer copy of this database" in collect(live, code=3), "the original deletes nothing any more"
        assert digests_of(live.folder) == objects
    with served(second, token) as (client, _):
        assert read(client, f"/v1/stores/{id}/files/m.onnx") == model
        ok(client.delete(f"/v1/stores/{id}"))
    collect(second)
    assert len(digests_of(live.folder)) == len(objects) - 1
    assert "a newer copy of this database" in run(
        f"protoslice check --storage {LIVE}", {LIVE: live.folder}, None, code=3
    )


def test_a_collector_that_runs_deletes_nothing_once_the_storage_has_another_owner(live: Site, tmp_path: Path) -> None:
    copy, second = tmp_path / "copy", f"sqlite:///{tmp_path}/second.sqlite"
    with served(live) as (client, _):
        id = stored(client, "/v1/stores?filename=m.onnx", onnx(9000))
        back_up(live, copy)
        ok(client.delete(f"/v1/stores/{id}"))
    objects = digests_of(live.folder)

    async def work() -> None:
        database = connect(live.database, live.folder.as_uri())
        async with open_storage(live.folder.as_uri()) as storage, closing_of(database):
            assert (await collect_garbage(storage, database, grace_seconds=-1)).objects == 1
            await database.write(lambda tx: tx.run("UPDATE trash SET due = 1"))
            first = f"protoslice restore-backup {COPY} --storage {LIVE} --take-over"
            await asyncio.to_thread(run, first, {COPY: copy, LIVE: live.folder}, second)
            with pytest.raises(StorageUnavailable, match="now belongs to another database"):
                await collect_garbage(storage, database, grace_seconds=-1)

    asyncio.run(work())
    assert digests_of(live.folder) == objects


@asynccontextmanager
async def closing_of(database: Database) -> AsyncIterator[Database]:
    try:
        yield database
    finally:
        await database.close()


def test_check_names_what_is_missing_damaged_and_unknown(live: Site, tmp_path: Path) -> None:
    with served(live) as (client, _):
        ids = [stored(client, f"/v1/stores?filename=m.onnx&tag=m:{each}", onnx(9000, seed=each)) for each in range(3)]
        large = stored(client, "/v1/stores?filename=big.bin", os.urandom(17 << 20))
        check = f"protoslice check --storage {LIVE}"
        assert "5 objects checked" not in run(check, {LIVE: live.folder}, None)
        objects = {path.stat().st_size: path for path in (live.folder / "objects").rglob("*-*") if path.is_file()}
        by_size = sorted(path for path in (live.folder / "objects").rglob("*-*") if 9000 < path.stat().st_size < 20000)
        flipped = bytearray(by_size[0].read_bytes())
        flipped[100] ^= 1
        by_size[0].write_bytes(flipped)
        by_size[1].unlink()
        by_size[2].write_bytes(by_size[2].read_bytes()[:-1])
        next((live.folder / "objects").rglob("*.sums")).unlink()
        said = run(check, {LIVE: live.folder}, None, code=3)
        assert "missing or incomplete" in said
        assert by_size[0].name not in said
        assert all(path.name in said for path in by_size[1:])
        assert max(objects.items())[1].name in said
        said = run(f"{check} --read", {LIVE: live.folder}, None, code=3)
        assert all(store in said for store in [*ids, large])
        stray = live.folder / "objects/00/1-00"
        stray.parent.mkdir(exist_ok=True)
        stray.write_bytes(b"x")
        assert "does not have" not in run(check, {LIVE: live.folder}, None, code=3), "it may be an upload"
        os.utime(stray, (1, 1))
        assert "1 object that the database does not list: kept" in run(check, {LIVE: live.folder}, None, code=3)
        assert "deleted" in run(f"{check} --delete-unknown", {LIVE: live.folder}, None, code=3)
        assert not stray.exists()


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a backup of a service with one store."""
    folder = tmp_path_factory.mktemp("backup")
    live = Site(folder / "live")
    with served(live) as (client, _):
        stored(client, "/v1/stores?filename=m.onnx&tag=m:1", onnx(9000))
        back_up(live, folder / "copy")
    return folder / "copy"


def tampered(backup: Path, folder: Path, sql: str) -> Path:
    """Return a copy of a backup whose snapshot has changed rows or tables."""
    copy = shutil.copytree(backup, folder)
    (snapshot,) = (copy / "snapshots").glob("*.sqlite")
    with closing(sqlite3.connect(snapshot)) as connection:
        connection.executescript(sql)
    return copy


def restore_into(site: Site, copy: Path) -> None:
    async def work() -> None:
        async with (
            open_storage(copy.as_uri()) as source,
            open_storage(site.folder.as_uri()) as storage,
            closing_of(connect(site.database, site.folder.as_uri())) as database,
        ):
            await restore(source, storage, database)

    asyncio.run(work())


@pytest.mark.parametrize("table", ["objects", "trash"])
@pytest.mark.parametrize(
    "key", ["snapshots/20260101T000000Z.sqlite", "objects/../protoslice.json", "objects/aa/x.sums", ""]
)
def test_keys_beyond_the_objects_of_a_snapshot_are_refused(backup: Path, tmp_path: Path, table: str, key: str) -> None:
    """A collector would delete the objects with these keys, and a restoration would copy them."""
    row = "INSERT INTO trash (key, sums, passes, due) VALUES ('objects/aa/1-00', 1, 1, 1)"
    copy = tampered(backup, tmp_path / "copy", f"{row}; UPDATE {table} SET key = '{key}'")
    with pytest.raises(IntegrityError, match="The snapshot is damaged"):
        restore_into(Site(tmp_path / "new"), copy)
    assert not list((tmp_path / "new").rglob("objects/*"))


TAMPERED = (
    'CREATE TABLE "audit; CREATE TABLE pwned (x text); DELETE FROM audit" (x text)',
    "UPDATE objects SET size = 'text'",
    "UPDATE meta SET catalogue_id = 'text'",
    "UPDATE meta SET schema = 'x'",
    "DROP TABLE tokens",
    "ALTER TABLE audit RENAME TO a; CREATE VIEW audit AS SELECT * FROM a",
)


@pytest.mark.parametrize("sql", TAMPERED)
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_a_snapshot_that_was_changed_runs_nothing(
    backup: Path, tmp_path: Path, engine: str, sql: str, request: pytest.FixtureRequest
) -> None:
    """Others may have changed a snapshot's file: it is restored whole, or refused with the database left empty."""
    copy, new = tampered(backup, tmp_path / "copy", sql), new_site(request, tmp_path / "new", engine)
    if sql == TAMPERED[0]:
        restore_into(new, copy)  # the table is none of ours, so it is left out
    else:
        with pytest.raises(IntegrityError, match="The snapshot is damaged"):
            restore_into(new, copy)
        restore_into(new, backup)  # nothing remained that blocks it
    assert "pwned" not in rows_of(new)
