"""Conditions of writes: each changing operation evaluates If-Match and If-None-Match, or refuses them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.support.calls import RULES, WRITING
from tests.support.serve import Asked, ask, open_app
from tests.support.things import DESCRIPTORS, Filling, Things, dumped

from protoslice.database import snapshots
from protoslice.server.app import Application
from protoslice.server.auth.permissions import EVERY_SPACE, Scope
from protoslice.server.routing import Route, routes_of

HOOK: Final = "https://hooks.example/"
JSON: Final = {"content-type": "application/json"}
SAFE: Final = {"GET", "HEAD", "OPTIONS"}
STALE: Final = [
    {"if-match": '"stale"'},
    {"if-match": "not a list of entity tags"},
    {"if-unmodified-since": "Sun, 29 Nov 2026 10:00:00 GMT"},
]
NO_TYPES: Final = b"\x0a\x03\x0a\x01x"
"""A descriptor set with an empty file."""
CONDITIONAL: Final = {
    "PATCH /v1/stores/{ref}", "DELETE /v1/stores/{ref}",
    "PUT /v1/tags/{tag}", "DELETE /v1/tags/{tag}",
    "PUT /v1/schemas/{name}", "DELETE /v1/schemas/{name}",
    "PUT /v1/spaces/{space}", "PATCH /v1/spaces/{space}", "DELETE /v1/spaces/{space}",
    "PUT /v1/webhooks/{name}", "DELETE /v1/webhooks/{name}",
}  # fmt: skip
"""The operations that evaluate conditions: those of all resources that can be changed by their URL."""
OWN: Final = ("/v1/", "/session")
"""The beginnings of paths whose unsafe operations evaluate or refuse conditions; registries ignore conditions."""


def unsafe(app: Application) -> Iterator[tuple[str, Route]]:
    for row, route in routes_of(app.router.routes):
        if row.partition(" ")[0] not in SAFE:
            yield row, route


@asynccontextmanager
async def filled() -> AsyncIterator[tuple[Application, dict[str, str], Things]]:
    async with closed_service(webhook_allow=(HOOK,)) as app:
        caller = bearer(await token_for(app, *Scope, space=EVERY_SPACE))
        yield app, caller, await Filling(app, "default", caller).fill("mine", HOOK)


async def rows(app: Application) -> list[list[str]]:
    """Return the rows of the catalogue, except events, which are delivered in the background."""
    tables = sorted({table for table, _ in snapshots.tables()} - {"deliveries"})
    assert app.services.opened is not None
    return await app.services.opened.database.read(
        lambda tx: [sorted(map(repr, tx.all(f"SELECT * FROM {table}"))) for table in tables]
    )


async def test_of_every_operation_a_stale_condition_is_refused_and_nothing_changes() -> None:
    asked = set()
    async with filled() as (app, caller, things):
        before = await rows(app)
        for call in WRITING:
            method, target, body, headers = call.filled(things, "")
            if method in SAFE or not call.route.partition(" ")[2].startswith(OWN) or call.refused not in {None, 404}:
                continue
            for stale in STALE:
                got = await ask(app, method, target, body, {**headers, **caller, **stale})
                assert (got.status, json.loads(got.body)["type"]) == (412, "/problems/precondition-failed"), (
                    call.route, stale, got,
                )  # fmt: skip
            asked.add(call.route)
        assert await rows(app) == before
        left = {row for row, _ in unsafe(app) if row.partition(" ")[2].startswith(OWN)} - asked
        for row in left - {"POST /session", "DELETE /session"}:
            method, _, path = row.partition(" ")
            got = await ask(app, method, path.replace("{", "").replace("}", ""), b"", {**caller, **STALE[0]})
            assert got.status == 412, (row, got)


async def test_operations_evaluate_conditions_refuse_them_or_belong_to_a_registry() -> None:
    async with open_app() as app:
        assert {row for row, route in unsafe(app) if route.conditions} == CONDITIONAL
        assert all(row in RULES for row in CONDITIONAL)
        for row, route in unsafe(app):
            assert route.is_strict == row.partition(" ")[2].startswith(OWN), row
        # A condition at a registry, whose client sends it because its library adds it.
        got = await ask(app, "PUT", "/api/2.0/mlflow-artifacts/artifacts/run/file", b"x", STALE[0])
        assert got.status < 300, got


class Resource(NamedTuple):
    """A resource that can be changed by its URL, and a change that has an effect each time."""

    url: str
    method: str
    body: bytes
    headers: Mapping[str, str]
    second: bytes
    created: bool = True
    """True if `method` creates a missing resource."""
    removable: bool = True


def resources(store: str) -> dict[str, Resource]:
    return {
        "store": Resource(
            f"/v1/stores/{store}", "PATCH", dumped({"description": "a"}), JSON, dumped({"description": "b"}), False
        ),
        "tag": Resource("/v1/tags/m:1", "PUT", dumped({"store": store}), JSON, dumped({"store": store})),
        "schema": Resource("/v1/schemas/s", "PUT", DESCRIPTORS, {"content-type": "application/protobuf"}, NO_TYPES),
        "space": Resource(
            "/v1/spaces/team", "PUT", dumped({"quota_stores": 1}), JSON, dumped({"quota_stores": 2}), removable=False
        ),
        "webhook": Resource("/v1/webhooks/h", "PUT", dumped({"url": HOOK}), JSON, dumped({"url": f"{HOOK}b"})),
    }


KINDS: Final = sorted(resources(""))


class Caller:
    """A sender of requests to an application."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def send(
        self, resource: Resource, method: str | None = None, body: bytes | None = None, **conditions: str
    ) -> Asked:
        named = {name.replace("_", "-"): value for name, value in conditions.items()}
        method = method or resource.method
        content = (resource.body if body is None else body) if method == resource.method else b""
        given = {**(resource.headers if content else {}), **named}
        return await ask(self._app, method, resource.url, content, given)

    async def etag(self, resource: Resource) -> str:
        got = await self.send(resource, "GET")
        assert got.status == 200, got
        return got.headers["etag"]


