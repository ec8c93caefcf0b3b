"""JSON answers with entity tags, and the evaluation of conditional requests. An answer is one object or a page."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Depends, Header, Query, Request
from pydantic import AfterValidator
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from protoslice.catalog.paging import MAX_PAGE_ITEMS, PAGE_BYTES
from protoslice.database.transactions import microseconds
from protoslice.errors import InvalidInput, NotFound
from protoslice.facts import Restored, Store, StoreName
from protoslice.json_text import encode_json
from protoslice.server.api.encoding import encode_fact, encode_items, has_secret, store_weight
from protoslice.server.auth.permissions import Scope as AccessScope
from protoslice.server.auth.spaces import asked_url, lasting_url, url_of
from protoslice.server.context import context_of
from protoslice.server.http.conditions import EntityTag, Preconditions, Verdict, evaluate, failure
from protoslice.server.http.digests import format_digest
from protoslice.server.http.headers import read_fields
from protoslice.server.http.negotiation import takes_gzip
from protoslice.server.http.query import SIGNATURE, Time, with_parameter
from protoslice.server.problems import PRECONDITION, HttpProblem
from protoslice.server.routing import Route
from protoslice.server.services import ServerState, Services
from protoslice.serving import OpenStore
from protoslice.stores import Created, ResultPage, Stores
from protoslice.tensors.omitted import HEADER as OMITTED
from protoslice.tensors.omitted import refuse
from protoslice.views.texts import TextView, text

Limit = Annotated[
    int,
    Query(ge=1, le=(1 << 31) - 1, description="Maximum number of items; the service may return fewer."),
    AfterValidator(lambda limit: min(limit, MAX_PAGE_ITEMS)),
]
_OF_A_PAGE: Final = frozenset({"cursor", "limit", "from"}) | SIGNATURE
"""The query parameters that select a page of a list but do not change the list."""
_MARK: Final = 12
"""The number of characters at the end of a cursor that identify its list."""


async def _place(
    request: Request, cursor: Annotated[str | None, Query(description="`next` of the previous page.")] = None
) -> str | None:
    if not cursor:
        return None
    if not cursor.endswith(_mark(request)):
        raise InvalidInput(
            "The cursor belongs to another list or to other parameters: send the same parameters as for the previous "
            "page, or leave out `cursor` to start again"
        )
    return cursor[:-_MARK]


Cursor = Annotated[str | None, Depends(_place)]
"""The query parameter that repeats `next` of the previous page. `bound` makes a cursor valid for one list only."""
Since = Annotated[
    Time | None,
    Query(description="Only what is as new as this, or newer.", examples=["2026-11-01", "2026-11-01T12:00:00Z"]),
]
Until = Annotated[
    Time | None, Query(description="Only what is older than this.", examples=["2026-12-01", "2026-12-01T12:00:00Z"])
]
"""The parameters that limit a list to items from a period."""

Start = Annotated[int, Query(alias="from", ge=0, lt=10**18, description="Position to start at, instead of a cursor.")]

_LEAST_GZIPPED: Final = 1024
_GZIP_LEVEL: Final = 6
REVALIDATED = "no-cache"
VERSIONED = "public, max-age=3600"
"""The `Cache-Control` of a view whose URL has the store's id. A later release may still change the view."""


def etag_of(body: bytes) -> EntityTag:
    """Return an entity tag that is made from the digest of the JSON `body`, for resources without a version."""
    return EntityTag(f"sha256-{hashlib.sha256(body).hexdigest()}")


def json_answer(
    request: Request,
    data: object,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    etag: EntityTag | None = None,
    weak: bool = False,
    sha256: bytes | None = None,
    media_type: str = "application/json",
) -> Response:
    """Return a dataclass or a dictionary as JSON. Bytes are sent unchanged, and `sha256` is their digest if known.

    Conditions of a GET are evaluated. Without `etag`, the entity tag is made from the content, and `weak` makes it
    weak. Content of 1 KiB or more is compressed for clients that accept gzip, unless the route's answers contain a
    secret.
    """
    if not isinstance(data, bytes):
        data = encode_fact(data) if is_dataclass(data) else encode_json(data)
    body: bytes = data
    digest = sha256 or hashlib.sha256(body).digest()
    tag = etag or EntityTag(f"sha256-{digest.hex()}", weak)
    said = {"etag": str(tag), "cache-control": REVALIDATED, "vary": "accept-encoding", **(headers or {})}
    if request.method == "GET":
        coded = len(body) >= _LEAST_GZIPPED and _takes_gzip(request)
        # A client that accepts gzip may still have the uncompressed form. The entity tag of that form is then valid
        # too.
        asked = Preconditions.of(read_fields(request.scope))
        verdicts = {each: evaluate(asked, each, reads=True) for each in ((tag.gzipped, tag) if coded else (tag,))}
        for known, verdict in verdicts.items():
            if verdict is Verdict.NOT_MODIFIED:
                return Response(status_code=304, headers=said | {"etag": str(known)})
        if Verdict.PROCEED not in verdicts.values():
            raise HttpProblem(PRECONDITION, failure(asked), etag=str(tag))
        if coded:
            said |= {"etag": str(tag.gzipped), "content-encoding": "gzip"}
            return _GzippedResponse(body, status, said, media_type, digest)
    said["repr-digest"] = format_digest(digest).decode("ascii")
    return Response(body, status, said, media_type)


