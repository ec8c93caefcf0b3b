"""Routes that find, describe and remove stores, and that list repositories in which stores have names."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Final

from fastapi import Query, Request
from starlette.responses import Response

from protoslice.catalog.store_lists import SORTS, Sort, StoreQuery
from protoslice.catalog.syntax import is_id
from protoslice.errors import InvalidInput, StillNamed
from protoslice.facts import Removed, RepositorySummary, RepositoryVersion, Store
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
    json_response,
    microseconds_of,
    page_answer,
    restored_body,
    store_body,
)
from protoslice.server.api.models import PageOf, RestoredStore
from protoslice.server.api.requests import DescribeStore
from protoslice.server.auth.permissions import DELETE, READ, READ_SIGNED, Rule, Scope
from protoslice.server.auth.spaces import Ref, plain_ref, url_of
from protoslice.server.registry_names import RepositoryPages, StoreReferences
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Services

router = RouteGroup(tags=["stores"])

_LONGEST_TERM: Final = 256


async def _body(services: Services, store: Store) -> bytes:
    """Return a store with its names as JSON, in the same form as a GET without parameters."""
    (named,) = await StoreReferences(services.stores).named([store])
    return await store_body(services.stores, named)


async def _current(request: Request, services: Services) -> Current:
    services.auth.require(Scope.READ)  # the entity tag covers everything that a GET shows
    store_id = await services.stores.resolve(plain_ref(request.path_params["ref"]))
    version = await services.stores.version(store_id)
    body = await _body(services, await services.stores.get(store_id))
    return Current(await services.stores.worker.run_if_large(len(body), lambda: etag_of(body)), version)


Unchanged = Annotated[Condition, conditional(_current)]

Names = Annotated[bool, Query(description="Also include names in registries, which takes longer.")]
Force = Annotated[
    list[str],
    Query(
        description="Remove the store although this name refers to it, such as `m:1`, `ann/m@main`, `ann/m:1` or "
        "`mlflow-artifacts:/folder`; repeatable.",
        examples=[["resnet50:3"]],
    ),
]


@endpoint(router, "GET /v1/stores", READ, answer=PageOf[Store], cached=True, summary="List and search stores")
async def list_stores(  # noqa: PLR0913 - each is a parameter of the query
    request: Request,
    services: Services,
    cursor: Cursor,
    name: Annotated[
        str | None,
        Query(
            max_length=_LONGEST_TERM,
            description="Only stores with this text in a name (a tag, or a name in a registry such as `ann/m@main`) or "
            "in the path of a file; case does not matter. Fewer than three characters match the beginning of a name.",
            examples=["resnet"],
        ),
    ] = None,
    type: Annotated[
        str | None,
        Query(description="Only stores of this message type, such as `onnx.ModelProto`; empty: those without a root."),
    ] = None,
    uploader: Annotated[str | None, Query(description="Only stores that this token or account created.")] = None,
    min_size: Annotated[
        int | None, Query(ge=0, lt=1 << 63, description="Only stores of at least this size, in bytes.")
    ] = None,
    max_size: Annotated[
        int | None, Query(ge=0, lt=1 << 63, description="Only stores of at most this size, in bytes.")
    ] = None,
    since: Since = None,
    until: Until = None,
    nameless: Annotated[
        bool,
        Query(description="Only stores without a name: no tag, and no name in a registry. Not together with `name`."),
    ] = False,
    sort: Annotated[
        str,
        Query(
            description="`created`, `size`, `name`, `type` or `uploader`; with `-` in front, descending. A list "
            "sorted by name has each store at its first matching name, and at its end the stores of which only "
            "a file matches.",
            examples=["-size"],
        ),
    ] = "-created",
    tag: Annotated[
        str | None,
        Query(
            description="Only stores with a tag that starts with this text; the list is sorted by these tags. Only "
            "together with `type`."
        ),
    ] = None,
    limit: Limit = 100,
    names: Names = True,
) -> Response:
    """List stores, newest first.

    A search looks at a limited number of stores at a time. A short or empty page may therefore have a `next`.
    """
    query = StoreQuery(
        name=name or None,
        type=type,
        uploader=uploader,
        min_size=min_size,
        max_size=max_size,
        since=microseconds_of(since),
        until=microseconds_of(until),
        nameless=nameless,
        sort=_sort_of(sort),
        descending=sort.startswith("-"),
    )
    if nameless and (query.name is not None or query.sort == "name"):
        raise InvalidInput("`nameless` lists stores without a name: leave out `name` and `sort=name`")
    if tag is None:
        page = await services.stores.list(query, limit=limit, cursor=cursor)
    elif query == StoreQuery(type=type):
        page = await services.stores.pages.family(tag, type=type, limit=limit, cursor=cursor)
    else:
        raise InvalidInput("`tag` cannot be combined with a search: use `name` instead")
    found = await StoreReferences(services.stores).named(page.items) if names else page.items
    items = [await store_body(services.stores, store) for store in found]
    return page_answer(request, page, b",".join(items))


def _sort_of(text: str) -> Sort:
    name = text.removeprefix("-")
    for each in SORTS:
        if each == name:
            return each
    raise InvalidInput(f"Invalid sort {text[:40]!r}: use {', '.join(SORTS)}, or one of these with - in front")


@endpoint(router, "GET /v1/stores/{ref}", READ_SIGNED, answer=Store, cached=True, summary="Get a store")
async def get_store(request: Request, services: Services, ref: Ref, names: Names = True) -> Response:
    """Return a store.

    `ref` is an id, the beginning of an id, a tag, or a name such as `ann%2Fm@main`.
    """
    store = await services.stores.get(ref)
    headers = {} if ref == store.id else {"content-location": url_of(request.scope, f"/v1/stores/{store.id}")}
    body = await (_body(services, store) if names else store_body(services.stores, store))
    return await json_response(request, services.stores, body, headers=headers)


@endpoint(
    router,
    "PATCH /v1/stores/{ref}",
    Rule(Scope.WRITE, reads=True),
    answer=Store,
    summary="Describe a store",
)
async def describe_store(
    request: Request, services: Services, ref: Ref, body: DescribeStore, condition: Unchanged
) -> Response:
    """Set the description of a store. The files of a store never change."""
    store = await services.stores.get(ref)
    services.auth.require(
        Scope.WRITE, tags=store.tags or [store.id]
    )  # a token that is limited to tags may describe only stores with these tags
    described = await services.stores.pages.describe(store.id, body.description, if_match=condition.version)
    return await json_response(request, services.stores, await _body(services, described))


@endpoint(router, "DELETE /v1/stores/{ref}", DELETE, answer=Removed, fails=(409,), summary="Remove a store")
async def delete_store(
    request: Request,
    services: Services,
    ref: Ref,
    condition: Unchanged,
    force: Force = [],  # noqa: B006
) -> Response:
    """Remove a store by its id or the beginning of its id. `ref` may not be a tag.

    A caller without the scope `read` has to send the whole id. If names refer to the store, `force` has to list all
    these names. Tags are removed too. Names in registries remain, but do not resolve until the store is restored or
    created again.
    """
    # A tag is not accepted instead of an id, because the same store may have further tags.
    reads = services.auth.may(Scope.READ)
    if not is_id(ref):  # the response reveals the rest of the id
        services.auth.require(Scope.READ)
    try:
        check = partial(StoreReferences(services.stores).check, frozenset(force))
        removed = await services.stores.delete(ref, check, if_match=condition.version)
    except StillNamed:
        if reads:
            raise
        unread = f"Store {ref} is referenced by names that the token may not read: list all of these names in `force`"
        raise StillNamed(unread) from None
    if not reads:  # only callers with `read` may see tags that were set meanwhile
        removed = replace(removed, tags=tuple(tag for tag in removed.tags if tag in force))
    return json_answer(request, removed)


@endpoint(
    router,
    "GET /v1/removed",
    Rule(Scope.DELETE, reads=True),
    answer=PageOf[Removed],
    cached=True,
    summary="List removed stores",
)
async def list_removed(request: Request, services: Services, cursor: Cursor, limit: Limit = 100) -> Response:
    """List stores whose removal can be undone. The latest removal comes first."""
    return page_answer(request, await services.stores.removed(limit=limit, cursor=cursor))


@endpoint(
    router,
    "POST /v1/stores/{id}/restore",
    Rule(Scope.DELETE, reads=True),
    answer=RestoredStore,
    fails=(409,),
    summary="Restore a removed store",
)
async def restore_store(request: Request, services: Services, id: str) -> Response:
    """Restore a removed store and its tags, except tags that now point at another store.

    `id` may be the beginning of an id, or a tag that was removed with the store. A store can be restored until `gc`
    deletes its objects.
    """
    restored = await services.stores.restore(id)
    return json_answer(request, await restored_body(services.stores, restored))


repositories = RouteGroup(tags=["repositories"])

PAGE = 100
"""The maximum number of repositories or versions in a page.

The service reads some records for each repository or version.
"""


@endpoint(
    repositories,
    "GET /v1/repositories",
    READ,
    answer=PageOf[RepositorySummary],
    cached=True,
    experimental=True,
    summary="List repositories",
)
async def list_repositories(
    request: Request,
    services: Services,
    cursor: Cursor,
    prefix: Annotated[str, Query(description="Beginning of the name.")] = "",
    limit: Limit = 50,
) -> Response:
    """List Hugging Face repositories, then OCI-only repositories, then folders of MLflow artifacts."""
    page = await RepositoryPages(services.stores).page(prefix, limit=min(limit, PAGE), cursor=cursor)
    return page_answer(request, page)


@endpoint(
    repositories,
    "GET /v1/repositories/{name:path}",
    READ,
    answer=PageOf[RepositoryVersion],
    cached=True,
    experimental=True,
    summary="List the branches and tags of a repository",
)
async def list_versions(request: Request, services: Services, cursor: Cursor, name: str, limit: Limit = 50) -> Response:
    """List the branches and tags of a repository, except branches and tags without files.

    MLflow folders have no branches or tags.
    """
    page = await RepositoryPages(services.stores).versions(name, limit=min(limit, PAGE), cursor=cursor)
    return page_answer(request, page)