@asynccontextmanager
async def replicas(folder: Path, count: int = 1) -> AsyncIterator[tuple[list[Application], str]]:
    """Return services over one storage and one catalogue, and the id of a store in them."""
    async with AsyncExitStack() as stack:
        given: dict[str, Any] = {"storage": f"file://{folder}/storage", "webhook_allow": (HOOK,)}
        apps = [await stack.enter_async_context(open_app(**given)) for _ in range(count)]
        made = await ask(apps[0], "POST", "/v1/stores?filename=x&tag=other", b"content")
        yield apps, json.loads(made.body)["id"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_write_takes_effect_if_its_condition_is_true(kind: str, tmp_path: Path) -> None:
    async with replicas(tmp_path) as ((app,), store):
        caller, resource = Caller(app), resources(store)[kind]
        if resource.created:
            assert (await caller.send(resource, if_match="*")).status == 412
            assert (await caller.send(resource, "GET")).status == 404
            assert (await caller.send(resource, if_none_match="*")).status == 201
        else:
            assert (await caller.send(resource)).status == 200
        assert (await caller.send(resource, if_none_match="*")).status == 412
        first = await caller.etag(resource)
        assert not first.startswith("W/")
        assert (await caller.send(resource, "GET", if_none_match=first)).status == 304
        assert (await caller.send(resource, body=resource.second, if_none_match=first)).status == 412
        assert (await caller.send(resource, body=resource.second, if_none_match=f'"x", {first}')).status == 412
        assert await caller.etag(resource) == first

        changed = await caller.send(resource, body=resource.second, if_match=f'"other", {first}')
        assert changed.status == 200, changed
        assert changed.headers["etag"] == await caller.etag(resource) != first
        stale = await caller.send(resource, if_match=first)
        shown = json.loads(stale.body)["etag"]
        assert (stale.status, shown) == (412, changed.headers["etag"])
        for method in ("GET", resource.method):
            bare = await caller.send(resource, method, if_match=shown.strip('"'))
            assert (bare.status, json.loads(bare.body)["etag"]) == (412, shown)
            assert "If-Match: Invalid entity tags: put each in double quotes" in json.loads(bare.body)["detail"]
        assert (await caller.send(resource, body=resource.second, if_match=shown)).status == 200
        assert (await caller.send(resource, body=resource.second, if_match="*")).status == 200
        if resource.removable:
            assert (await caller.send(resource, "DELETE", if_match=first)).status == 412
            force = "?force=other" if kind == "store" else ""
            last = await caller.etag(resource)
            gone = await caller.send(resource._replace(url=resource.url + force), "DELETE", if_match=last)
            assert gone.status < 300, gone
            assert (await caller.send(resource, "DELETE", if_match=last)).status == 412


@pytest.mark.parametrize("kind", KINDS)
async def test_of_writes_of_two_replicas_on_one_condition_one_takes_effect(kind: str, tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (apps, store):
        callers, resource = [*map(Caller, apps)], resources(store)[kind]
        await callers[0].send(resource)
        for turn in range(3):
            seen = await callers[turn % 2].etag(resource)
            body = resource.body if turn % 2 else resource.second
            got = await asyncio.gather(*(callers[n % 2].send(resource, body=body, if_match=seen) for n in range(8)))
            assert sorted(each.status for each in got) == [200, *[412] * 7]
        if resource.created:
            fresh = resource._replace(url=f"{resource.url}2")
            got = await asyncio.gather(*(callers[n % 2].send(fresh, if_none_match="*") for n in range(8)))
            assert sorted(each.status for each in got) == [201, *[412] * 7]
        if resource.removable:
            seen, force = await callers[0].etag(resource), "?force=other" if kind == "store" else ""
            removal = resource._replace(url=resource.url + force)
            got = await asyncio.gather(
                *(callers[n % 2].send(resource, if_match=seen) for n in range(4)),
                *(callers[n % 2].send(removal, "DELETE", if_match=seen) for n in range(4)),
            )
            assert sum(each.status < 300 for each in got) == 1, got


async def test_a_tag_that_is_set_meanwhile_keeps_its_store(tmp_path: Path) -> None:
    """A store is removed with its tags, on the condition that they are the tags that the caller has seen."""
    async with replicas(tmp_path) as ((app,), store):
        caller, resource = Caller(app), resources(store)["store"]
        seen = await caller.etag(resource)
        await ask(app, "PUT", "/v1/tags/new", dumped({"store": store}), JSON)
        forced = resource._replace(url=f"{resource.url}?force=other&force=new")
        assert (await caller.send(forced, "DELETE", if_match=seen)).status == 412
        assert (await caller.send(resource, if_match=seen)).status == 412
        assert await caller.etag(resource._replace(url="/v1/stores/new")) != seen