class _GzippedResponse(Response):
    """A response that is compressed when it is sent, unless its compressed form is in memory."""

    def __init__(self, body: bytes, status: int, headers: Mapping[str, str], media_type: str, sha256: bytes) -> None:
        super().__init__(body, status, headers, media_type)
        self._plain, self._sha256 = body, sha256

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state: ServerState = scope["app"].services

        async def made() -> tuple[bytes, int]:
            compress = partial(gzip.compress, self._plain, _GZIP_LEVEL, mtime=0)
            found = await state.stores.worker.run_if_large(len(self._plain), compress)
            return found, len(found)

        self.body = await state.gzipped.get((self._sha256, "gzip"), made)
        self.headers["content-length"] = str(len(self.body))
        self.headers["repr-digest"] = format_digest(hashlib.sha256(self.body).digest()).decode("ascii")
        await super().__call__(scope, receive, send)


def _takes_gzip(request: Request) -> bool:
    """Return True if the client accepts gzip and no answer of the route has a secret."""
    route = request.scope.get("route")
    taken = takes_gzip(read_fields(request.scope).get(b"accept-encoding", ""))
    return taken and isinstance(route, Route) and not any(map(has_secret, route.answers.values()))


def microseconds_of(time: datetime | None) -> int | None:
    """Return a query's time in microseconds since the epoch. Return None if the query has no time."""
    return None if time is None else microseconds(time)


async def created_response(request: Request, services: Services, made: Created) -> Response:
    """Return the response about the store that an upload created, or about the identical store that already existed.

    A caller without permission to read cannot distinguish the two cases. This caller sees no tags except those in the
    request.
    """
    context, stores = context_of(request.scope), services.stores
    store, created, context.store = made.store, made.created, made.store.id
    if not services.auth.may(AccessScope.READ):
        own = tuple(tag for tag in store.tags if context.auth is not None and tag in context.auth.tags)
        store, created = (
            replace(store, tags=own, uploader=None, uploader_id=None, description="", created=datetime.now(UTC)),
            True,
        )
    headers = {"location": url_of(request.scope, f"/v1/stores/{store.id}")}
    status, body = 201 if created else 200, await store_body(stores, store)
    if made.report is None:
        return await json_response(request, stores, body, status=status, headers=headers)
    # The entity tag is the one that a GET of the store returns, although a GET has no report on this upload.
    digest = await stores.worker.run_if_large(len(body), lambda: hashlib.sha256(body).hexdigest())
    reported = b'%b,"report":%b}' % (body[:-1], encode_fact(made.report))
    return await json_response(
        request, stores, reported, status=status, headers=headers, etag=EntityTag(f"sha256-{digest}")
    )


async def json_response(
    request: Request,
    stores: Stores,
    body: bytes,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    etag: EntityTag | None = None,
) -> Response:
    """Return a JSON response. The digest of a long body is computed in a thread."""
    digest = await stores.worker.run_if_large(len(body), lambda: hashlib.sha256(body).digest())
    return json_answer(request, body, status=status, headers=headers, etag=etag, sha256=digest)


async def view_answer(
    request: Request,
    services: Services,
    store: OpenStore,
    make: Callable[[], Awaitable[object]],
    *facts: object,
    headers: Mapping[str, str] | None = None,
    strict: bool = False,
) -> Response:
    """Return a JSON view of a store. `make` returns the view as a dataclass, a page of dataclasses, or a `TextView`.

    The view is made once for all requests with the same path, query and `facts`, and then kept in memory. Without
    `headers`, the response to a URL with the store's id has `Cache-Control`. For any other URL, the response has
    `Content-Location` with the permanent URL. With `strict`, raise `Unsupported` if the view omits anything.
    """
    if headers is None:
        named = request.path_params["ref"] != store.info.id
        headers = (
            {"content-location": lasting_url(request.scope, store.info.id)} if named else {"cache-control": VERSIONED}
        )

    async def made() -> TextView:
        found = await make()
        if isinstance(found, ResultPage):
            found = replace(found, next=bound(request, found.next))
        return await services.stores.worker.run_if_large(PAGE_BYTES, lambda: _view_of(found))

    below = tuple((name, value) for name, value in request.path_params.items() if name != "ref")
    kept = await text(store, (request.scope["endpoint"], below, request.scope["query_string"], *facts), made)
    refuse(kept.omitted, strict)
    said = dict(headers) | next_page(request.scope, kept.next)
    if kept.omitted is not None:
        said[OMITTED] = kept.omitted.header()
    return json_answer(request, kept.text, headers=said, sha256=kept.sha256)


