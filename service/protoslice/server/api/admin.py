"""Routes that administer spaces and webhooks, and that list audited changes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import Query, Request
from starlette.responses import Response

from protoslice.catalog.audit import EVERY_SPACE, AuditQuery, AuditRow, AuditTable, Place
from protoslice.catalog.paging import MAX_PAGE_ITEMS
from protoslice.catalog.spaces import Quota, SpaceRow
from protoslice.catalog.syntax import is_id, is_id_prefix
from protoslice.catalog.webhooks import Delivery, Webhook
from protoslice.database.transactions import time_of
from protoslice.errors import InvalidInput, NotFound
from protoslice.facts import AuditEntry, EventLetter, Redelivered, Space, WebhookFacts
from protoslice.server.api.encoding import encode_fact, encode_items
from protoslice.server.api.json_answers import (
    Condition,
    Current,
    Cursor,
    Limit,
    Since,
    Until,
    conditional,
    etag_of,
    json_answer,
    microseconds_of,
    page_answer,
)
from protoslice.server.api.models import PageOf
from protoslice.server.api.requests import ChangeSpace, PutSpace, PutWebhook
from protoslice.server.auth.permissions import ADMIN, Rule, Scope
from protoslice.server.auth.spaces import space_of
from protoslice.server.http.conditions import EntityTag
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Services
from protoslice.stores import ResultPage
from protoslice.stores.service import Spaces
from protoslice.webhooks import NewWebhook

spaces_router = RouteGroup(tags=["spaces"])


@endpoint(
    spaces_router,
    "GET /v1/spaces",
    Rule(Scope.READ, everywhere=True),
    answer=PageOf[Space],
    cached=True,
    summary="List spaces",
)
async def list_spaces(
    request: Request,
    services: Services,
    cursor: Cursor,
    limit: Limit = 100,
) -> Response:
    """List spaces with their usage and quotas. The default space comes first."""
    spaces = _spaces(services)
    page = await spaces.page(limit=min(limit, _MOST_SPACES), cursor=cursor)
    items = await asyncio.to_thread(lambda: encode_items(map(_space_fact, page.items)))
    return page_answer(request, page, items)


async def _current_space(request: Request, services: Services) -> Current:
    usage = await _spaces(services).usage(request.path_params["space"])
    return Current(etag_of(encode_fact(_space_fact(usage))), usage.version)


UnchangedSpace = Annotated[Condition, conditional(_current_space)]


@endpoint(
    spaces_router,
    "GET /v1/spaces/{space}",
    Rule(Scope.READ, everywhere=True),
    answer=Space,
    cached=True,
    summary="Get a space",
)
async def get_space(request: Request, services: Services, space: str) -> Response:
    """Return a space with its usage and quota. The entity tag changes with the usage and the quota."""
    return json_answer(request, _space_fact(await _spaces(services).usage(space)))


@endpoint(
    spaces_router,
    "PUT /v1/spaces/{space}",
    Rule(Scope.ADMIN, everywhere=True),
    answer=Space,
    responses={
        200: {"description": "The space already existed."},
        201: {"description": "The space was created.", "model": Space},
    },
    summary="Create a space, or set its quota",
)
async def create_space(
    request: Request, services: Services, space: str, condition: UnchangedSpace, body: PutSpace | None = None
) -> Response:
    """Create a space. Its stores, tags and schemas are invisible to other spaces.

    A body sets the quota of the new or existing space. Without a body, the quota is unchanged.
    """
    spaces = _spaces(services)
    quota = (
        None
        if body is None
        else Quota(
            stored_bytes=body.quota_bytes,
            stores=body.quota_stores,
            open_uploads=body.quota_open_uploads,
            requests=body.quota_requests,
        )
    )
    created = await spaces.create(space, quota, if_match=condition.version, if_none_match=condition.absent)
    return json_answer(request, _space_fact(await spaces.usage(space)), status=201 if created else 200)


@endpoint(
    spaces_router,
    "PATCH /v1/spaces/{space}",
    Rule(Scope.ADMIN, everywhere=True),
    answer=Space,
    summary="Change the quota of a space",
)
async def change_space(
    request: Request, services: Services, space: str, body: ChangeSpace, condition: UnchangedSpace
) -> Response:
    """Change some limits of a space in one step. The other limits are unchanged."""
    spaces = _spaces(services)
    await spaces.change_limits(space, body.model_dump(exclude_unset=True), if_match=condition.version)
    return json_answer(request, _space_fact(await spaces.usage(space)))


@endpoint(
    spaces_router,
    "DELETE /v1/spaces/{space}",
    Rule(Scope.ADMIN, everywhere=True),
    status=204,
    fails=(409,),
    summary="Remove a space",
)
async def remove_space(
    services: Services,
    space: str,
    condition: UnchangedSpace,
    with_stores: Annotated[bool, Query(description="Remove all stores and names in it too.")] = False,
) -> Response:
    """Remove a space. The space must be empty, unless the request also removes its stores.

    Afterwards, nothing in the space can be read or changed. An empty space is deleted within a minute. A space with
    stores is deleted after a day, and an operator can restore the space until then. The space's name becomes free when
    the space is deleted.
    """
    await _spaces(services).remove(space, with_stores=with_stores, if_match=condition.version)
    return Response(status_code=204)


_MOST_SPACES = 100
"""The maximum number of spaces in a page."""


def _space_fact(usage: SpaceRow) -> Space:
    quota, used = usage.quota, usage.held
    return Space(
        name=usage.name,
        stored_bytes=used.stored_bytes,
        stores=used.stores,
        quota_bytes=quota.stored_bytes or 0,
        quota_stores=quota.stores or 0,
        quota_open_uploads=quota.open_uploads or 0,
        quota_requests=quota.requests or 0,
    )


def _spaces(services: Services) -> Spaces:
    if services.state.spaces is None:
        raise NotFound("The service is starting or shutting down")
    return services.state.spaces


audit_router = RouteGroup(tags=["audit"])

_CURSOR: Final = re.compile(r"([0-9a-f]{1,15})-([0-9a-f]{32})-([0-9a-f]{1,15})")


@endpoint(
    audit_router,
    "GET /v1/audit",
    ADMIN,
    answer=PageOf[AuditEntry],
    cached=True,
    summary="List changes",
)
async def list_changes(  # noqa: PLR0913 - each is a parameter of the query
    request: Request,
    services: Services,
    cursor: Cursor,
    who: Annotated[str | None, Query(description="Only changes by this token or account.", examples=["ci"])] = None,
    what: Annotated[str | None, Query(description="Only changes of this kind.", examples=["store.removed"])] = None,
    subject: Annotated[
        str | None,
        Query(description="Only changes of the store with this id (or its beginning), or of this name."),
    ] = None,
    since: Since = None,
    until: Until = None,
    every_space: Annotated[
        bool,
        Query(description="Changes that concern all spaces, instead of one; needs an admin token for all spaces."),
    ] = False,
    limit: Limit = 100,
) -> Response:
    """List changes of the space in the URL, newest first, with the token or account that made each change.

    A page may be short or empty even if it has a `next`. Records of changes are kept for `PROTOSLICE_AUDIT_SECONDS`.
    """
    if every_space:
        services.auth.require(Scope.ADMIN, EVERY_SPACE)
    if subject is not None and is_id_prefix(subject) and not is_id(subject):
        with suppress(NotFound):
            subject = await services.stores.manifests.whole_id(subject)
    table = AuditTable(services.stores.database, EVERY_SPACE if every_space else space_of(request.scope))
    query = AuditQuery(who=who, what=what, subject=subject, since=microseconds_of(since), until=microseconds_of(until))
    rows, rest = await table.page(query, limit=limit, after=None if cursor is None else _place(cursor))
    page = ResultPage(rows, None if rest is None else f"{rest[0]:x}-{rest[1].hex()}-{rest[2]:x}")
    items = await asyncio.to_thread(lambda: encode_items(map(_audit_fact, rows)))
    return page_answer(request, page, items)


def _place(cursor: str) -> Place:
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise InvalidInput("the cursor is not one that this service returned")
    return int(match[1], 16), bytes.fromhex(match[2]), int(match[3], 16)


def _audit_fact(row: AuditRow) -> AuditEntry:
    who = row.who
    return AuditEntry(time_of(row.at), who.name, row.what, row.subject, dict(row.detail), row.change.hex(), who.id)


webhooks_router = RouteGroup(tags=["webhooks"])

_NO_STORE = {"cache-control": "no-store"}
_DAMAGED = "protoslice.damaged"
"""The event type that is shown if the database row of an event is damaged."""


@endpoint(
    webhooks_router,
    "GET /v1/webhooks",
    ADMIN,
    answer=PageOf[WebhookFacts],
    fails=(422,),
    cached=True,
    summary="List webhooks",
)
async def list_webhooks(request: Request, services: Services) -> Response:
    """List the webhooks of the space, sorted by name. Secrets are not shown."""
    hooks = await services.state.webhooks.of(space_of(request.scope))
    return page_answer(request, ResultPage(hooks), encode_items(map(_webhook_fact, hooks)))


async def _current_webhook(request: Request, services: Services) -> Current:
    hook = await services.state.webhooks.get(space_of(request.scope), request.path_params["name"])
    return Current(_webhook_etag(hook), hook.secret)


UnchangedWebhook = Annotated[Condition, conditional(_current_webhook)]


@endpoint(
    webhooks_router,
    "GET /v1/webhooks/{name}",
    ADMIN,
    answer=WebhookFacts,
    cached=True,
    summary="Get a webhook",
)
async def get_webhook(request: Request, services: Services, name: str) -> Response:
    """Return a webhook without its secret. The entity tag changes with each `PUT`."""
    hook = await services.state.webhooks.get(space_of(request.scope), name)
    return json_answer(request, _webhook_fact(hook), etag=_webhook_etag(hook))


@endpoint(
    webhooks_router,
    "PUT /v1/webhooks/{name}",
    ADMIN,
    answer=WebhookFacts,
    responses={201: {"model": WebhookFacts}},
    summary="Create or replace a webhook",
)
async def put_webhook(
    request: Request, services: Services, name: str, body: PutWebhook, condition: UnchangedWebhook
) -> Response:
    """Create or replace a webhook.

    The response has a new secret. No later response shows this secret again.
    """
    wanted = NewWebhook(name, body.url, tuple(body.events))
    hook, created = await services.state.webhooks.put(
        space_of(request.scope), wanted, if_match=condition.version, if_none_match=condition.absent
    )
    return json_answer(
        request,
        _webhook_fact(hook, hook.secret_text),
        status=201 if created else 200,
        headers=_NO_STORE,
        etag=_webhook_etag(hook),
    )


@endpoint(
    webhooks_router,
    "DELETE /v1/webhooks/{name}",
    ADMIN,
    status=204,
    summary="Remove a webhook",
)
async def remove_webhook(request: Request, services: Services, name: str, condition: UnchangedWebhook) -> Response:
    """Remove a webhook and its undelivered events."""
    await services.state.webhooks.remove(space_of(request.scope), name, if_match=condition.version)
    return Response(status_code=204)


@endpoint(
    webhooks_router,
    "GET /v1/webhooks/{name}/letters",
    ADMIN,
    answer=PageOf[EventLetter],
    cached=True,
    experimental=True,
    summary="List undelivered events of a webhook",
)
async def list_letters(
    request: Request,
    services: Services,
    cursor: Cursor,
    name: str,
    dead: Annotated[bool, Query(description="List events that failed permanently, instead of pending ones.")] = False,
    limit: Annotated[int, Query(ge=1, description="Maximum number of events.")] = 100,
) -> Response:
    """List the events that a webhook has not received yet, oldest first."""
    most = min(limit, MAX_PAGE_ITEMS)
    hook = await services.state.webhooks.get(space_of(request.scope), name)
    page = await services.state.webhooks.deliveries(hook, dead=dead, limit=most, cursor=cursor)
    return page_answer(request, page, encode_items(map(_undelivered, page.items)))


@endpoint(
    webhooks_router,
    "POST /v1/webhooks/{name}/redeliver",
    ADMIN,
    answer=Redelivered,
    status=202,
    experimental=True,
    summary="Deliver failed events again",
)
async def redeliver_letters(request: Request, services: Services, name: str) -> Response:
    """Deliver again all events whose delivery to a webhook failed permanently."""
    count = await services.state.webhooks.redeliver(space_of(request.scope), name)
    return json_answer(request, Redelivered(count), status=202, headers=_NO_STORE)


def _webhook_etag(hook: Webhook) -> EntityTag:
    """Return the webhook's entity tag, which is a digest of its secret.

    Each change of the webhook replaces the secret. The entity tag does not reveal the secret.
    """
    return EntityTag(hashlib.sha256(hook.secret).hexdigest())


def _webhook_fact(hook: Webhook, secret: str = "") -> WebhookFacts:
    return WebhookFacts(hook.name, hook.url, tuple(hook.events), _time(hook.created), secret)


def _undelivered(delivery: Delivery) -> EventLetter:
    kind, subject = _DAMAGED, ""
    with suppress(ValueError, RecursionError, KeyError, TypeError):
        event = json.loads(delivery.event)
        kind, subject = str(event["type"]), str(event["subject"])
    return EventLetter(delivery.id, kind, subject, time_of(delivery.written), delivery.attempts, delivery.error)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
