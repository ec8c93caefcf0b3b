"""Routes for browser sessions: sign-in at the issuer or with a token, sign-out, and sign-in options for clients."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Annotated, Final

from fastapi import Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import Field
from starlette.responses import Response

from protoslice.errors import ProtosliceError, Unsupported
from protoslice.server.api.json_answers import json_answer
from protoslice.server.api.requests import RequestBody
from protoslice.server.auth.authenticator import AuthContext
from protoslice.server.auth.permissions import OPEN
from protoslice.server.auth.signatures import (
    LOGIN,
    SESSION,
    read_cookie,
    session_cookie,
    session_of,
    set_cookie,
)
from protoslice.server.auth.spaces import service_url
from protoslice.server.context import context_of, public_path
from protoslice.server.http.headers import read_fields
from protoslice.server.http.security import is_own_page
from protoslice.server.pages.html import PAGE_HEADERS, page
from protoslice.server.problems import CROSS_SITE, NOT_FOUND, HttpProblem
from protoslice.server.request.clients import Proxy
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Services

router = RouteGroup(tags=["sessions"])

_NO_STORE: Final = {"cache-control": "no-store"}
_CALLBACK: Final = "/session/callback"
_PLACE: Final = re.compile(r"/(?![/\\])[!-\[\]-~]{0,1023}")
"""The pattern of a path on this host. Browsers read `//`, and `\\` instead of `/`, as the start of another host."""


@dataclass(frozen=True, slots=True)
class Session:
    """The session of a browser, and how to sign in."""

    asks: bool
    """True if the service requires tokens."""
    issuer: str | None
    """The URL of the identity provider to sign in with; None if the service accepts only tokens."""
    name: str | None
    """The name of the caller; None without a session."""
    spaces: Sequence[str]
    """The spaces that the caller has access to; `*` for all."""
    scopes: Mapping[str, Sequence[str]]
    """The scopes of the caller in each space that `spaces` lists."""
    expires: datetime | None
    """The time at which the session expires."""
    url: str
    """The URL of the service. Links in its responses begin with this URL."""
    client: str | None
    """The client's address, to which limits per client apply; None if the service does not know the address."""
    proxy: Proxy | None
    """The treatment of the nearest proxy; None if no header names a proxy.

    A `trusted` proxy names the client. A `silent` proxy is trusted but does not name the client. The headers of an
    `untrusted` proxy are ignored.
    """


@dataclass(frozen=True, slots=True)
class SignInOptions:
    """The identity provider to sign in with (RFC 9728), and the public client to use."""

    resource: str
    authorization_servers: Sequence[str]
    bearer_methods_supported: Sequence[str]
    client_id: str
    scopes_supported: Sequence[str]
    """The scopes to request from the identity provider."""


class NewSession(RequestBody):
    """The token or JWT to sign in with."""

    token: str = Field(min_length=1, max_length=16 << 10)


@endpoint(
    router,
    "GET /.well-known/oauth-protected-resource",
    OPEN,
    answer=SignInOptions,
    fails=(404,),
    operation="get_sign_in",
    summary="Get the sign-in options",
)
async def how_to_sign_in(request: Request, services: Services) -> Response:
    """Return the identity provider and the public client to sign in with (RFC 9728)."""
    found = services.state.authenticator.code_flow
    if found is None:
        raise HttpProblem(
            NOT_FOUND, "Sign-in with a browser is not set up: no issuer has a `login_client`. Use a token"
        )
    client = found.issuer.device_client
    if client is None:
        raise HttpProblem(
            NOT_FOUND, "Sign-in from the command line is not set up: the issuer has no `device_client`. Use a token"
        )
    said = SignInOptions(
        resource=service_url(request.scope),
        authorization_servers=[found.issuer.url],
        bearer_methods_supported=["header"],
        client_id=client,
        scopes_supported=found.issuer.login_scopes,
    )
    return json_answer(request, said)


@endpoint(router, "GET /session", OPEN, answer=Session, summary="Get the browser session")
async def get_session(request: Request, services: Services) -> Response:
    """Return the name of the signed-in caller, the end of the session, and how to sign in."""
    fields = read_fields(request.scope)
    found, session = (
        await services.state.authenticator.session_caller(request.scope, fields),
        session_of(request.scope, fields),
    )
    end = session.expires if found is not None and session is not None else None
    return json_answer(request, _facts(request, services, found, end), headers=_NO_STORE)


@endpoint(
    router,
    "POST /session",
    OPEN,
    answer=Session,
    status=201,
    fails=(401,),
    summary="Sign in with a token",
)
async def begin_session(request: Request, services: Services, body: NewSession) -> Response:
    """Start a browser session with a token or a JWT.

    The response sets a cookie. The cookie contains neither the token nor the JWT.
    """
    fields, context = read_fields(request.scope), context_of(request.scope)
    context.changes = True
    # Another site's page could sign the person in as somebody else. Pages of allowed CORS origins may write, but may
    # not begin sessions.
    if not is_own_page("GET" if b"origin" not in fields else "POST", fields):
        raise HttpProblem(CROSS_SITE, CROSS_SITE.advice)
    if not services.state.authenticator.closed:
        raise Unsupported("This service is open: there is nothing to sign in to")
    context.auth = auth = await services.state.authenticator.sign_in(body.token)
    cookie, end = session_cookie(request.scope, fields, await auth.signer())
    headers = {**_NO_STORE, "set-cookie": cookie}
    return json_answer(request, _facts(request, services, auth, end), status=201, headers=headers)


