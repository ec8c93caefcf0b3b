"""Webhooks: putting, listing and removing them, their undelivered events, and delivering those again."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from protoslice.catalog.webhooks import Delivery, Webhook
from protoslice.database.transactions import time_of
from protoslice.facts import EventLetter, Redelivered, WebhookFacts
from protoslice.server.api.encoding import encode_items
from protoslice.server.api.endpoints import Condition, Current, conditional, endpoint
from protoslice.server.api.json_answers import Cursor, json_answer, page_answer
from protoslice.server.api.models import PageOf
from protoslice.server.api.request_bodies import PutWebhook
from protoslice.server.auth.places import space_of
from protoslice.server.auth.rules import ADMIN
from protoslice.server.http.conditions import EntityTag
from protoslice.server.request.guarded_route import GuardedRouter
from protoslice.server.services import Given, Services
from protoslice.stores import ResultPage
from protoslice.webhooks.webhooks import NewWebhook

router = GuardedRouter(tags=["webhooks"])

_NO_STORE = {"cache-control": "no-store"}
_DAMAGED = "protoslice.damaged"
"""Type that is shown for an event whose row is damaged."""


@endpoint(
    router,
    "GET /v1/webhooks",
    ADMIN,
    answer=PageOf[WebhookFacts],
    fails=(401, 403, 404, 422),
    cached=True,
    summary="List webhooks",
)
async def list_webhooks(request: Request, services: Given) -> Response:
    """List the webhooks of the space, sorted by name. Secrets are not shown."""
    hooks = await services.webhooks.of(space_of(request.scope))
    return page_answer(request, ResultPage(hooks), encode_items(map(_fact, hooks)))


async def _current(request: Request, services: Services) -> Current:
    hook = await services.webhooks.get(space_of(request.scope), request.path_params["name"])
    return Current(_etag(hook), hook.secret)


Unchanged = Annotated[Condition, conditional(_current)]


@endpoint(
    router,
    "GET /v1/webhooks/{name}",
    ADMIN,
    answer=WebhookFacts,
    fails=(401, 403, 404, 422),
    cached=True,
    summary="Get a webhook",
)
async def get_webhook(request: Request, services: Given, name: str) -> Response:
    """Return a webhook without its secret. Its entity tag changes whenever it is put."""
    hook = await services.webhooks.get(space_of(request.scope), name)
    return json_answer(request, _fact(hook), etag=_etag(hook))


@endpoint(
    router,
    "PUT /v1/webhooks/{name}",
    ADMIN,
    answer=WebhookFacts,
    fails=(401, 403, 404, 413, 422, 507),
    responses={201: {"model": WebhookFacts}},
    summary="Create or replace a webhook",
)
async def put_webhook(request: Request, services: Given, name: str, body: PutWebhook, condition: Unchanged) -> Response:
    """Create or replace a webhook.

    The response has a new secret, which is only returned once.
    """
    wanted = NewWebhook(name, body.url, tuple(body.events))
    hook, created = await services.webhooks.put(
        space_of(request.scope), wanted, if_match=condition.version, if_none_match=condition.absent
    )
    return json_answer(
        request,
        _fact(hook, hook.secret_text),
        status=201 if created else 200,
        headers=_NO_STORE,
        etag=_etag(hook),
    )


@endpoint(
    router, "DELETE /v1/webhooks/{name}", ADMIN, status=204, fails=(401, 403, 404, 422), summary="Remove a webhook"
)
async def remove_webhook(request: Request, services: Given, name: str, condition: Unchanged) -> Response:
    """Remove a webhook and its undelivered events."""
    await services.webhooks.remove(space_of(request.scope), name, if_match=condition.version)
    return Response(status_code=204)


@endpoint(
    router,
    "GET /v1/webhooks/{name}/letters",
    ADMIN,
    answer=PageOf[EventLetter],
    fails=(401, 403, 404, 422),
    cached=True,
    experimental=True,
    summary="List undelivered events of a webhook",
)
async def list_letters(
    request: Request,
    services: Given,
    cursor: Cursor,
    name: str,
    dead: Annotated[bool, Query(description="List events that failed permanently, instead of pending ones.")] = False,
    limit: Annotated[int, Query(ge=1, description="Maximum number of events.")] = 100,
) -> Response:
    """List the events not yet delivered to a webhook, oldest first."""
    most = min(limit, services.settings.max_page_items)
    hook = await services.webhooks.get(space_of(request.scope), name)
    page = await services.webhooks.deliveries(hook, dead=dead, limit=most, cursor=cursor)
    return page_answer(request, page, encode_items(map(_undelivered, page.items)))


@endpoint(
    router,
    "POST /v1/webhooks/{name}/redeliver",
    ADMIN,
    answer=Redelivered,
    status=202,
    fails=(401, 403, 404, 422),
    experimental=True,
    summary="Deliver failed events again",
)
async def redeliver_letters(request: Request, services: Given, name: str) -> Response:
    """Deliver the failed events of a webhook again."""
    count = await services.webhooks.redeliver(space_of(request.scope), name)
    return json_answer(request, Redelivered(count), status=202, headers=_NO_STORE)


def _etag(hook: Webhook) -> EntityTag:
    """Return the entity tag: a digest of the secret, which each change replaces. It does not reveal the secret."""
    return EntityTag(hashlib.sha256(hook.secret).hexdigest())


def _fact(hook: Webhook, secret: str = "") -> WebhookFacts:
    return WebhookFacts(hook.name, hook.url, tuple(hook.events), _time(hook.created), secret)


def _undelivered(delivery: Delivery) -> EventLetter:
    kind, subject = _DAMAGED, ""
    with suppress(ValueError, RecursionError, KeyError, TypeError):
        event = json.loads(delivery.event)
        kind, subject = str(event["type"]), str(event["subject"])
    return EventLetter(delivery.id, kind, subject, time_of(delivery.written), delivery.attempts, delivery.error)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
