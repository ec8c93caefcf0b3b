"""Stores: finding and removing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from protoslice.facts import Removed, Store
from protoslice.server.access.decision import Scope
from protoslice.server.access.places import Ref, url_of
from protoslice.server.access.rules import DELETE, READ, SHOWN
from protoslice.server.api.endpoints import endpoint
from protoslice.server.api.json_answers import (
    Cursor,
    Limit,
    json_answer,
    large_answer,
    page_answer,
    restored_body,
    store_body,
)
from protoslice.server.api.models import PageOf, RestoredStore
from protoslice.server.middleware.guarded_route import GuardedRouter
from protoslice.server.services import Given
from protoslice.server.store_references import StoreReferences

router = GuardedRouter(tags=["stores"])

Names = Annotated[bool, Query(description="Also include names in registries, which takes longer.")]
Force = Annotated[
    list[str],
    Query(
        description="Remove the store although this name refers to it, such as `m:1`, `ann/m@main`, `ann/m:1` or "
        "`mlflow-artifacts:/folder`; repeatable.",
        examples=[["resnet50:3"]],
    ),
]


@endpoint(router, "GET /v1/stores", READ, answer=PageOf[Store], cached=True, summary="List stores")
async def list_stores(
    request: Request,
    services: Given,
    tag: Annotated[
        str | None, Query(description="Only stores with a tag that starts with this; the list is sorted by these tags.")
    ] = None,
    type: Annotated[
        str | None, Query(description="Only stores of this message type, such as `onnx.ModelProto`.")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
    names: Names = True,
) -> Response:
    """List stores, newest first."""
    page = await services.stores.list(
        tag=tag, type=type, limit=min(limit, services.settings.max_page_items), cursor=cursor
    )
    found = await StoreReferences(services.stores).named(page.items) if names else page.items
    items = [await store_body(services.stores, store) for store in found]
    return page_answer(request, page, b",".join(items))


@endpoint(router, "GET /v1/stores/{ref}", SHOWN, answer=Store, fails=(404,), cached=True, summary="Get a store")
async def get_store(request: Request, services: Given, ref: Ref, names: Names = True) -> Response:
    """Return a store.

    `ref` is an id, the beginning of one, a tag, or a name such as `ann%2Fm@main`.
    """
    store = await services.stores.get(ref)
    if names:
        (store,) = await StoreReferences(services.stores).named([store])
    headers = {} if ref == store.id else {"content-location": url_of(request.scope, f"/v1/stores/{store.id}")}
    body = await store_body(services.stores, store)
    return await large_answer(request, services.stores, body, headers=headers)


@endpoint(router, "DELETE /v1/stores/{ref}", DELETE, answer=Removed, fails=(404, 409, 422), summary="Remove a store")
async def delete_store(request: Request, services: Given, ref: Ref, force: Force = []) -> Response:  # noqa: B006
    """Remove a store by its id, or the beginning of it; `ref` may not be a tag.

    If names refer to the store, `force` has to list all of them. Tags are removed too; names in registries remain,
    and are dangling until the store is restored or created again.
    """
    # A tag is refused because others may name the same store.
    removed = await services.stores.delete(ref, partial(StoreReferences(services.stores).check, frozenset(force)))
    return json_answer(request, removed)


@endpoint(
    router,
    "POST /v1/stores/{id}/restore",
    DELETE,
    answer=RestoredStore,
    fails=(400, 404, 409, 422),
    summary="Restore a removed store",
)
async def restore_store(request: Request, services: Given, id: str) -> Response:
    """Restore a removed store, and its tags that do not point at another store now.

    Possible until `gc` deletes its objects.
    """
    restored = await services.stores.restore(id)
    if not services.may(Scope.READ):  # tags that were set meanwhile are for those who may read
        restored = replace(restored, store=replace(restored.store, tags=()), tags_taken=())
    return json_answer(request, await restored_body(services.stores, restored))