@endpoint(router, "DELETE /session", OPEN, status=204, summary="Sign out")
async def end_session(request: Request, services: Services) -> Response:
    """Sign out. Remove the cookie, and clear the browser's cache of this service."""
    context = context_of(request.scope)
    context.changes = True
    context.auth = await services.state.authenticator.session_caller(request.scope, read_fields(request.scope))
    headers = {"set-cookie": set_cookie(request.scope, SESSION, "", 0, "Strict"), "clear-site-data": '"cache"'}
    return Response(status_code=204, headers={**_NO_STORE, **headers})


@endpoint(router, "GET /session/login", OPEN, include_in_schema=False)
async def begin_sign_in(
    request: Request, services: Services, following: Annotated[str, Query(alias="next", max_length=1024)] = ""
) -> Response:
    """Redirect the person to the issuer."""
    found, key = services.state.authenticator.code_flow, services.state.authenticator.key
    if found is None or key is None:
        raise HttpProblem(NOT_FOUND, "No issuer has a `login_client`: sign in with a token")
    place = following if _PLACE.fullmatch(following) else f"{public_path(request.scope)}/"
    try:
        address, kept = await found.begin(await key.get(), f"{service_url(request.scope)}{_CALLBACK}", place)
    except ProtosliceError:
        return _failed(request, "The identity provider cannot be reached", 502)
    answer = RedirectResponse(address, 303, _NO_STORE)
    # Lax, because the issuer answers with a link from another site. Browsers send no Strict cookies with such a link.
    answer.headers.append("set-cookie", set_cookie(request.scope, LOGIN, kept, 600, "Lax"))
    return answer


@endpoint(router, f"GET {_CALLBACK}", OPEN, include_in_schema=False, any_query=True)
async def end_sign_in(request: Request, services: Services) -> Response:
    """Process the issuer's response, begin a session, and redirect to the page that the sign-in started from."""
    found, key, context = (
        services.state.authenticator.code_flow,
        services.state.authenticator.key,
        context_of(request.scope),
    )
    context.changes = True
    if found is None or key is None:
        raise HttpProblem(NOT_FOUND, "No issuer has a `login_client`: sign in with a token")
    from protoslice.server.auth.oidc.sign_in import SignInFailed

    fields, callback = read_fields(request.scope), f"{service_url(request.scope)}{_CALLBACK}"
    try:
        kept = read_cookie(request.scope, fields, LOGIN)
        token, begun = await found.finish(await key.all(), callback, kept, request.query_params)
        context.auth = auth = await services.state.authenticator.sign_in(
            token, lambda claims: found.check(begun, claims)
        )
        signer = await auth.signer()
    except SignInFailed as error:
        return _failed(request, str(error), 400)
    except HttpProblem:
        return _failed(request, "The service does not accept the id token of the identity provider", 400)
    except ProtosliceError as error:
        return _failed(request, error.message, 400)
    answer = RedirectResponse(begun.following, 303, _NO_STORE)
    answer.headers.append("set-cookie", set_cookie(request.scope, LOGIN, "", 0, "Lax"))
    answer.headers.append("set-cookie", session_cookie(request.scope, fields, signer)[0])
    return answer


def _failed(request: Request, why: str, status: int) -> Response:
    """Return the page about a failed sign-in, and remove the cookie with the state of the sign-in."""
    body = f'<main class="plain"><h1>Not signed in</h1><p class="lead">{escape(why)}.</p>'
    body += f'<ul class="links"><li><a href="{public_path(request.scope)}/">Try again</a></li></ul></main>'
    answer = HTMLResponse(page("Not signed in — Protoslice", body), status, {**PAGE_HEADERS, **_NO_STORE})
    answer.headers.append("set-cookie", set_cookie(request.scope, LOGIN, "", 0, "Lax"))
    return answer


def _facts(request: Request, services: Services, auth: AuthContext | None, end: float | None) -> Session:
    peer = None if request.client is None else request.client.host
    found, scopes = services.state.authenticator.code_flow, dict[str, set[str]]()
    for grant in () if auth is None or auth.principal is None else auth.principal.grants:
        scopes.setdefault(grant.space, set()).update(grant.scopes)
    return Session(
        asks=services.state.authenticator.closed,
        issuer=None if found is None else found.issuer.url,
        name=None if auth is None else auth.name,
        spaces=sorted(scopes),
        scopes={space: sorted(each) for space, each in sorted(scopes.items())},
        expires=None if end is None else datetime.fromtimestamp(min(end, time.time() + 1e9), UTC),
        url=service_url(request.scope),
        client=context_of(request.scope).client,
        proxy=services.state.clients.proxy(peer, request.scope["headers"]),
    )
