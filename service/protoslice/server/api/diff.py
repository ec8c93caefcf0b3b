"""Routes that compare two stores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from protoslice.catalog.paging import PAGE_BYTES
from protoslice.catalog.syntax import is_id
from protoslice.facts import TensorDelta, TensorMoves
from protoslice.json_text import encode_json
from protoslice.server.api.encoding import encode_fact
from protoslice.server.api.json_answers import VERSIONED, Cursor, Limit, bound, json_answer, view_answer
from protoslice.server.api.models import Comparing, Diff, DifferenceCount
from protoslice.server.auth.permissions import READ_SIGNED
from protoslice.server.auth.spaces import Ref
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Services
from protoslice.serving import OpenStore
from protoslice.views.comparisons import StoreComparison, Unfinished, compare, delta, moves
from protoslice.views.texts import TextView

router = RouteGroup(tags=["views"])

Before = Annotated[str, Query(description="The store to compare with, by id, tag or name.", examples=["resnet:1"])]

_DIFFERENCE_BYTES = 200
"""The approximate length in bytes of the JSON of one difference."""


@endpoint(
    router,
    "GET /v1/stores/{ref}/diff",
    READ_SIGNED,
    answer=Diff,
    fails=(413,),
    cached=True,
    responses={202: {"description": "The comparison takes longer than `wait`: ask again.", "model": Comparing}},
    experimental=True,
    summary="Compare two stores",
)
async def get_diff(
    request: Request,
    services: Services,
    cursor: Cursor,
    ref: Ref,
    before: Before,
    checksums: Annotated[
        bool, Query(description="Treat blocks with equal checksums (CRC-32C of 64 KiB) as equal, without reading them.")
    ] = False,
    wait: Annotated[
        float | None,
        Query(
            description="Approximate seconds to wait before a 202 with the progress. Default: until the end.",
            ge=0,
            le=30,
        ),
    ] = None,
    limit: Limit = 1000,
) -> Response:
    """Return files, tensors and parts that were added, removed, changed, renamed or reordered.

    The service reads all parts except parts with equal digests, and caches the response. With `checksums`, blocks with
    equal checksums also count as equal, which is faster but not certain. All differences are counted, but at most 10
    000 are listed. A comparison stops when its client disconnects or gets 202. The next request resumes the comparison.
    """

    def view_of(found: StoreComparison) -> TextView:
        page = found.page(limit, cursor)
        following = bound(request, page.next)
        counts = [DifferenceCount(what, change, count) for (what, change), count in found.counts.items()]
        diff = Diff(
            before=found.before,
            after=found.after,
            equal=not counts,
            counts=counts,
            read=found.read,
            assumed=found.assumed,
            items=page.items,
            next=following,
        )
        return TextView.of(encode_fact(diff), next=following)

    async def made() -> TextView:
        found = await compare(*await _opened(services, before, ref), checksums=checksums, wait=wait)
        return await services.stores.worker.run_if_large(limit * _DIFFERENCE_BYTES, lambda: view_of(found))

    try:
        return await _pair_answer(request, services, before, ref, made)
    except Unfinished as so_far:
        found = Comparing(so_far.read, so_far.size)
        return json_answer(request, found, status=202, headers={"cache-control": "no-store"})


@endpoint(
    router,
    "GET /v1/stores/{ref}/moves",
    READ_SIGNED,
    answer=TensorMoves,
    cached=True,
    experimental=True,
    summary="Compare all tensors with those of another store",
)
async def list_moves(
    request: Request,
    services: Services,
    cursor: Cursor,
    ref: Ref,
    before: Before,
    sample: Annotated[
        int, Query(description="Maximum number of elements to compare of each tensor.", ge=1, le=1 << 20)
    ] = 4096,
    limit: Limit = 1000,
) -> Response:
    """Return tensors, sorted by name, with their distances from another store's tensors.

    Distances are computed from a sample of elements. Tensors are matched by name. If most of the numbers in tensor
    names changed, tensors are matched by the order of the numbers and by shape. Remaining tensors are matched by the
    end of the name, or by equal bytes at both ends. Equal tensors are only counted, by layer and kind. A page ends
    early after many bytes have been compared.
    """

    async def made() -> TextView:
        found = await moves(*await _opened(services, before, ref), sample, limit, cursor)
        page = replace(found, next=bound(request, found.next))
        text = await services.stores.worker.run_if_large(PAGE_BYTES, lambda: encode_fact(page))
        return TextView.of(text, next=page.next)

    return await _pair_answer(request, services, before, ref, made)


@endpoint(
    router,
    "GET /v1/stores/{ref}/diff/{name:path}",
    READ_SIGNED,
    answer=TensorDelta,
    fails=(409, 413),
    cached=True,
    experimental=True,
    summary="Compare a tensor with one of another store",
)
async def get_tensor_delta(
    request: Request,
    services: Services,
    ref: Ref,
    name: str,
    before: Before,
    was: Annotated[str | None, Query(description="Name or address in the other store, if different.")] = None,
    sample: Annotated[
        int | None, Query(description="Maximum number of elements to compare; 0 for all. Default: 16 777 216.", ge=0)
    ] = None,
) -> Response:
    """Return the maximum, mean and cosine distances between two tensors of the same type and shape."""

    async def made() -> TextView:
        found = await delta(*await _opened(services, before, ref), was or name, name, sample)
        # Python's `json` writes the floats as it did in earlier releases, because entity tags depend on this spelling.
        return TextView.of(encode_json(asdict(found)))

    return await _pair_answer(request, services, before, ref, made)


async def _opened(services: Services, before: str, after: str) -> tuple[OpenStore, OpenStore]:
    return await services.stores.view(before), await services.stores.view(after)


async def _pair_answer(
    request: Request, services: Services, before: str, ref: str, make: Callable[[], Awaitable[object]]
) -> Response:
    """Return a JSON view of two stores. The view is kept with the store that `ref` names.

    If both stores are named by id, caches may keep the answer for an hour.
    """
    old, store = await services.stores.view(before), await services.stores.view(ref)
    headers = {"cache-control": VERSIONED} if is_id(before) and is_id(ref) else {}
    return await view_answer(request, services, store, make, old.manifest.row, headers=headers)
