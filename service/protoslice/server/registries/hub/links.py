"""Addresses that the hub's clients print, which lead to the page of the model in a browser."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from protoslice.catalog.syntax import check_repository
from protoslice.repositories import MAIN
from protoslice.server.auth.permissions import OPEN
from protoslice.server.auth.places import url_of
from protoslice.server.http.headers import read_fields
from protoslice.server.problems import NO_RESOURCE, HttpProblem
from protoslice.server.registries.hub.failures import render_hub
from protoslice.server.registries.hub.paths import Encoded
from protoslice.server.routing import RouteGroup, endpoint

_VERSION: Final = re.compile(r"v[0-9]+/")
"""Beginning of a path of another version of the API."""

router = RouteGroup(render=render_hub, strict=False, include_in_schema=False)


@endpoint(router, "GET /{name:owned}/tree/{revision}", OPEN)
@endpoint(router, "GET /{name:owned}/tree/{revision}/{path:path}", OPEN)
@endpoint(router, "GET /{name:owned}/blob/{revision}/{path:path}", OPEN)
@endpoint(router, "GET /{name:owned}/commit/{revision}", OPEN)
@endpoint(router, "GET /{name:owned}", OPEN)
async def show(request: Request, name: Encoded, revision: Encoded = MAIN) -> Response:
    """Redirect a browser to the page of a repository at a revision, without reading anything."""
    fields = read_fields(request.scope)
    if _VERSION.match(name) or "html" not in fields.get(b"accept", "").lower():
        raise HttpProblem(NO_RESOURCE, f"{NO_RESOURCE.advice} Pages of repositories are for browsers.")
    shown = quote(f"{check_repository(name)}@{revision}", safe="")
    return RedirectResponse(url_of(request.scope, f"/m/{shown}"), 302, {"vary": "accept"})
