"""Who may describe a store."""

from __future__ import annotations

import json

from tests.server.auth.closed import bearer, token_for
from tests.support.asgi import ask

from protoslice.server.app import Application
from protoslice.server.auth.permissions import Scope

JSON = {"content-type": "application/json"}


async def test_describing_takes_the_rights_for_the_store(app: Application) -> None:
    owner = bearer(await token_for(app, *Scope))
    id = json.loads((await ask(app, "PUT", "/spaces/own/v1/stores?filename=m&tag=ci-1", b"x", owner)).body)["id"]
    body = json.dumps({"description": "mine"}).encode()

    async def status(*scopes: Scope, tags: tuple[str, ...] = ()) -> int:
        headers = bearer(await token_for(app, *scopes, tags=tags)) | JSON
        return (await ask(app, "PATCH", f"/spaces/own/v1/stores/{id}", body, headers)).status

    assert await status(Scope.WRITE) == 403, "who may not read learns nothing"
    assert await status(Scope.READ, Scope.DELETE) == 403
    assert await status(Scope.READ, Scope.WRITE, tags=("other-*",)) == 403
    assert await status(Scope.READ, Scope.WRITE, tags=("ci-*",)) == 200
    assert await status(Scope.READ, Scope.WRITE) == 200
