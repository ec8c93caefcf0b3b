"""A token that may write and not read: what responses tell it of the content of others."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable
from hashlib import sha256
from random import Random
from typing import Any, Final

import pytest
from tests.server.auth.closed import bearer, token_for
from tests.support.calls import CALLS, RULES
from tests.support.serve import Asked, ask

from protoslice.catalog.spaces import SpaceTable
from protoslice.recipes import MEDIA_TYPE, RecipeWriter
from protoslice.server.app import Application
from protoslice.server.auth.permissions import Scope

OLD: Final = b"of somebody else " * 100
NEW: Final = b"never seen before " * 100
JSON: Final = {"content-type": "application/json"}
PLACE: Final = "/spaces/own/v1/stores?filename=m.bin"


async def put(app: Application, headers: dict[str, str], data: bytes, query: str) -> tuple[int, dict[str, Any]]:
    answer = await ask(app, "PUT", f"/spaces/own/v1/stores?filename=m.bin{query}", data, headers)
    return answer.status, json.loads(answer.body)


async def test_uploads_tell_a_writer_neither_existence_nor_tags(app: Application) -> None:
    other = bearer(await token_for(app, Scope.READ, Scope.WRITE))
    assert (await put(app, other, OLD, "&tag=secret-name"))[0] == 201
    writer = bearer(await token_for(app, Scope.WRITE))
    old, new = await put(app, writer, OLD, "&tag=mine"), await put(app, writer, NEW, "&tag=mine-too")
    assert (old[0], new[0]) == (201, 201)
    assert (old[1]["tags"], new[1]["tags"]) == (["mine"], ["mine-too"])
    assert old[1].keys() == new[1].keys()
    assert old[1]["created"] >= new[1]["created"][:-3]
    assert sorted((await put(app, other, OLD, ""))[1]["tags"]) == ["mine", "secret-name"]
    assert (await put(app, other, OLD, ""))[0] == 200


async def test_tags_tell_a_writer_no_store_that_it_does_not_name(app: Application) -> None:
    other = bearer(await token_for(app, Scope.READ, Scope.WRITE))
    writer = bearer(await token_for(app, Scope.WRITE))
    id = (await put(app, other, OLD, "&tag=secret-name"))[1]["id"]
    for store in ("secret-name", "no-such-tag", id[:12], "0" * 12, id[:63]):
        body = json.dumps({"store": store}).encode()
        refused = await ask(app, "PUT", "/spaces/own/v1/tags/mine", body, writer | JSON)
        assert refused.status == 403, (store, refused.text)
        assert id not in refused.text
    body = json.dumps({"store": id}).encode()
    assert (await ask(app, "PUT", "/spaces/own/v1/tags/mine", body, writer | JSON)).status == 201
    absent = writer | JSON | {"if-none-match": "*"}
    failed = await ask(app, "PUT", "/spaces/own/v1/tags/secret-name", body, absent)
    assert failed.status == 412
    assert id not in failed.text
    assert id in (await ask(app, "PUT", "/spaces/own/v1/tags/secret-name", body, absent | other)).text


async def test_routes_that_show_content_refuse_callers_without_read(app: Application) -> None:
    caller = bearer(await token_for(app, *(set(Scope) - {Scope.READ, Scope.ADMIN})))
    calls = [call for call in CALLS if call.route and RULES[call.route].reads]
    assert {call.route for call in calls} == {route for route, rule in RULES.items() if rule.reads}
    for call in calls:
        refused = await ask(app, call.method, f"/spaces/own{call.anonymous}", headers=caller)
        assert refused.status == 403, (call.target, refused.text)
        assert "lacks the scope read" in refused.text


async def test_removing_shows_a_caller_without_read_no_names(app: Application) -> None:
    other = bearer(await token_for(app, *Scope))
    id = (await put(app, other, OLD, "&tag=secret-name"))[1]["id"]
    remover = bearer(await token_for(app, Scope.DELETE))
    for prefix in (id[:12], id[:63], "0" * 12):
        assert (await ask(app, "DELETE", f"/spaces/own/v1/stores/{prefix}", headers=remover)).status == 403
    refused = await ask(app, "DELETE", f"/spaces/own/v1/stores/{id}", headers=remover)
    assert refused.status == 409
    assert "secret-name" not in refused.text
    assert "secret-name" in (await ask(app, "DELETE", f"/spaces/own/v1/stores/{id}", headers=other)).text
    assert (await ask(app, "DELETE", f"/spaces/own/v1/stores/{id}?force=secret-name", headers=remover)).status == 200


def digest(data: bytes) -> str:
    """The digest of a body, for a header."""
    return f"sha-256=:{b64encode(sha256(data).digest()).decode()}:"


async def put_by_tus(app: Application, headers: dict[str, str], data: bytes) -> Asked:
    """Upload in two requests, as a client does after an interruption."""
    tus = headers | {"tus-resumable": "1.0.0"}
    begun = await ask(
        app, "POST", "/spaces/own/v1/uploads?filename=m.bin", b"", tus | {"upload-length": str(len(data))}
    )
    if begun.status != 201:
        return begun
    kind = {"upload-offset": "0", "content-type": "application/offset+octet-stream"}
    return await ask(app, "PATCH", begun.headers["location"], data, tus | kind)


def recipe_of(data: bytes) -> bytes:
    """A recipe that copies nothing."""
    lines = RecipeWriter()
    parts = lines.file("m.bin"), lines.literal(len(data)), data, lines.end(len(data), sha256(data).hexdigest())
    return b"".join([*parts, lines.done()])


WAYS: Final[dict[str, Callable[[Application, dict[str, str], bytes], Awaitable[Asked]]]] = {
    "a body": lambda app, headers, data: ask(app, "PUT", PLACE, data, headers),
    "no length": lambda app, headers, data: ask(app, "PUT", PLACE, data, headers, sized=False),
    "a digest and no length": lambda app, headers, data: ask(
        app, "PUT", PLACE, data, headers | {"repr-digest": digest(data)}, sized=False
    ),
    "tus": put_by_tus,
    "a recipe": lambda app, headers, data: ask(
        app, "POST", "/spaces/own/v1/stores", recipe_of(data), headers | {"content-type": MEDIA_TYPE}
    ),
}
SIZES: Final = {"held in the manifest": 1500, "a pack": 300 << 10, "an object": 3 << 20}


@pytest.mark.parametrize("fresh", [0.0, 1e9])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", WAYS)
async def test_a_full_quota_tells_a_writer_nothing_of_content(
    way: str, size: str, fresh: float, app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known and unknown bytes get one answer, for any free quota, and any belief about it."""
    random, length = Random(1), SIZES[size]
    old = random.randbytes(length)
    writer = bearer(await token_for(app, Scope.WRITE))
    assert (await ask(app, "PUT", PLACE, old, bearer(await token_for(app, Scope.READ, Scope.WRITE)))).status == 201
    assert app.services.spaces is not None
    assert app.services.database is not None
    room, table = (await app.services.spaces.get("own")).quotas, SpaceTable(app.services.database)
    seen = set[int]()
    for left in (None, 0, length - 1, length, length + 100, length + 1000, 2 * length + 100_000):
        answers = list[tuple[int, str]]()
        for data in (old, random.randbytes(length)):
            await table.change_limits("own", {"quota_bytes": 0, "quota_stores": 0})
            await room.refresh()
            monkeypatch.setattr("protoslice.catalog.spaces.FRESH_SECONDS", fresh)
            used = room.used
            bytes, stores = (0, used.stores) if left is None else (used.stored_bytes + left, 0)
            await table.change_limits("own", {"quota_bytes": bytes, "quota_stores": stores})
            answer = await WAYS[way](app, writer, data)
            answers.append((answer.status, json.loads(answer.body).get("detail", "") if answer.status > 299 else ""))
        assert answers[0] == answers[1], left
        assert not re.search("[0-9]", answers[0][1]), "no totals of the space"
        seen.add(answers[0][0])
    assert len(seen) == 2, "some fit and some do not"
