"""Resolver of request paths to views, and the terms of their answers, on every way to an answer.

Views are served beside the framework's routing: dependency injection alone costs half of a small answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from starlette.types import Scope, Send

from protoslice.errors import Unsupported
from protoslice.server.access.places import lasting_url, plain_ref
from protoslice.server.api.views import StoreView
from protoslice.server.http.answers.plan import Terms
from protoslice.server.http.answers.rendered import send_rendered
from protoslice.server.http.answers.stream import send_representation
from protoslice.server.http.headers import Fields
from protoslice.server.http.negotiation import (
    DELIMITED,
    FORMS,
    FORMS_OF_RECORDS,
    JSON,
    MESSAGE,
    PROTOBUF_JSON,
    TEXT,
    choose,
)
from protoslice.server.middleware.context import context_of
from protoslice.server.services import Services
from protoslice.stores import OpenStore, Representation

_FORMS_OF_MESSAGE: Final = (MESSAGE, PROTOBUF_JSON, JSON, TEXT)
_FORMS_OF_RECORDS: Final = (DELIMITED, *FORMS_OF_RECORDS)


class FoundView(NamedTuple):
    """A view, the reference of the store it is asked of, and the rest of the path."""

    view: StoreView
    ref: str
    rest: str

    def terms(self, rope: Representation, location: str | None, services: Services) -> Terms:
        """The terms of an answer; `location` is the lasting URL, None when that was asked for."""
        return Terms(
            location=location,
            negotiated=self.view.rendered,
            versioned=self.view.versioned or rope.versioned,
            private=services.gate.closed,
            max_ranges=services.settings.max_ranges,
        )


class ViewRouter:
    """Finds the view that a path names, by splitting it."""

    def __init__(self, views: Iterable[StoreView]) -> None:
        self._views = {(view.name, view.rest is not None): view for view in views}

    def find(self, path: str) -> FoundView | None:
        """The view at a decoded path; None when no view has such a path."""
        parts = path.split("/", 5)
        if len(parts) < 5 or parts[1] != "v1" or parts[2] != "stores" or not parts[3]:
            return None
        rest = parts[5] if len(parts) == 6 else ""
        view = self._views.get((parts[4], len(parts) == 6))
        if view is None or (view.rest == "n" and (not rest or "/" in rest)):
            return None
        if view.name == "files" and rest[-1:] in {"", "/"}:  # a folder, of which there is an index
            return None
        return FoundView(view, plain_ref(parts[3]), rest)


async def serve_view(found: FoundView, services: Services, scope: Scope, send: Send, fields: Fields) -> None:
    """Answer a GET or HEAD of a view."""
    context = context_of(scope)
    context.route = found.view.path
    query: object = found.view.query.read(scope["query_string"], context.key)
    await answer_view(found, query, services, scope, send, fields, await services.stores.view(found.ref))


async def answer_view(
    found: FoundView,
    query: object,
    services: Services,
    scope: Scope,
    send: Send,
    fields: Fields,
    store: OpenStore,
) -> None:
    """Answer with a view of `store`, rendered if the request accepts that."""
    context = context_of(scope)
    context.store = store.info.id
    rope = await found.view.select(store, found.rest, query)
    location = None if found.ref == store.info.id else lasting_url(scope, store.info.id)
    terms = found.terms(rope, location, services)
    form = rendered_form(found.view, fields, rope)
    if form is None:
        await send_representation(
            scope,
            send,
            rope,
            fields=fields,
            terms=terms,
            disconnect=context.disconnect,
            window=lambda length: services.windows.open(length, context.key),
        )
        return
    rendering = _Rendering(services, store, rope, form)
    await send_rendered(scope, send, rope, rendering, media_type=form, fields=fields, terms=terms)


class _Rendering:
    """Renders a message of a store when it is called."""

    def __init__(self, services: Services, store: OpenStore, rope: Representation, media_type: str) -> None:
        if rope.message_type is None:
            raise Unsupported("The type of this message is unknown: only application/protobuf is available")
        self._renderer = services.renderer
        self._store = store
        self._rope = rope
        self._type_name = rope.message_type
        self._form = (FORMS if rope.kind == "message" else FORMS_OF_RECORDS)[media_type]

    async def __call__(self) -> bytes:
        data = await self._rope.read(self._renderer.max_bytes)
        own = self._rope.descriptor_set or self._store.descriptor_set() or b""
        return await self._renderer.render(data, type_name=self._type_name, form=self._form, descriptor_set=own)


def rendered_form(view: StoreView, fields: Fields, rope: Representation) -> str | None:
    """The rendered media type that Accept chooses; None for the bytes themselves."""
    accept = fields.get(b"accept") if view.rendered else None
    if accept is None or accept == "*/*":
        return None
    if rope.kind == "records" and rope.media_type == DELIMITED:
        media_type = choose(accept, _FORMS_OF_RECORDS)
        return None if media_type == DELIMITED else media_type
    if rope.kind != "message":
        choose(accept, (rope.media_type,))
        return None
    media_type = choose(accept, _FORMS_OF_MESSAGE)
    return None if media_type == MESSAGE else media_type
