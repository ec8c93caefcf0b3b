"""Addresses that the hub's clients print, which lead to the page of the model in a browser."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from protoslice.repositories import MAIN
from protoslice.repositories.names import check_repository
from protoslice.server.access.places import url_of
from protoslice.server.access.rules import OPEN
from protoslice.server.api.endpoints import endpoint
from protoslice.server.middleware.guarded_route import GuardedRouter
from protoslice.server.registries.hub.failures import HubRoute, answering
from protoslice.server.registries.hub.paths import Encoded

router = GuardedRouter(route_class=HubRoute, include_in_schema=False)


@endpoint(router, "GET /{name:owned}/tree/{revision}", OPEN)
@endpoint(router, "GET /{name:owned}/tree/{revision}/{path:path}", OPEN)
@endpoint(router, "GET /{name:owned}/blob/{revision}/{path:path}", OPEN)
@endpoint(router, "GET /{name:owned}/commit/{revision}", OPEN)
@endpoint(router, "GET /{name:owned}", OPEN)
@answering
async def show(request: Request, name: Encoded, revision: Encoded = MAIN) -> Response:
    """Redirect to the page of a repository at a revision; reads nothing, so it tells nothing to strangers."""
    shown = quote(f"{check_repository(name)}@{revision}", safe="")
    return RedirectResponse(url_of(request.scope, f"/m/{shown}"), 302)
