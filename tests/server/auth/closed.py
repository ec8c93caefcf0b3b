"""A service that requires tokens, and tokens of every kind."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.serve import open_app

from protoslice.server.app import Application
from protoslice.server.auth.permissions import Scope


@asynccontextmanager
async def closed_service(**given: Any) -> AsyncIterator[Application]:
    """Open a service over memory that requires tokens, and has the spaces `own` and `other`."""
    async with open_app(auth="tokens", **given) as app:
        assert app.services.spaces is not None
        for name in ("own", "other"):
            await app.services.spaces.create(name)
        yield app


async def token_for(
    app: Application, *scopes: Scope, space: str = "own", tags: tuple[str, ...] = (), seconds: float | None = None
) -> str:
    """Return the text of a new token; it has expired if `seconds` is below zero."""
    expires = None if seconds is None else time.time() + seconds
    token, _ = await app.services.authenticator.tokens.create("t", space, scopes, tags=tags, expires=expires)
    return token.text


def bearer(token: str | None) -> dict[str, str]:
    """Return the header of a token; no header for None."""
    return {} if token is None else {"authorization": f"Bearer {token}"}
