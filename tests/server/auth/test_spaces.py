"""Spaces: made, changed and removed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import fsspec
import httpx
import pytest
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.support.calls import WRITING
from tests.support.serve import LiveServer, ask, exchange
from tests.support.stores import onnx
from tests.support.things import Filling, Things

from protoslice.client import Client
from protoslice.database import Database
from protoslice.database.snapshots import tables
from protoslice.database.transactions import AUDITED, Transaction, Unaudited
from protoslice.errors import NotFound
from protoslice.server.app import Application
from protoslice.server.auth.permissions import EVERY_SPACE, Scope
from protoslice.server.auth.spaces import space_path
from protoslice.stores.collection import collect_garbage
from protoslice.uploads import uploads

MODEL = onnx(1000, 2000)


@pytest.fixture(scope="module")
def space(client: httpx.Client, service: LiveServer) -> Iterator[httpx.Client]:
    """Return a client of the space `team`."""
    assert client.put("/v1/spaces/team").status_code == 201
    with httpx.Client(base_url=f"{service.url}/spaces/team", timeout=30) as inside:
        yield inside


@pytest.fixture(scope="module")
def store(space: httpx.Client) -> str:
    """Return the id of a store of the space, tagged `m:1`."""
    answer = space.put("/v1/stores?filename=m.onnx&tag=m:1", content=MODEL)
    assert answer.status_code == 201
    return str(answer.json()["id"])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/stores", ("default", "", "/v1/stores")),
        ("/spaces/a-1/v1/x", ("a-1", "/spaces/a-1", "/v1/x")),
        ("/spaces/default/v1", ("default", "/spaces/default", "/v1")),
        ("/spaces/a/../b/v1", ("a", "/spaces/a", "/../b/v1")),
        ("/spaces/a/\n", ("a", "/spaces/a", "/\n")),
        *((path, ("default", "", path)) for path in (
            "/spaces", "/spaces/", "/spaces/a", "/spaces/A/v1", "/spaces//v1", "//spaces/a/v1", "/spaces/../v1",
            "/spaces/a\n/v1", "/spaces/a%2Fb/v1", "/spaces/" + "a" * 64 + "/v1", "*",
        )),
    ],
)  # fmt: skip
def test_a_path_names_one_space(path: str, expected: tuple[str, str, str]) -> None:
    assert space_path(path) == expected


def test_urls_in_answers_stay_in_the_space(space: httpx.Client, store: str) -> None:
    inside = f"/spaces/team/v1/stores/{store}"
    assert space.put("/v1/stores?filename=m.onnx", content=MODEL).headers["location"] == inside
    assert space.get("/v1/stores/m:1").headers["content-location"] == inside
    assert space.get("/v1/stores/m:1/files/m.onnx").headers["content-location"] == f"{inside}/files/m.onnx"
    assert space.get("/v1/stores/m:1/tree").headers["content-location"] == f"{inside}/tree"
    references = space.get("/v1/stores/m:1/references.json").json()["refs"]
    assert references["weight-0/0"][0].startswith(f"http://127.0.0.1:{space.base_url.port}{inside}/")
    assert httpx.get(references["weight-0/0"][0]).status_code == 200
    assert space.put("/v1/tags/m:2", json={"store": "m:1"}).headers["location"] == "/spaces/team/v1/tags/m:2"
    following = space.get("/v1/tags?limit=1").headers["link"]
    assert following.startswith("</spaces/team/v1/tags?")
    assert f'href="{inside}"' in space.get("/").text
    descriptors = b"\x0a\x03\x0a\x01x"
    assert space.put("/v1/schemas/s", content=descriptors).headers["location"] == "/spaces/team/v1/schemas/s"


def test_uploads_stay_in_the_space(space: httpx.Client, client: httpx.Client) -> None:
    begun = space.post(
        "/v1/uploads?filename=u.onnx", headers={"tus-resumable": "1.0.0", "upload-length": str(len(MODEL))}
    )
    url = begun.headers["location"]
    assert url.startswith("/spaces/team/v1/uploads/")
    said = {"tus-resumable": "1.0.0", "upload-offset": "0", "content-type": "application/offset+octet-stream"}
    sent = client.patch(url, content=MODEL, headers=said)
    assert sent.headers["link"].startswith("</spaces/team/v1/stores/")
    assert client.get(url.removeprefix("/spaces/team")).status_code == 404
    assert client.get(url).json()["state"] == "stored"


def test_nothing_of_a_space_is_seen_outside(space: httpx.Client, client: httpx.Client, store: str) -> None:
    assert client.put("/v1/spaces/other").status_code in {200, 201}
    for outside in ("", "/spaces/other", "/spaces/default"):
        assert client.get(f"{outside}/v1/stores").json()["items"] == []
        for path in (f"/v1/stores/{store}", f"/v1/stores/{store}/files/m.onnx", "/v1/tags/m:1", "/v1/stores/m:1/tree"):
            assert client.get(outside + path).status_code == 404, outside + path
            assert space.get(path).status_code == 200


def test_the_fast_path_keeps_spaces_apart(service: LiveServer, store: str, space: httpx.Client) -> None:
    """A plain range read is answered while it is parsed, once the store is open."""
    request = "GET {}/v1/stores/{}/files/m.onnx HTTP/1.1\r\nhost: localhost\r\nrange: bytes=0-9\r\n\r\n"
    for _ in range(3):
        inside = exchange(service, request.format("/spaces/team", store).encode())
        assert (inside.status, inside.body) == (206, MODEL[:10])
        for outside in ("", "/spaces/other", "/spaces/none"):
            assert exchange(service, request.format(outside, store).encode()).status == 404


def test_a_missing_space_is_404_for_every_method(client: httpx.Client) -> None:
    for method in ("GET", "HEAD", "DELETE"):
        for path in ("/v1/stores/m:1", "/v1/tags/m:1"):
            assert client.request(method, f"/spaces/none{path}").status_code == 404
    assert client.put("/spaces/none/v1/stores?filename=m.onnx", content=MODEL).status_code == 404
    assert client.get("/spaces/none/v1/stores").json()["detail"] == "No space 'none'"


def test_spaces_are_created_and_listed(client: httpx.Client) -> None:
    assert client.put("/v1/spaces/listed").status_code == 201
    assert client.put("/v1/spaces/listed").status_code == 200
    assert client.put("/v1/spaces/Not-A-Name").status_code == 400
    names = [item["name"] for item in client.get("/v1/spaces").json()["items"]]
    assert names[0] == "default"
    assert "listed" in names
    page = client.get("/v1/spaces?limit=1").json()
    assert [each["name"] for each in page["items"]] == ["default"]
    following = client.get("/v1/spaces", params={"limit": 1, "cursor": page["next"]}).json()
    assert [each["name"] for each in following["items"]] == [names[1]]


def test_clients_take_a_space_for_a_service(service: LiveServer, store: str, tmp_path: Path) -> None:
    with Client(f"{service.url}/spaces/team") as inside, Client(service.url) as outside:
        assert inside.store("m:1").id == store
        with pytest.raises(NotFound):
            outside.store("m:1")
        inside.download("m:1", tmp_path / "got.onnx")
        assert (tmp_path / "got.onnx").read_bytes() == MODEL
        pushed = inside.push(onnx(70 << 10, seed=7), filename="big.onnx", tags=["pushed"])
        assert pushed.created
        assert [tag.name for tag in inside.tags() if tag.name == "pushed"] == ["pushed"]
    root = f"protoslice://{service.host}:{service.port}/spaces/team"
    with fsspec.open(f"{root}/m:1/files/m.onnx") as file:
        assert file.read() == MODEL
    fs = fsspec.filesystem("protoslice")
    assert f"{root.removeprefix('protoslice://')}/m:1" in fs.ls(root, detail=False)


HOOK: Final = "https://hooks.example/"
PLACE: Final = "/spaces/own"

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def filled() -> AsyncIterator[tuple[Application, dict[str, str], Things]]:
    """Return a service with a space that has one of each kind of thing, and an admin."""
    async with closed_service(webhook_allow=(HOOK,)) as app:
        admin = bearer(await token_for(app, *Scope, space=EVERY_SPACE))
        yield app, admin, await Filling(app, "own", admin).fill("mine", HOOK)


def database_of(app: Application) -> Database:
    assert app.services.opened is not None
    return app.services.opened.database


async def rows(app: Application, names: set[str]) -> dict[str, list[str]]:
    """Return all rows of the space, except rows that a read may compute."""

    def read(tx: Transaction, table: str) -> list[str]:
        return sorted(
            row for row in map(repr, tx.all(f"SELECT * FROM {table}")) if "'own'" in row and "'git" not in row
        )

    return await database_of(app).read(lambda tx: {table: read(tx, table) for table in names})


async def test_no_request_writes_to_a_space_that_another_replica_has_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with filled() as (app, admin, things):
        spaces = app.services.spaces
        assert spaces is not None

        async def refresh() -> None:
            """Learn nothing, so that this replica believes that the space exists."""

        monkeypatch.setattr(spaces, "refresh", refresh)
        await database_of(app).write(lambda tx: tx.run("UPDATE spaces SET removed = 1 WHERE name = 'own'"))
        before, refused = await rows(app, {*AUDITED}), set[str]()
        uploads = len((await rows(app, {"uploads"}))["uploads"])
        for call in WRITING:
            method, target, body, headers = call.filled(things, "")
            got = await ask(app, method, f"{PLACE}{target}", body, {**headers, **admin})
            assert got.status < 500, (call.route, got)
            assert await rows(app, {*AUDITED}) == before, (call.route, got)
            if got.status == 404 and b"The space 'own' was removed" in got.body:
                refused.add(call.route)
        assert len((await rows(app, {"uploads"}))["uploads"]) == uploads
        assert len(refused) > 15, refused
        assert (await ask(app, "GET", f"{PLACE}/v1/tags", headers=admin)).status == 200, "it is read until it is known"


async def test_a_space_is_removed_and_its_name_is_free_when_nothing_is_left() -> None:
    async with filled() as (app, admin, _):

        async def asked(method: str, target: str = "/v1/spaces/own", **headers: str) -> Any:
            return await ask(
                app, method, target, headers={**admin, **{n.replace("_", "-"): v for n, v in headers.items()}}
            )

        assert (await asked("DELETE", "/v1/spaces/none")).status == 404
        assert (await asked("DELETE", "/v1/spaces/default")).status == 409
        full = await asked("DELETE")
        assert full.status == 409, full
        assert "Remove these first" in json.loads(full.body)["detail"]
        stale, known = '"stale"', (await asked("GET")).headers["etag"]
        assert (await asked("DELETE", "/v1/spaces/own?with_stores=true", if_match=stale)).status == 412
        assert (await asked("DELETE", "/v1/spaces/own?with_stores=true", if_match=known)).status == 204
        for method, target, status in (
            ("DELETE", "/v1/spaces/own", 404), ("GET", "/v1/spaces/own", 404), ("PATCH", "/v1/spaces/own", 404),
            ("PUT", "/v1/spaces/own", 409), ("GET", f"{PLACE}/v1/stores", 404),
        ):  # fmt: skip
            got = await ask(
                app, method, target, b"{}" if method == "PATCH" else b"", {**admin, "content-type": "application/json"}
            )
            assert got.status == status, (method, target, got)
        listed = json.loads((await asked("GET", "/v1/spaces")).body)["items"]
        assert [each["name"] for each in listed] == ["default", "other"]
        storage, database = app.services.stores.storage, database_of(app)
        await collect_garbage(storage, database)
        named = {table for table, columns in tables() if "space" in columns}
        assert (await rows(app, {"stores"}))["stores"], "a day has not passed"
        for _ in range(2):
            await collect_garbage(storage, database, grace_seconds=-1, delay_seconds=-1)
        left = await rows(app, named | {"spaces", "deliveries"})
        unpublished = {row for row in left.pop("objects") if ", None, " in row}
        assert unpublished, "a process keeps what it has reserved"
        assert {table for table, found in left.items() if found} == {"audit"}
        said = json.loads((await asked("GET", "/v1/audit?every_space=true")).body)["items"]
        assert ("space.removed", "own") in {(each["what"], each["subject"]) for each in said}
        assert (await asked("PUT")).status == 201
        assert json.loads((await asked("GET", f"{PLACE}/v1/stores")).body)["items"] == []


async def test_an_empty_space_is_removed_at_once() -> None:
    async with closed_service() as app:
        admin = bearer(await token_for(app, *Scope, space=EVERY_SPACE))
        for method, status in (("PUT", 201), ("DELETE", 204), ("PUT", 409)):
            assert (await ask(app, method, "/v1/spaces/team", headers=admin)).status == status
        await collect_garbage(app.services.stores.storage, database_of(app))
        assert (await ask(app, "PUT", "/v1/spaces/team", headers=admin)).status == 201


async def test_an_upload_ends_well_when_the_space_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with closed_service() as app:
        admin = bearer(await token_for(app, *Scope, space=EVERY_SPACE)) | {"tus-resumable": "1.0.0"}
        database, model = database_of(app), b"\x0a\x02\x0a\x00"
        sent = {"content-type": "application/offset+octet-stream", "upload-offset": "0"}
        begun = await ask(app, "POST", f"{PLACE}/v1/uploads", headers={**admin, "upload-length": f"{len(model)}"})
        url = begun.headers["location"].partition("/spaces/")[2]
        make = uploads.make_store

        async def removed(*args: Any, **more: Any) -> Any:
            sql = "UPDATE spaces SET removed = 1 WHERE name = 'own'"
            await database.write(lambda tx: tx.run(sql), unaudited=Unaudited.COLLECTED)
            return await make(*args, **more)

        monkeypatch.setattr(uploads, "make_store", removed)
        got = await ask(app, "PATCH", f"/spaces/{url}", model, {**admin, **sent})
        assert got.status == 404, got
        assert b"was removed" in got.body
        monkeypatch.undo()
        await database.write(lambda tx: tx.run("UPDATE spaces SET removed = NULL WHERE name = 'own'"))
        there = await ask(app, "HEAD", f"/spaces/{url}", headers=admin)
        assert (there.status, there.headers["upload-offset"]) == (200, f"{len(model)}"), there
        assert there.headers["protoslice-store"]
