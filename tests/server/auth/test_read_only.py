"""A service whose storage cannot be written: it serves, and nothing of its content changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.support.calls import READING, WRITING
from tests.support.serve import ask
from tests.support.stores import keys_in, opened, upload
from tests.support.things import Filling

from protoslice.catalog.marker import open_both, open_catalogue
from protoslice.catalog.spaces import Usage
from protoslice.catalog.tags import TagTable
from protoslice.database import Database
from protoslice.database.transactions import OF_STORAGE, Transaction
from protoslice.errors import Unsupported
from protoslice.mlflow import AutoCommit
from protoslice.server.app import Application
from protoslice.server.auth.permissions import Scope
from protoslice.storage import FileStorage
from protoslice.stores import IngestRequest, backups
from protoslice.stores.collection import collect_garbage

REASON: Final = "mounted for reading alone"
HOOK: Final = "http://127.0.0.1:9/"
ACCEPTED: Final = frozenset(
    {
        # Views, searches, and what does not touch the content.
        "POST /v1/stores/{ref}/merge", "POST /v1/stores/{ref}/parts", "POST /v1/chunks/missing", "POST /v1/sign",
        "POST /v1/s3-keys",
        "POST /api/validate-yaml", "POST /api/{kind}/{name:repository}/paths-info/{revision}",
        "POST /api/{kind}/{name:repository}/preupload/{revision}", "PUT /api/{kind}/{name:repository}/settings",
        "POST /api/2.0/mlflow-artifacts/mpu/create/{name:path}",
        # What is there already, or gone.
        "PUT /v1/schemas/{name}",
        "POST /api/xet/{kind}/{name:repository}/{session}/v1/xorbs/default/{hash}",
        "POST /api/2.0/mlflow-artifacts/mpu/abort/{name:path}",
        # Access and events.
        "DELETE /session", "POST /v1/tokens", "DELETE /v1/tokens/{id}", "PUT /v1/webhooks/{name}",
        "DELETE /v1/webhooks/{name}", "POST /v1/webhooks/{name}/redeliver",
    }
)  # fmt: skip
"""Routes whose calls succeed although they are not of GET or HEAD."""
WRITING_GETS: Final = frozenset(
    {
        # These take over an upload, or begin a session.
        "GET /v1/uploads/{upload}", "GET /v2/{name:path}/blobs/uploads/{upload}",
        "GET /api/{kind}/{name:repository}/xet-write-token/{revision}",
        # The first call makes a store of a folder of MLflow, or a manifest of a commit.
        "GET /v1/stores/{ref}/files/{path:path}", "GET /v2/{name:path}/manifests/{ref}",
    }
)  # fmt: skip


async def content(app: Application) -> Mapping[str, Any]:
    """Rows of all tables of the storage, and the keys of its objects."""
    database = app.services.database
    assert database is not None

    def read(tx: Transaction) -> dict[str, list[str]]:
        found = {table: sorted(map(repr, tx.all(f"SELECT * FROM {table}"))) for table in OF_STORAGE}
        found["kept_files"] = [row for row in found["kept_files"] if ", 'git" not in row]  # computed for git clients
        return found

    rows = await database.read(read)
    return {**rows, "keys": await keys_in(app.services.stores.storage)}


def database_of(app: Application) -> Database:
    """Return the catalogue."""
    assert app.services.database is not None
    return app.services.database


async def test_no_route_changes_content() -> None:
    async with closed_service(webhook_allow=(HOOK,), webhook_networks=("127.0.0.0/8",)) as app:
        caller = bearer(await token_for(app, *Scope))
        things = await Filling(app, "own", caller).fill("mine", HOOK)
        before, database_of(app).read_only = await content(app), REASON
        accepted, refused = set[str](), set[str]()
        for call in [*READING, *WRITING]:
            method, target, body, headers = call.filled(things, "/spaces/own")
            got = await ask(app, method, f"/spaces/own{target}", body, {**headers, **caller})
            assert got.status < 500, (call.target, got.text)
            if f"cannot write to its storage: {REASON}" in got.text:
                refused.add(call.route)
            elif call.method not in {"GET", "HEAD", "OPTIONS"} and call.refused is None:
                accepted.add(call.route)
        assert await content(app) == before
        assert accepted - refused == ACCEPTED
        assert len(refused) >= 40
        assert {route for route in refused if route.startswith(("GET", "HEAD"))} == WRITING_GETS


async def collect(app: Application) -> None:
    """Collect garbage without any grace."""
    await collect_garbage(app.services.stores.storage, database_of(app), grace_seconds=0, delay_seconds=0)


async def make_store(app: Application) -> None:
    """Make a store of a folder of MLflow that has not changed for a while."""
    assert app.services.spaces is not None
    await AutoCommit(database_of(app), app.services.spaces.get, 0).look()


async def dump(app: Application) -> None:
    """Write a snapshot of the database into the storage."""
    await backups._dump(database_of(app), app.services.stores.storage, 1)


@pytest.mark.parametrize("work", [collect, make_store, dump])
async def test_no_work_of_the_service_itself_changes_content(work: Callable[[Application], Awaitable[None]]) -> None:
    async with closed_service() as app:
        await Filling(app, "own", bearer(await token_for(app, *Scope))).fill("mine", None)
        before, database_of(app).read_only = await content(app), REASON
        with pytest.raises(Unsupported, match=f"cannot write to its storage: {REASON}"):
            await work(app)
        assert await content(app) == before
        database_of(app).read_only = None
        await work(app)
        assert await content(app) != before, "it had something to do"


async def test_commands_change_nothing_of_a_storage_without_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = tmp_path.as_uri()
    async with (
        FileStorage(str(tmp_path)) as storage,
        open_catalogue(storage, uri, None, create=True) as database,
        opened(storage, None, database) as stores,
    ):
        await upload(stores, b"data", IngestRequest(tags=("a",)))
    abilities = FileStorage(str(tmp_path)).abilities
    monkeypatch.setattr(FileStorage, "abilities", replace(abilities, write=False))
    async with open_both(uri, {}, None) as (_, database):
        tags = TagTable(database, Usage("default"))
        with pytest.raises(Unsupported, match="cannot write to its storage: This storage is read-only"):
            await tags.remove("a")
        assert await tags.get("a")
