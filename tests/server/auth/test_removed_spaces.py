"""Spaces are removed: no request changes anything in one from then on, and nothing of it is left a day later."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.support.calls import WRITING
from tests.support.serve import ask
from tests.support.things import Filling, Things

from protoslice.database import Database
from protoslice.database.snapshots import tables
from protoslice.database.transactions import AUDITED, Transaction, Unaudited
from protoslice.server.app import Application
from protoslice.server.auth.permissions import EVERY_SPACE, Scope
from protoslice.stores.collection import collect_garbage
from protoslice.uploads import uploads

HOOK: Final = "https://hooks.example/"
PLACE: Final = "/spaces/own"

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def filled() -> AsyncIterator[tuple[Application, dict[str, str], Things]]:
    """A service with a space that has one of each kind of thing, and an admin."""
    async with closed_service(webhook_allow=(HOOK,)) as app:
        admin = bearer(await token_for(app, *Scope, space=EVERY_SPACE))
        yield app, admin, await Filling(app, "own", admin).fill("mine", HOOK)


def database_of(app: Application) -> Database:
    assert app.services.opened is not None
    return app.services.opened.database


async def rows(app: Application, names: set[str]) -> dict[str, list[str]]:
    """All rows of the space in tables, but those that a read may compute."""

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
            """Learn nothing: this replica takes the space to exist."""

        monkeypatch.setattr(spaces, "refresh", refresh)
        await database_of(app).write(lambda tx: tx.run("UPDATE spaces SET removed = 1 WHERE name = 'own'"))
        before, refused = await rows(app, {*AUDITED}), set[str]()
        uploads = len((await rows(app, {"uploads"}))["uploads"])
        for call in WRITING:
            method, target, body, headers = call.filled(things, "")
            got = await ask(app, method, f"{PLACE}{target}", body, {**headers, **admin})
            assert got.status < 500, (call.route, got)
            assert await rows(app, {*AUDITED}) == before, (call.route, got)
            if got.status == 404 and b"No space 'own': it was removed" in got.body:
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
        assert "remove them first" in json.loads(full.body)["detail"]
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
        assert b"it was removed" in got.body
        monkeypatch.undo()
        await database.write(lambda tx: tx.run("UPDATE spaces SET removed = NULL WHERE name = 'own'"))
        there = await ask(app, "HEAD", f"/spaces/{url}", headers=admin)
        assert (there.status, there.headers["upload-offset"]) == (200, f"{len(model)}"), there
        assert there.headers["protoslice-store"]
