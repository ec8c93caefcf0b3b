"""The short way to the views: straight from the socket to the rope, beside the framework's routing and dependencies.

A small answer costs mostly what stands between it and the socket; dependency injection alone is half of that. The same
endpoints are routes of the application too, which answers other methods and documents them.
"""

from __future__ import annotations

from typing import Final

from starlette.types import Receive, Scope, Send

from protoslice.errors import Unsupported
from protoslice.server.api.parameters import read_query
from protoslice.server.api.views import StoreView
from protoslice.server.http.headers import Fields, read_fields
from protoslice.server.http.locations import lasting_url
from protoslice.server.http.negotiation import FORMS, JSON, MESSAGE, PROTOBUF_JSON, TEXT, choose
from protoslice.server.http.plan import Terms
from protoslice.server.http.rendered import send_rendered
from protoslice.server.http.stream import send_representation
from protoslice.server.middleware.context import context_of
from protoslice.server.middleware.disconnect import Leaving
from protoslice.server.services import Services
from protoslice.stores import OpenStore, Representation

__all__ = ["Lane", "ViewEndpoint"]

_FORMS_OF_MESSAGE: Final = (MESSAGE, PROTOBUF_JSON, JSON, TEXT)


class ViewEndpoint:
    """One view as an ASGI application; the path's parameters are found in the scope."""

    def __init__(self, view: StoreView, services: Services) -> None:
        self.view = view
        self._services = services
        self._rest = (view.rest or "").partition(":")[0]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as a route."""
        params = scope["path_params"]
        await self.serve(scope, receive, send, ref=params["ref"], rest=params.get(self._rest, ""))

    async def serve(self, scope: Scope, receive: Receive, send: Send, *, ref: str, rest: str) -> None:
        """Answer a GET or HEAD of this view of the store `ref`."""
        view, context = self.view, context_of(scope)
        context.route = view.path
        fields, query = read_fields(scope), read_query(scope["query_string"])
        async with Leaving(receive) as leaving:
            store = await self._services.stores.view(ref)
            context.store = store.info.id
            rope = await view.select(store, rest, query)
            terms = Terms(
                location=None if ref == store.info.id else lasting_url(scope, store.info.id),
                negotiated=view.rendered,
                versioned=view.versioned,
                max_ranges=self._services.settings.max_ranges,
            )
            form = _form(fields.get(b"accept"), rope) if view.rendered else None
            if form is None:
                await send_representation(
                    scope, send, rope, fields=fields, terms=terms, leaving=leaving, windows=self._services.windows
                )
            else:
                await self._render(scope, send, rope=rope, store=store, media_type=form, fields=fields, terms=terms)

    async def _render(
        self,
        scope: Scope,
        send: Send,
        *,
        rope: Representation,
        store: OpenStore,
        media_type: str,
        fields: Fields,
        terms: Terms,
    ) -> None:
        type_name = rope.message_type
        if type_name is None:
            raise Unsupported("the type of this message is not known: it can be had as application/protobuf only")
        renderer = self._services.renderer

        async def render() -> bytes:
            data = await rope.read(renderer.max_bytes)
            own = store.descriptor_set()
            return await renderer.render(data, type_name=type_name, form=FORMS[media_type], descriptor_set=own or b"")

        await send_rendered(scope, send, rope, render, media_type=media_type, fields=fields, terms=terms)


def _form(accept: str | None, rope: Representation) -> str | None:
    """The rendered media type that is wanted; None for the bytes themselves."""
    if accept is None or accept == "*/*":
        return None
    if rope.kind != "message":
        choose(accept, (rope.media_type,))
        return None
    media_type = choose(accept, _FORMS_OF_MESSAGE)
    return None if media_type == MESSAGE else media_type


class Lane:
    """Finds the view that a path names, by splitting it."""

    def __init__(self, endpoints: tuple[ViewEndpoint, ...]) -> None:
        self._endpoints = {(each.view.name, each.view.rest is not None): each for each in endpoints}

    def find(self, path: str) -> tuple[ViewEndpoint, str, str] | None:
        """The endpoint, the reference and the rest of the path."""
        parts = path.split("/", 5)
        if len(parts) < 5 or parts[1] != "v1" or parts[2] != "stores" or not parts[3]:
            return None
        rest = parts[5] if len(parts) == 6 else ""
        endpoint = self._endpoints.get((parts[4], len(parts) == 6))
        if endpoint is None or (len(parts) == 6 and not rest) or (endpoint.view.rest == "n" and "/" in rest):
            return None
        return endpoint, parts[3], rest
