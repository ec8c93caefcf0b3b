"""Routes of the hub that manage repositories: access, names, settings and history."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from protoslice.errors import Unsupported
from protoslice.repositories import Author
from protoslice.server.auth.permissions import HUB_WRITE, READ, Rule, Scope, from_body, from_repository
from protoslice.server.http.responses import JsonAnswer
from protoslice.server.registries.hub.bodies import MoveBody, SquashBody, VisibilityBody
from protoslice.server.registries.hub.failures import render_hub
from protoslice.server.registries.hub.paths import Encoded, repository_of
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Given

router = RouteGroup(render=render_hub, strict=False, include_in_schema=False)


@endpoint(router, "GET /api/{kind}/{name:repository}/auth-check", READ)
async def check_read(services: Given, kind: str, name: str) -> Response:
    """Answer if the caller may read a repository."""
    await services.repositories.find(repository_of(kind, name))
    return JsonAnswer({})


@endpoint(router, "GET /api/{kind}/{name:repository}/auth-check/write", HUB_WRITE)
async def check_write(services: Given, kind: str, name: str) -> Response:
    """Answer if the caller may write to a repository."""
    await services.repositories.get(repository_of(kind, name))
    return JsonAnswer({})


@endpoint(
    router,
    "POST /api/{kind}/{name:repository}/super-squash/{branch}",
    Rule(Scope.DELETE, tags=from_repository, reads=True),
)
async def squash_branch(services: Given, kind: str, name: str, branch: Encoded, body: SquashBody) -> Response:
    """Make the files of a branch its only commit; earlier commits go, unless another branch or tag leads to them."""
    repository = await services.repositories.get(repository_of(kind, name))
    made = await repository.squash(branch, Author(body.message or f"Squash {branch!r}"))
    return JsonAnswer({"commitOid": made.id})


@endpoint(router, "POST /api/repos/move", Rule(Scope.DELETE, tags=from_body))
async def move_repository(services: Given, body: MoveBody) -> Response:
    """Rename a repository; its old name leads to it until another one takes that."""
    body.check(closed=services.authenticator.closed)
    services.auth.require(Scope.DELETE, tags=[body.fromRepo])
    services.auth.require(Scope.WRITE, tags=[body.toRepo])
    kind = f"{body.type or 'model'}s"
    await services.repositories.rename(repository_of(kind, body.fromRepo), repository_of(kind, body.toRepo))
    return JsonAnswer({})


@endpoint(router, "PUT /api/{kind}/{name:repository}/settings", HUB_WRITE)
async def change_settings(services: Given, kind: str, name: str, body: VisibilityBody) -> Response:
    """Accept the settings that every repository has."""
    await services.repositories.get(repository_of(kind, name))
    body.check(closed=services.authenticator.closed)
    return JsonAnswer({"private": services.authenticator.closed, "gated": False})


@endpoint(router, "GET /api/{kind}/{name:repository}/compare/{revisions:path}", READ)
async def compare(request: Request, kind: str, name: str, revisions: str) -> Response:
    """Refuse a comparison of texts."""
    raise Unsupported("Text diffs are not supported: use GET /v1/stores/NAME@NEW/diff?before=NAME@OLD")
