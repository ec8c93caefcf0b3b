"""A token that may write and not read: what responses tell it of the content of others."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.server.access.closed import bearer, token_for
from tests.server.access.worlds.calls import CALLS
from tests.support.asgi import ask

from protoslice.server.access.decision import Scope
from protoslice.server.access.rules import RULES
from protoslice.server.app import Application

OLD: Final = b"of somebody else " * 100
NEW: Final = b"never seen before " * 100
JSON: Final = {"content-type": "application/json"}


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
