"""Routes that list the tensors of a store as JSON: as a page, as a tree of names, or as references."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, replace
from typing import Annotated

from fastapi import Depends, Query, Request
from starlette.responses import Response

from protoslice.catalog.paging import PAGE_BYTES
from protoslice.facts import (
    TensorBranch,
)
from protoslice.server.api.json_answers import (
    Cursor,
    Limit,
    Start,
    bound,
    page_text,
    view_answer,
)
from protoslice.server.api.models import TensorPage
from protoslice.server.api.parameters import Strict, Tags, Viewed
from protoslice.server.auth.permissions import READ_SIGNED
from protoslice.server.auth.spaces import absolute_url
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Services
from protoslice.tensors.listing import tags_of
from protoslice.views import tensors
from protoslice.views.tensors import tree as tensor_tree
from protoslice.views.texts import TextView

router = RouteGroup(tags=["views"])


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The query parameters that select tensors and their order."""

    name: Annotated[str | None, Query(description="Name or address; `*` matches anything.", examples=["encoder.*"])] = (
        None
    )
    dtype: Annotated[str | None, Query(description="Data type.", examples=["F32"])] = None
    search: Annotated[
        str | None,
        Query(
            description="Words that the name must contain, in upper or lower case.",
            examples=["layer.3 bias"],
        ),
    ] = None
    regex: Annotated[
        str | None,
        Query(
            description="Regular expression that must match somewhere in the name; back references and look-around are "
            "not supported.",
            examples=[r"layer\.(3|11)\..*bias$"],
        ),
    ] = None
    prefix: Annotated[str | None, Query(description="Beginning of the name.", examples=["encoder.layer.3."])] = None
    sort: Annotated[
        str | None,
        Query(description="`name`, `dtype`, `shape` or `size`; with `-` in front, descending.", examples=["-size"]),
    ] = None


@endpoint(
    router,
    "GET /v1/stores/{ref}/tensors",
    READ_SIGNED,
    answer=TensorPage,
    cached=True,
    summary="List tensors",
)
async def list_tensors(
    request: Request,
    services: Services,
    cursor: Cursor,
    store: Viewed,
    chosen: Annotated[_Chosen, Depends()],
    tags: Tags = None,
    limit: Limit = 100,
    start: Start = 0,
) -> Response:
    """Return a page of tensors with name, address, type, shape, size and file, in the model's order or sorted.

    Each page searches only a limited number of names. An empty page may therefore be followed by another page.
    """
    wanted = tags_of(tags)

    async def made() -> TextView:
        page = await tensors.page(store, **asdict(chosen), limit=limit, cursor=cursor or str(start), tags=wanted)
        page, total = replace(page, next=bound(request, page.next)), len(await tensors.listed(store, wanted))
        return await services.stores.worker.run_if_large(
            PAGE_BYTES, lambda: TextView.of(page_text(page, total=total), next=page.next)
        )

    return await view_answer(request, services, store, made)


@endpoint(
    router,
    "GET /v1/stores/{ref}/tensortree",
    READ_SIGNED,
    answer=TensorBranch,
    cached=True,
    experimental=True,
    summary="List tensors as a tree of names",
)
async def get_tensor_tree(
    request: Request,
    services: Services,
    store: Viewed,
    prefix: Annotated[
        str, Query(description="Only tensors whose names begin with this; default: all.", examples=["encoder.layer."])
    ] = "",
    start: Annotated[
        int, Query(ge=0, description="Only tensors from this position on, by name: the `start` of a node.")
    ] = 0,
    tensors: Annotated[
        int | None,
        Query(ge=1, description="Maximum number of tensors from `start` on: the `tensors` of a node; default: all."),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=4000, description="Approximate maximum number of nodes.")] = 1000,
) -> Response:
    """Return tensors as a tree of names with sizes. The largest nodes are expanded first.

    Nodes are in natural order. If a node has more than 256 groups, small neighbouring groups are combined into a range.
    """
    end = start + tensors if tensors else sys.maxsize
    return await view_answer(request, services, store, lambda: tensor_tree(store, prefix, start, end, limit))


@endpoint(
    router,
    "GET /v1/stores/{ref}/references.json",
    READ_SIGNED,
    fails=(413,),
    cached=True,
    experimental=True,
    summary="Get references to the tensors",
)
async def get_references(request: Request, services: Services, store: Viewed, strict: Strict = False) -> Response:
    """Return kerchunk references for fsspec and zarr. Each tensor is an array of byte ranges on this service."""
    base = absolute_url(request.scope, f"/v1/stores/{store.info.id}")

    async def made() -> TextView:
        body, omitted = await tensors.references(store, base)
        return await services.stores.worker.run(lambda: TextView.of(body, omitted=omitted))

    return await view_answer(request, services, store, made, base, headers={}, strict=strict)
