"""Mode of access: said, kept in the database, the same for all processes, and printed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from tests.support.serve import open_app

from protoslice.database import connect
from protoslice.errors import InvalidInput, ProtosliceError, Unsupported
from protoslice.server.app import Application
from protoslice.server.auth.permissions import Scope
from protoslice.server.auth.tokens import Tokens

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
"""Settings that only a service has which other machines reach."""


@asynccontextmanager
async def started(folder: Path, database: str, **given: Any) -> AsyncIterator[Application]:
    """Start a service over a folder and a catalogue; names in `given` that are files lie in the folder."""
    if "issuers" in given:
        (folder / "issuers.toml").write_text(TRUST)
        given["issuers"] = folder / given["issuers"]
    async with open_app(storage=(folder / "storage").as_uri(), database=database, **given) as app:
        yield app


async def is_open(app: Application) -> bool:
    """True for a service that lets a request without a token store something."""
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
    """Every pair of starts: the second has the mode of the first, or does not start."""
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
