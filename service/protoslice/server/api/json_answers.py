"""JSON responses, one object or a page, with entity tags; conditions of reads and writes."""

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
"""Query parameters that choose a page of a list, and not the list."""
_MARK: Final = 12
"""Characters at the end of a cursor that say which list it is for."""


async def _place(
    request: Request, cursor: Annotated[str | None, Query(description="`next` of the previous page.")] = None
) -> str | None:
    if not cursor:
        return None
    if not cursor.endswith(_mark(request)):
        raise InvalidInput(
            "This cursor is for another list, or for other parameters: repeat those of the page whose `next` it is, "
            "or leave out cursor to start again"
        )
    return cursor[:-_MARK]


Cursor = Annotated[str | None, Depends(_place)]
"""Place in a list that its `next` named, for calls that answer with a page. It is bound to the list: see `bound`."""
Since = Annotated[
    Time | None,
    Query(description="Only what is as new as this, or newer.", examples=["2026-11-01", "2026-11-01T12:00:00Z"]),
]
Until = Annotated[
    Time | None, Query(description="Only what is older than this.", examples=["2026-12-01", "2026-12-01T12:00:00Z"])
]
"""Query parameters of calls that list what has a time."""

Start = Annotated[int, Query(alias="from", ge=0, lt=10**18, description="Position to start at, instead of a cursor.")]

_LEAST_GZIPPED: Final = 1024
_GZIP_LEVEL: Final = 6
REVALIDATED = "no-cache"
VERSIONED = "public, max-age=3600"
"""Of a store, under its id: a later program may find more to say of it."""


def etag_of(body: bytes) -> EntityTag:
    """Return the entity tag of JSON that has no other entity tag."""
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
    """Return a fact, or a dictionary, as JSON; bytes are JSON already, and their `sha256` may be known.

    For a read, the conditions are evaluated. Without `etag`, the entity tag, which may be weak, is made from the
    content. Content of 1 KiB or more is compressed for clients that accept gzip, unless its type has a secret.
    """
    if not isinstance(data, bytes):
        data = encode_fact(data) if is_dataclass(data) else encode_json(data)
    body: bytes = data
    digest = sha256 or hashlib.sha256(body).digest()
    tag = etag or EntityTag(f"sha256-{digest.hex()}", weak)
    said = {"etag": str(tag), "cache-control": REVALIDATED, "vary": "accept-encoding", **(headers or {})}
    if request.method == "GET":
        coded = len(body) >= _LEAST_GZIPPED and _takes_gzip(request)
        # A client that takes gzip may still have the plain form, whose tag is then as good.
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
    """Response that is compressed when it is sent, unless its compressed form is in memory."""

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
    """Return True if the client accepts gzip, and no answer of the route has a secret."""
    route = request.scope.get("route")
    taken = takes_gzip(read_fields(request.scope).get(b"accept-encoding", ""))
    return taken and isinstance(route, Route) and not any(map(has_secret, route.answers.values()))


def microseconds_of(time: datetime | None) -> int | None:
    """Return a time from a query in microseconds since the epoch; None for None."""
    return None if time is None else microseconds(time)


async def created_response(request: Request, services: Services, made: Created) -> Response:
    """Return the response with the store that an upload made, or found.

    A caller who may not read cannot distinguish a new store from an existing one, and sees only the tags of the
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
    # The entity tag is that of the store, as a GET answers with it: a later GET says nothing about this upload.
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
    """Return a JSON response; the digest of a long one is computed in a thread."""
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
    """Return a JSON view of a store, which `make` returns as a fact, a page of facts, or a `TextView`.

    The view is made once for all requests with the same path, query and `facts`, and kept in memory. By default,
    `headers` are `Cache-Control` if the URL has the store's id, else `Content-Location` with the permanent URL. With
    `strict`, raise `Unsupported` if the view leaves anything out.
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
    """Return the JSON of a store; if it has many files, it is encoded in a thread, because that takes long.

    A store whose names in registries have not been looked up has only its tags as names.
    """
    if not store.names:
        store = replace(store, names=tuple(StoreName("tag", tag) for tag in store.tags))
    return await stores.worker.run_if_large(store_weight(store), lambda: encode_fact(store))


async def restored_body(stores: Stores, restored: Restored) -> bytes:
    """Return a restored store as the body of an answer."""
    body = await store_body(stores, restored.store)
    return b'%b,"tags_taken":%b}' % (body[:-1], encode_json(restored.tags_taken))


def bound(request: Request, cursor: str | None) -> str | None:
    """Return a cursor that is valid for the parameters of the request, except those that select the page."""
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
    """Return a page of facts, with a link to the next; `items` are the facts as JSON, separated by commas."""
    page = replace(page, next=bound(request, page.next))
    return json_answer(request, page_text(page, items), headers=next_page(request.scope, page.next), weak=True)


def page_text(page: ResultPage[Any], items: bytes | None = None, total: int | None = None) -> bytes:
    """Return a page as JSON; `total` is a member of the page if it is known."""
    members: dict[str, object] = {"next": page.next} | ({} if total is None else {"total": total})
    shown = encode_items(page.items) if items is None else items
    return b'{"items":[%b],%b' % (shown, json.dumps(members, separators=(",", ":")).encode()[1:])


def next_page(scope: Scope, after: str | None, *, name: str = "cursor", absolute: bool = False) -> dict[str, str]:
    """Return the header with a link to the page after `after`, the parameter `name` of this request; none for None."""
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
    """Current state of a resource that a request is about to change."""

    etag: EntityTag
    version: Any
    """What the write compares in its transaction; read before the rest."""
    shown: Mapping[str, Any] = field(default_factory=dict)
    """Further members of the problem for a caller who may read."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition of a write: the resource has a `version`, or is `absent`; by default no condition."""

    version: Any = None
    absent: bool = False


def conditional(find: Callable[[Request, Services], Awaitable[Current]]) -> Any:
    """Return the dependency of a route that evaluates If-Match and If-None-Match, and returns a `Condition`.

    `find` returns the resource, or raises `NotFound`. Routes without this dependency refuse the two headers.
    """

    async def condition(
        request: Request, services: Services, if_match: IfMatch = None, if_none_match: IfNoneMatch = None
    ) -> Condition:
        if if_match is None and if_none_match is None:
            return Condition()
        found: Current | None = None
        with suppress(NotFound):
            found = await find(request, services)
        asked = Preconditions.of(read_fields(request.scope))  # of several lines, the parameters hold the first
        if evaluate(asked, None if found is None else found.etag, reads=False) is not Verdict.PROCEED:
            shown = {}
            if found is not None and services.auth.may(AccessScope.READ):
                shown = {"etag": str(found.etag), **found.shown}
            raise HttpProblem(PRECONDITION, failure(asked), **shown)
        return Condition(absent=True) if found is None else Condition(found.version)

    return Depends(condition)