def _view_of(found: object) -> TextView:
    if isinstance(found, TextView):
        return found
    if isinstance(found, ResultPage):
        return TextView.of(page_text(found), next=found.next)
    return TextView.of(encode_fact(found))


async def store_body(stores: Stores, store: Store) -> bytes:
    """Return the JSON of a store. A thread encodes a store with many files, because encoding takes long.

    If the store's names in registries were not looked up, the JSON lists only its tags as names.
    """
    if not store.names:
        store = replace(store, names=tuple(StoreName("tag", tag) for tag in store.tags))
    return await stores.worker.run_if_large(store_weight(store), lambda: encode_fact(store))


async def restored_body(stores: Stores, restored: Restored) -> bytes:
    """Return the JSON body that describes a restored store."""
    body = await store_body(stores, restored.store)
    return b'%b,"tags_taken":%b}' % (body[:-1], encode_json(restored.tags_taken))


def bound(request: Request, cursor: str | None) -> str | None:
    """Bind a cursor to the request's parameters, except the parameters that select the page.

    Return None if `cursor` is None.
    """
    return None if cursor is None else cursor + _mark(request)


def _mark(request: Request) -> str:
    parameters = sorted((name, text) for name, text in request.query_params.multi_items() if name not in _OF_A_PAGE)
    below = sorted((name, str(value)) for name, value in request.path_params.items() if name != "ref")
    listed = encode_json([context_of(request.scope).space, request.scope["route"].path, below, parameters])
    return "~" + hashlib.sha256(listed).hexdigest()[: _MARK - 1]


def page_answer(
    request: Request,
    page: ResultPage[Any],
    items: bytes | None = None,
) -> Response:
    """Return a page with a link to the next page. `items` has the page's items as JSON, separated by commas."""
    page = replace(page, next=bound(request, page.next))
    return json_answer(request, page_text(page, items), headers=next_page(request.scope, page.next), weak=True)


def page_text(page: ResultPage[Any], items: bytes | None = None, total: int | None = None) -> bytes:
    """Return a page as JSON. The JSON has a member `total` unless `total` is None."""
    members: dict[str, object] = {"next": page.next} | ({} if total is None else {"total": total})
    shown = encode_items(page.items) if items is None else items
    return b'{"items":[%b],%b' % (shown, json.dumps(members, separators=(",", ":")).encode()[1:])


def next_page(scope: Scope, after: str | None, *, name: str = "cursor", absolute: bool = False) -> dict[str, str]:
    """Return a `Link` header to the next page, whose URL has `after` as the parameter `name`.

    Return no header if `after` is None.
    """
    if after is None:
        return {}
    query = with_parameter(scope["query_string"], name, after)
    return {"link": f'<{asked_url(scope, absolute=absolute)}?{query}>; rel="next"'}


IfMatch = Annotated[
    str | None, Header(description="Only if the resource has one of these entity tags; `*`: only if it exists.")
]
IfNoneMatch = Annotated[
    str | None,
    Header(description="`*`: only if the resource does not exist. Otherwise only if it has none of these entity tags."),
]


@dataclass(frozen=True, slots=True)
class Current:
    """The current state of a resource that a request is about to change."""

    etag: EntityTag
    version: Any
    """The value that the write compares in its transaction. It is read before the other members."""
    shown: Mapping[str, Any] = field(default_factory=dict)
    """Further members of the problem that reports a false condition, for callers with permission to read."""


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of a write: the resource still has this `version`, or it is `absent`.

    By default, there is no condition.
    """

    version: Any = None
    absent: bool = False


def conditional(find: Callable[[Request, Services], Awaitable[Current]]) -> Any:
    """Return a dependency for a route. The dependency evaluates If-Match and If-None-Match and returns a `Condition`.

    `find` returns the resource or raises `NotFound`. Routes without this dependency refuse the two headers.
    """

    async def condition(
        request: Request, services: Services, if_match: IfMatch = None, if_none_match: IfNoneMatch = None
    ) -> Condition:
        if if_match is None and if_none_match is None:
            return Condition()
        found: Current | None = None
        with suppress(NotFound):
            found = await find(request, services)
        asked = Preconditions.of(read_fields(request.scope))  # the parameters hold only the first of repeated headers
        if evaluate(asked, None if found is None else found.etag, reads=False) is not Verdict.PROCEED:
            shown = {}
            if found is not None and services.auth.may(AccessScope.READ):
                shown = {"etag": str(found.etag), **found.shown}
            raise HttpProblem(PRECONDITION, failure(asked), **shown)
        return Condition(absent=True) if found is None else Condition(found.version)

    return Depends(condition)
