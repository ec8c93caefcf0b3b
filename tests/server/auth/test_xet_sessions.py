"""Sessions of Xet on a service that asks for tokens."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from tests.server.auth.closed import bearer, token_for
from tests.support.asgi import ask
from tests.support.xet import xorb_of

from protoslice.server.app import Application
from protoslice.server.auth.permissions import Scope


async def test_a_session_is_opened_by_the_token_that_began_it_alone(app: Application) -> None:
    token, other, reader = [
        await token_for(app, *scopes)
        for scopes in ((Scope.READ, Scope.WRITE), (Scope.READ, Scope.WRITE), (Scope.READ,))
    ]
    made = json.dumps({"name": "a/x", "type": "model"}).encode()
    kind = {"content-type": "application/json"}
    root = "/spaces/own/api"
    assert (await ask(app, "POST", f"{root}/repos/create", made, bearer(token) | kind)).status == 200
    asked = f"{root}/models/a/x/xet-write-token/main"
    assert (await ask(app, "GET", asked)).status == 401
    assert (await ask(app, "GET", asked, headers=bearer(reader))).status == 403
    told = json.loads((await ask(app, "GET", asked, headers=bearer(token))).body)
    assert bearer(told["accessToken"]) == bearer(token)
    hash, data = xorb_of(b"abc")
    path = f"{urlsplit(told['casUrl']).path}/v1/xorbs/default/{hash}"
    answers = [
        (await ask(app, "POST", path, data, headers)).status
        for headers in ({}, bearer(reader), bearer(other), bearer(token))
    ]
    assert answers == [401, 403, 404, 200]
