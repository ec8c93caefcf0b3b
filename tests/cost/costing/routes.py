"""The routes of the application, and its views."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protoslice.server.api.views import VIEWS
from protoslice.server.app import Application


def routes(app: Application) -> set[str]:
    """Methods and path templates of all routes. HEAD goes the way of GET, and has no rows of its own."""
    found = {f"{method} {route.path}" for route in _each(app.router.routes) for method in route.methods - {"HEAD"}}
    return found | {f"GET {view.path}" for view in VIEWS}


def _each(found: list[Any]) -> Iterator[Any]:
    for route in found:
        included = getattr(route, "original_router", None)
        if included is None:
            yield route
        else:
            yield from _each(included.routes)
