"""Refusals of the gate reach people who use the hub's client, which shows a header alone."""

from __future__ import annotations

import json

from tests.server.auth.closed import bearer, token_for
from tests.support.asgi import ask

from protoslice.server.app import Application
from protoslice.server.auth.permissions import Scope


async def test_a_refusal_says_why_in_the_header_that_clients_show(app: Application) -> None:
    reader = bearer(await token_for(app, Scope.READ))
    body = json.dumps({"name": "model", "organization": "team"}).encode()
    asked = [("lacks the scope write", 403, reader), ("Invalid token", 401, bearer("wrong"))]
    for words, status, headers in [*asked, ("Token required", 401, {})]:
        told = await ask(app, "POST", "/spaces/own/api/repos/create", body, headers)
        assert (told.status, words in told.headers.get("x-error-message", "")) == (status, True), told
