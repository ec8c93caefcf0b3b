"""Routes that create, list and revoke tokens, and that sign URLs."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from protoslice.errors import InvalidInput, Unsupported
from protoslice.facts import AccessToken, SignedUrl
from protoslice.server.api.encoding import encode_items
from protoslice.server.api.json_answers import Cursor, Limit, json_answer, page_answer
from protoslice.server.api.models import PageOf
from protoslice.server.api.requests import CreateToken, SignUrl
from protoslice.server.auth.permissions import ADMIN, EVERY_SPACE, READ, Scope
from protoslice.server.auth.spaces import service_url, space_of, url_of
from protoslice.server.auth.tokens import TokenRecord
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Services

router = RouteGroup(tags=["tokens"])

_NO_STORE = {"cache-control": "no-store"}
Everywhere = Annotated[bool, Query(description="Tokens for all spaces; needs an admin token for all spaces.")]


@endpoint(
    router,
    "POST /v1/tokens",
    ADMIN,
    answer=AccessToken,
    status=201,
    summary="Create a token",
)
async def create_token(request: Request, services: Services, body: CreateToken) -> Response:
    """Create a token for the space in the URL, or for all spaces. Only the token's hash is stored."""
    space = _where(request, services, body.every_space)
    expires = None if body.expires_seconds is None else time.time() + body.expires_seconds
    token, record = await services.state.authenticator.tokens.create(
        body.name, space, body.scopes, tags=tuple(body.tags), expires=expires
    )
    return json_answer(request, _fact(record, token.text), status=201, headers=_NO_STORE)


@endpoint(
    router,
    "GET /v1/tokens",
    ADMIN,
    answer=PageOf[AccessToken],
    cached=True,
    summary="List tokens",
)
async def list_tokens(
    request: Request,
    services: Services,
    cursor: Cursor,
    every_space: Everywhere = False,
    limit: Limit = 100,
) -> Response:
    """List the tokens of the space in the URL, or the tokens for all spaces.

    Secrets are not stored, so the list does not contain any.
    """
    space = _where(request, services, every_space)
    page = await services.state.authenticator.tokens.page(space, limit, cursor)
    return page_answer(request, page, encode_items(map(_fact, page.items)))


@endpoint(router, "DELETE /v1/tokens/{id}", ADMIN, status=204, summary="Revoke a token")
async def revoke_token(request: Request, services: Services, id: str, every_space: Everywhere = False) -> Response:
    """Revoke a token. All replicas refuse it within ten seconds."""
    await services.state.authenticator.tokens.revoke(id, _where(request, services, every_space))
    return Response(status_code=204)


@endpoint(router, "POST /v1/sign", READ, answer=SignedUrl, status=201, summary="Sign a URL")
async def sign_url(request: Request, services: Services, body: SignUrl) -> Response:
    """Create a URL that lets anyone read `path` as the caller can, until the URL or the caller's token expires."""
    if services.auth.principal is None:
        raise Unsupported("This service is open: its URLs need no signature")
    path = body.path.removeprefix(url_of(request.scope, ""))
    if not path.startswith("/v1/stores/"):
        raise InvalidInput("Invalid `path`: use a path of this space that starts with /v1/stores/")
    signer = await services.auth.signer()
    wanted = time.time() + body.expires_seconds
    signed, end = signer.sign("GET", request.scope["root_path"] + path, wanted)
    url = service_url(request.scope) + signed
    return json_answer(request, SignedUrl(url, datetime.fromtimestamp(end, UTC)), status=201, headers=_NO_STORE)


def _where(request: Request, services: Services, every_space: bool) -> str:
    if every_space:
        services.auth.require(Scope.ADMIN, EVERY_SPACE)
    return EVERY_SPACE if every_space else space_of(request.scope)


def _fact(record: TokenRecord, token: str = "") -> AccessToken:
    return AccessToken(
        id=record.id,
        name=record.name,
        space=record.grant.space,
        scopes=tuple(sorted(record.grant.scopes)),
        tags=tuple(record.grant.tags),
        created=record.created,
        used=record.used,
        expires=record.expires,
        token=token,
    )
