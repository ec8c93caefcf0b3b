"""Routes that find the view for a path and answer with its bytes. Other handlers use the same answers.

The service tries these routes before FastAPI, whose dependency injection takes half the time of a small response.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from protoslice.errors import Unsupported
from protoslice.server.api.views import View
from protoslice.server.auth.spaces import lasting_url, plain_ref
from protoslice.server.context import context_of
from protoslice.server.http.headers import HeaderMap, Headers, read_fields, with_headers
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
from protoslice.server.http.planner import ResponsePlan, ResponsePlanner, ResponsePolicy
from protoslice.server.http.responses import rendered_head, send_plan, send_representation
from protoslice.server.routing import RouteGroup, method_not_allowed
from protoslice.server.services import SERVICES, ServerState, Services
from protoslice.serving import OpenStore, Representation
from protoslice.serving.representation import Head
from protoslice.views.texts import TextView, get_head, put_head, text

_FORMS_OF_MESSAGE: Final = (MESSAGE, PROTOBUF_JSON, JSON, TEXT)
_FORMS_OF_RECORDS: Final = (DELIMITED, *FORMS_OF_RECORDS)


class FoundView(NamedTuple):
    """A view, the reference to its store, and the rest of the path."""

    view: View
    ref: str
    rest: str

    def policy(self, versioned: bool, location: str | None, state: ServerState) -> ResponsePolicy:
        """Return the policy of a response. `location` is the permanent URL; None if the request used that URL."""
        return ResponsePolicy(
            location=location,
            negotiated=self.view.rendered,
            versioned=self.view.versioned or versioned,
            private=state.authenticator.closed,
            max_ranges=state.settings.max_ranges,
        )


_READS: Final = frozenset({"GET", "HEAD"})


class ViewRoutes(RouteGroup):
    """The routes of all views. They are found by splitting the path."""

    def __init__(self, views: Iterable[View]) -> None:
        """Add the routes of `views`."""
        super().__init__()
        self.routes.extend(views)
        self._views = {(view.segment, view.rest is not None): view for view in views}

    def find(self, path: str) -> FoundView | None:
        """Return the view at a decoded path. Return None if no view has this path."""
        parts = path.split("/", 5)
        if len(parts) < 5 or parts[1] != "v1" or parts[2] != "stores" or not parts[3]:
            return None
        rest = parts[5] if len(parts) == 6 else ""
        view = self._views.get((parts[4], len(parts) == 6))
        if view is None or (view.rest == "n" and (not rest or "/" in rest)):
            return None
        if view.segment == "files" and rest[-1:] in {"", "/"}:  # a folder, which has an index instead of bytes
            return None
        return FoundView(view, plain_ref(parts[3]), rest)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match the view that the path names. For methods other than GET and HEAD, the match is partial."""
        found = self.find(scope["path"].removeprefix(scope["root_path"])) if scope["type"] == "http" else None
        if found is None:
            return Match.NONE, {}
        return (Match.FULL if scope["method"] in _READS else Match.PARTIAL), {"route": found.view, "view": found}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the permissions of the request, and answer with the view that matched."""
        found: FoundView = scope["view"]
        fields, context = read_fields(scope), context_of(scope)
        context.route = found.view.path
        if scope["method"] not in _READS:
            raise method_not_allowed(scope)
        services: Services = await scope["app"].services.admit(scope, fields, found.view.rule)
        query: object = found.view.parameters.read(scope["query_string"], context.key)
        await answer_view(found, query, services, scope, send, fields, await services.stores.view(found.ref))


async def answer_view(
    found: FoundView,
    query: object,
    services: Services,
    scope: Scope,
    send: Send,
    fields: HeaderMap,
    store: OpenStore,
) -> None:
    """Respond with a view of `store`. Render it if the request prefers a rendered form."""
    context = context_of(scope)
    context.store = store.info.id
    location = None if found.ref == store.info.id else lasting_url(scope, store.info.id)
    etag = found.view.etag(*found.view.arguments(store, found.rest, query)) if found.view.etag is not None else None
    if etag is not None:
        known = await _known_plan(etag, store, scope["method"], fields, found.policy(False, location, services.state))
        if known is not None:
            await send_plan(send, known)
            return
    rope = await found.view.select(*found.view.arguments(store, found.rest, query))
    policy = found.policy(rope.versioned, location, services.state)
    form = rendered_form(found.view, fields, rope)
    if form is not None:
        policy, rendering = replace(policy, versioned=True, max_ranges=0), _Rendering(services, store, rope, form)
        shown = rendered_head(rope, form)
        plan = ResponsePlanner(shown, policy).plan(scope["method"], fields)
        if plan.status == 304:  # a 304 must not cost a rendering
            await send_plan(send, plan)
            return
        made = await rendering(shown.etag)
        rope = Representation.of_bytes(made.text, shown, made.sha256)
    await send_representation(
        scope,
        send,
        rope,
        fields=fields,
        policy=policy,
        disconnect=context.disconnect,
        window=partial(services.state.windows.open, client=context.key),
    )
    if form is None and etag is not None and scope["method"] == "HEAD":
        await put_head(store, rope.head)


async def _known_plan(
    etag: str, store: OpenStore, method: str, fields: HeaderMap, policy: ResponsePolicy
) -> ResponsePlan | None:
    """Return the plan of a response that has no body and needs no work on the view.

    Return None if the view has to be made.
    """
    current = fields.get(b"if-none-match", "*").strip()
    if current != "*" and b"if-match" not in fields:  # `*` and If-Match depend on whether the view exists
        plan = ResponsePlanner(Head(etag, "", ""), policy).plan("HEAD", fields)
        if plan.status == 304:
            return plan
    head = await get_head(store, etag) if method == "HEAD" else None
    if head is None:
        return None
    choose(fields.get(b"accept"), (head.media_type,))  # a view with a known entity tag has only one form
    return ResponsePlanner(head, policy).plan(method, fields)


class _Rendering:
    """A function that renders a message of a store."""

    def __init__(self, services: Services, store: OpenStore, rope: Representation, media_type: str) -> None:
        if rope.message_type is None:
            raise Unsupported("The type of this message is unknown: only application/protobuf is available")
        self._renderer = services.state.renderer
        self._store = store
        self._rope = rope
        self._type_name = rope.message_type
        self._form = (FORMS if rope.kind == "message" else FORMS_OF_RECORDS)[media_type]

    async def __call__(self, etag: str) -> TextView:
        return await text(self._store, (etag,), self._made)

    async def _made(self) -> TextView:
        data = await self._rope.read(self._renderer.max_bytes)
        own = self._rope.descriptor_set or self._store.descriptor_set() or b""
        text = await self._renderer.render(data, type_name=self._type_name, form=self._form, descriptor_set=own)
        return TextView.of(text)


def rendered_form(view: View, fields: HeaderMap, rope: Representation) -> str | None:
    """Return the rendered media type that Accept selects. Return None if Accept selects the unrendered bytes."""
    accept = fields.get(b"accept")
    if accept is None or accept == "*/*":
        return None
    if not view.rendered:
        choose(accept, (rope.media_type,))
        return None
    if rope.kind == "records" and rope.media_type == DELIMITED:
        media_type = choose(accept, _FORMS_OF_RECORDS)
        return None if media_type == DELIMITED else media_type
    if rope.kind != "message":
        choose(accept, (rope.media_type,))
        return None
    media_type = choose(accept, _FORMS_OF_MESSAGE)
    return None if media_type == MESSAGE else media_type


class RepresentationResponse(Response):
    """A handler's answer that consists of a representation and of headers of the handler's protocol.

    `location` is the URL whose bytes never change. It is None if the request is for this URL.
    """

    def __init__(
        self,
        representation: Representation,
        headers: Headers | None = None,
        *,
        location: str | None,
        max_ranges: int | None = None,
    ) -> None:
        super().__init__()
        self._representation = representation
        self._added = headers or []
        self._location = location
        self._max_ranges = max_ranges

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer to a GET or HEAD."""
        services: Services = scope[SERVICES]
        context, most = context_of(scope), self._max_ranges
        await send_representation(
            # The framework passes HEAD on as GET, but the response depends on the original method.
            {**scope, "method": context.method or scope["method"]},
            with_headers(send, self._added),
            self._representation,
            fields=read_fields(scope),
            policy=ResponsePolicy(
                location=self._location,
                private=services.state.authenticator.closed,
                max_ranges=services.state.settings.max_ranges if most is None else most,
            ),
            disconnect=context.disconnect,
            window=partial(services.state.windows.open, client=context.key),
        )
