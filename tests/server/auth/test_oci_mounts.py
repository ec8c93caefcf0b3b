"""Mounts of blobs copy from another repository, so that they need what reading needs."""

from __future__ import annotations

import hashlib

import pytest
from tests.server.auth.closed import bearer, token_for
from tests.support.asgi import ask

from protoslice.server.app import Application
from protoslice.server.auth.permissions import Scope


@pytest.mark.parametrize(("scopes", "status"), [((Scope.WRITE, Scope.READ), 201), ((Scope.WRITE,), 403)])
async def test_a_token_that_may_not_read_mounts_nothing(
    scopes: tuple[Scope, ...], status: int, app: Application
) -> None:
    data = b"a blob of another repository"
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    writer = bearer(await token_for(app, Scope.WRITE, Scope.READ))
    sent = await ask(app, "POST", f"/spaces/own/v2/team/first/blobs/uploads/?digest={digest}", data, writer)
    assert sent.status == 201
    at = f"/spaces/own/v2/team/second/blobs/uploads/?mount={digest}&from=team%2Ffirst"
    assert (await ask(app, "POST", at, b"", bearer(await token_for(app, *scopes)))).status == status
    blob = await ask(app, "GET", f"/spaces/own/v2/team/second/blobs/{digest}", b"", writer)
    assert blob.status == (200 if status == 201 else 404)
