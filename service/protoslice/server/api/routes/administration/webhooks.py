"""Webhooks: putting, listing and removing them, their letters, and delivering those again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from protoslice.catalog.letters import Letter
from protoslice.catalog.webhooks import Webhook
from protoslice.server.access.places import space_of
from protoslice.server.api.documentation.openapi_fragments import SEEN, problems
from protoslice.server.api.encoding import format_time
from protoslice.server.api.json_answers import Cursor, json_answer, page_answer
from protoslice.server.api.models import PageModel
from protoslice.server.api.request_bodies import PutWebhook
from protoslice.server.middleware.guarded_route import GuardedRouter
from protoslice.server.services import Given
from protoslice.stores import ResultPage
from protoslice.webhooks.model import NewWebhook

router = GuardedRouter(tags=["webhooks"])

_NO_STORE = {"cache-control": "no-store"}


class WebhookModel(BaseModel):
    """A webhook, without its secret."""

    name: str
    url: str
    events: list[str] = Field(description="Events that it gets; none: all.")
    created: str


class NewWebhookModel(WebhookModel):
    """A new webhook; its secret is only returned once."""

    secret: str = Field(description="`whsec_` and base64: the HMAC key for `webhook-signature`.")


class LetterModel(BaseModel):
    """An event that was not delivered to a webhook."""

    id: str
    type: str
    subject: str
    written: str
    attempts: int
    error: str = Field(description="Reason of the last failure; empty before the first attempt.")


class RedeliveredModel(BaseModel):
    """Number of failed events that will be delivered again."""

    letters: int


@router.get(
    "/v1/webhooks",
    operation_id="list_webhooks",
    response_model=PageModel[WebhookModel],
    responses={304: SEEN, **problems(401, 403, 404, 412, 422)},
    summary="List webhooks",
)
async def list_webhooks(request: Request, services: Given) -> Response:
    """List the webhooks of the space by name.

    Secrets are not shown.
    """
    hooks = await services.webhooks.of(space_of(request.scope))
    return page_answer(request, ResultPage(hooks), [_as_json(hook) for hook in hooks])


@router.put(
    "/v1/webhooks/{name}",
    operation_id="put_webhook",
    response_model=NewWebhookModel,
    responses={201: {"model": NewWebhookModel}, **problems(401, 403, 404, 413, 422, 507)},
    summary="Create or replace a webhook",
)
async def put_webhook(request: Request, services: Given, name: str, body: PutWebhook) -> Response:
    """Create or replace a webhook.

    The response has a new secret, which is only returned once.
    """
    wanted = NewWebhook(name, body.url, tuple(body.events))
    hook, created = await services.webhooks.put(space_of(request.scope), wanted)
    said = _as_json(hook) | {"secret": hook.secret_text}
    return json_answer(request, said, status=201 if created else 200, headers=_NO_STORE)


@router.delete(
    "/v1/webhooks/{name}",
    operation_id="remove_webhook",
    status_code=204,
    responses=problems(401, 403, 404, 422),
    summary="Remove a webhook",
)
async def remove_webhook(request: Request, services: Given, name: str) -> Response:
    """Remove a webhook and its undelivered events."""
    await services.webhooks.remove(space_of(request.scope), name)
    return Response(status_code=204)


@router.get(
    "/v1/webhooks/{name}/letters",
    operation_id="list_letters",
    response_model=PageModel[LetterModel],
    responses={304: SEEN, **problems(401, 403, 404, 412, 422)},
    summary="List undelivered events of a webhook",
)
async def list_letters(
    request: Request,
    services: Given,
    name: str,
    dead: Annotated[bool, Query(description="List events that failed permanently, instead of pending ones.")] = False,
    limit: Annotated[int, Query(ge=1, description="Maximum number of events.")] = 100,
    cursor: Cursor = None,
) -> Response:
    """List the events not yet delivered to a webhook, oldest first."""
    most = min(limit, services.settings.max_page_items)
    hook = await services.webhooks.get(space_of(request.scope), name)
    page = await services.webhooks.letters(hook, dead=dead, limit=most, cursor=cursor)
    return page_answer(request, page, [_letter_json(letter) for letter in page.items])


@router.post(
    "/v1/webhooks/{name}/redeliver",
    operation_id="redeliver_letters",
    status_code=202,
    response_model=RedeliveredModel,
    responses=problems(401, 403, 404, 422),
    summary="Deliver failed events again",
)
async def redeliver_letters(request: Request, services: Given, name: str) -> Response:
    """Deliver the failed events of a webhook again."""
    count = await services.webhooks.redeliver(space_of(request.scope), name)
    return json_answer(request, {"letters": count}, status=202, headers=_NO_STORE)


def _as_json(hook: Webhook) -> dict[str, Any]:
    return {"name": hook.name, "url": hook.url, "events": list(hook.events), "created": _as_text(hook.created)}


def _letter_json(letter: Letter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "type": letter.event["type"],
        "subject": letter.event["subject"],
        "written": _as_text(letter.written),
        "attempts": letter.attempts,
        "error": letter.error,
    }


def _as_text(seconds: float) -> str:
    return format_time(datetime.fromtimestamp(seconds, UTC))
