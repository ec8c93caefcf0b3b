"""A service that asks for tokens, and tokens of every kind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from protoslice.server.access.decision import Grant, Scope
from protoslice.server.access.records import NewToken
from protoslice.server.app import Application, create_app
from protoslice.server.settings import Settings


def closed_service(work: Callable[[Application], Awaitable[None]], **given: Any) -> None:
    """Do `work` with a service over memory that asks for tokens, and has the spaces `own` and `other`."""

    async def run() -> None:
        settings = Settings(**{"storage": "memory://", "space_watermark_bytes": 0, "auth": "tokens", **given})
        app = create_app(settings)
        app.middleware_stack = app.build_middleware_stack()
        await app.services.open()
        try:
            assert app.services.spaces is not None
            for name in ("own", "other"):
                await app.services.spaces.create(name)
            await work(app)
        finally:
            await app.services.close()

    asyncio.run(run())


async def token_for(
    app: Application, *scopes: Scope, space: str = "own", tags: tuple[str, ...] = (), seconds: float | None = None
) -> str:
    """The text of a new token; one that has ended where `seconds` is below zero."""
    expires = None if seconds is None else time.time() + seconds
    token, _ = await app.services.gate.tokens.create(NewToken("t", Grant(space, frozenset(scopes), tags), expires))
    return token.text


def bearer(token: str | None) -> dict[str, str]:
    """The header of a token; no header for None."""
    return {} if token is None else {"authorization": f"Bearer {token}"}
