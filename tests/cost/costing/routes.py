"""The routes of the application."""

from __future__ import annotations

from protoslice.server.app import Application
from protoslice.server.routing import routes_of


def routes(app: Application) -> set[str]:
    """Methods and path templates of all routes. HEAD goes the way of GET, and has no rows of its own."""
    return {row for row, _ in routes_of(app.router.routes)}
