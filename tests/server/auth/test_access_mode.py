"""The mode of access: it is reported, saved in the database, the same for all processes, and printed.

Only the service's user can read the service's files, for any umask. A service whose storage is read-only continues to
serve, and changes no content.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.server.auth.hostile import running_site
from tests.support.calls import READING, WRITING
from tests.support.serve import ask, open_app
from tests.support.stores import keys_in, opened, upload
from tests.support.things import Filling

from protoslice.catalog.marker import open_both, open_catalogue
from protoslice.catalog.spaces import Usage
from protoslice.catalog.tags import TagTable
from protoslice.database import Database, connect
from protoslice.database.transactions import OF_STORAGE, Transaction
from protoslice.errors import InvalidInput, ProtosliceError, Unsupported
from protoslice.mlflow import AutoCommit
from protoslice.server.app import Application
from protoslice.server.auth.permissions import Scope
from protoslice.server.auth.tokens import Tokens
from protoslice.storage import FileStorage
from protoslice.stores import IngestRequest, backups
from protoslice.stores.collection import collect_garbage

TRUST: Final = """
[[issuer]]
url = "https://ci.example"
audience = "models"
[[issuer.allow]]
claims = { repository = "a/*" }
space = "team"
scopes = ["read"]
"""
REACHED: Final[dict[str, Any]] = {
    "trusted_proxies": ("192.0.2.1",),
    "public_url": "https://models.example",
    "allowed_hosts": ("models.example",),
    "issuers": "issuers.toml",
}
"""The settings for a service that other machines can reach."""


@asynccontextmanager
async def started(folder: Path, database: str, **given: Any) -> AsyncIterator[Application]:
    """Start a service over a folder and a catalogue; file names in `given` are relative to the folder."""
    if "issuers" in given:
        (folder / "issuers.toml").write_text(TRUST)
        given["issuers"] = folder / given["issuers"]
    async with open_app(storage=(folder / "storage").as_uri(), database=database, **given) as app:
        yield app


async def is_open(app: Application) -> bool:
    """Return True for a service that lets a request without a token store something."""
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        status = (await client.put("/v1/stores", content=b"\x0a\x01a")).status_code
        assert status in {200, 201, 401}
        return status != 401


@pytest.mark.parametrize("name", REACHED)
async def test_open_is_not_inferred_for_a_service_that_others_reach(name: str, tmp_path: Path, catalogue: str) -> None:
    given = {name: REACHED[name]}
    with pytest.raises(InvalidInput, match=f"PROTOSLICE_{name.upper()} is set: set PROTOSLICE_AUTH=tokens"):
        async with started(tmp_path, catalogue, **given):
            pass
    async with started(tmp_path, catalogue, auth="open", **given) as app:
        assert await is_open(app)


async def test_open_is_not_inferred_where_the_database_has_tokens(tmp_path: Path, catalogue: str) -> None:
    database = connect(catalogue, "memory://")
    async with started(tmp_path, catalogue) as app:
        assert await is_open(app)
    await Tokens(database).create("t", None, [Scope.READ])
    await database.close()
    with pytest.raises(InvalidInput, match="the database has tokens: set PROTOSLICE_AUTH=tokens"):
        async with started(tmp_path, catalogue):
            pass


async def test_database_of_an_earlier_version_with_tokens_is_not_opened_unasked(tmp_path: Path, catalogue: str) -> None:
    async with started(tmp_path, catalogue, auth="tokens") as app:
        assert app.services.database is not None
        await app.services.database.write(lambda tx: tx.run("UPDATE meta SET access = NULL"))
    with pytest.raises(InvalidInput, match="the database has tokens"):
        async with started(tmp_path, catalogue):
            pass


async def test_mode_is_the_same_for_all_that_start(tmp_path: Path, catalogue: str) -> None:
    """For every pair of starts, the second one has the mode of the first, or fails."""
    reached = {"trusted_proxies": ("192.0.2.1",)}
    ways: list[dict[str, Any]] = [
        {}, reached, {"host": "0.0.0.0"}, {"auth": "open"}, {"auth": "open", **reached}, {"auth": "tokens"}
    ]  # fmt: skip
    outcomes = set[str]()
    database = connect(catalogue, "memory://")
    for first, second in itertools.product(ways, ways):
        modes = list[bool]()
        for given in (first, second):
            try:
                async with started(tmp_path, catalogue, **given) as app:
                    modes.append(await is_open(app))
                    if modes[-1]:
                        assert given.get("auth") == "open" or given == {}, given
            except ProtosliceError as error:
                outcomes.add(error.message)
        assert len(set(modes)) < 2, (first, second)
        await database.write(lambda tx: tx.run("UPDATE meta SET access = NULL, first_token = NULL"))
        await database.fill(lambda tx: tx.run("DELETE FROM tokens"))
    await database.close()
    assert len(outcomes) >= 4


async def test_processes_that_start_at_once_have_one_mode(tmp_path: Path, catalogue: str) -> None:
    async def start(auth: str) -> bool | None:
        try:
            async with started(tmp_path, catalogue, auth=auth) as app:
                return await is_open(app)
        except Unsupported:
            return None

    found = await asyncio.gather(*(start(auth) for auth in ("open", "tokens") * 3))
    assert len(set(found) - {None}) == 1


async def test_issuers_are_read_in_both_modes(tmp_path: Path) -> None:
    for auth in ("open", "tokens"):
        with pytest.raises(InvalidInput, match="missing"):
            async with open_app(auth=auth, issuers=tmp_path / "missing.toml"):
                pass


@pytest.fixture
def lax() -> Iterator[None]:
    """Set the most permissive umask."""
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    entries = [folder, *folder.rglob("*")]
    return [f"{path}: {stat.filemode(path.lstat().st_mode)}" for path in entries if path.lstat().st_mode & 0o077]


@pytest.mark.usefixtures("lax")
def test_all_that_a_service_stores_is_its_own(tmp_path: Path) -> None:
    with running_site(tmp_path) as site, site.http(site.admin) as http:
        wanted = {"path": "/v1/stores/own-tag/files/m.onnx"}
        assert http.post("/spaces/own/v1/sign", json=wanted).status_code == 201
        storage = tmp_path / "storage"
        assert (storage / "catalog.sqlite").is_file()
        assert open_to_others(storage) == []


@pytest.mark.usefixtures("lax")
def test_files_of_others_are_seen(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret")
    assert len(open_to_others(tmp_path)) >= 1


REASON: Final = "mounted for reading alone"
HOOK: Final = "http://127.0.0.1:9/"
ACCEPTED: Final = frozenset(
    {
        # Views, searches, and requests that do not change content.
        "POST /v1/stores/{ref}/merge", "POST /v1/stores/{ref}/parts", "POST /v1/chunks/missing", "POST /v1/sign",
        "POST /v1/s3-keys",
        "POST /api/validate-yaml", "POST /api/{kind}/{name:repository}/paths-info/{revision}",
        "POST /api/{kind}/{name:repository}/preupload/{revision}", "PUT /api/{kind}/{name:repository}/settings",
        "POST /api/2.0/mlflow-artifacts/mpu/create/{name:path}",
        # Content that exists already, or is gone.
        "PUT /v1/schemas/{name}",
        "POST /api/xet/{kind}/{name:repository}/{session}/v1/xorbs/default/{hash}",
        "POST /api/2.0/mlflow-artifacts/mpu/abort/{name:path}",
        # Access and events.
        "DELETE /session", "POST /v1/tokens", "DELETE /v1/tokens/{id}", "PUT /v1/webhooks/{name}",
        "DELETE /v1/webhooks/{name}", "POST /v1/webhooks/{name}/redeliver",
    }
)  # fmt: skip
"""The routes whose calls succeed although their method is not GET or HEAD."""
WRITING_GETS: Final = frozenset(
    {
        # These adopt an upload, or begin a session.
        "GET /v1/uploads/{upload}", "GET /v2/{name:path}/blobs/uploads/{upload}",
        "GET /api/{kind}/{name:repository}/xet-write-token/{revision}",
        # The first call makes a store of an MLflow folder, or a manifest of a commit.
        "GET /v1/stores/{ref}/files/{path:path}", "GET /v2/{name:path}/manifests/{ref}",
    }
)  # fmt: skip


async def content(app: Application) -> Mapping[str, Any]:
    """Return the rows of all tables of the storage, and the keys of its objects."""
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
    """Make a store of an MLflow folder that has not changed for a while."""
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
