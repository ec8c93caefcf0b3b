"""Route behind the gate: its requests are admitted before their bodies are read, within bounds."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, Final, TypeVar, get_args, get_origin

from fastapi import APIRouter, Request
from fastapi.datastructures import DefaultPlaceholder
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from protoslice.server.context import context_of, public_path
from protoslice.server.http.digests import BodyDigest
from protoslice.server.http.headers import Fields, Headers, media_type_of, read_fields, with_headers
from protoslice.server.http.json_bodies import StrictRequest
from protoslice.server.http.negotiation import JSON, choose
from protoslice.server.http.parameters import QueryNames
from protoslice.server.problems import MEDIA, PRECONDITION, HttpProblem
from protoslice.server.request.body_limits import GuardedBody, terms_of, too_long
from protoslice.server.settings import Settings

Handler = TypeVar("Handler", bound=Callable[..., Any])

_CONDITIONS: Final = frozenset({"if-match", "if-none-match", "if-unmodified-since"})
"""Conditions of writes (RFC 9110, section 13.1)."""
_FOREIGN: Final = "__protoslice_foreign_query__"


class GuardedRoute(APIRoute):
    """A route behind the gate, whose query and body are checked against what its handler declares."""

    is_strict: ClassVar[bool] = True
    """False for routes of a protocol whose servers ignore unknown query parameters, and conditions of writes."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        response_model: Any = None,
        responses: Mapping[int | str, Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        """Keep the classes of answers for OpenAPI from the framework, which would make models of them."""
        said = {status: dict(each) for status, each in (responses or {}).items()}
        models = {status: each.pop("model") for status, each in said.items() if "model" in each}
        if isinstance(response_model, DefaultPlaceholder):
            response_model = response_model.value
        if response_model is not None:
            models[options.get("status_code") or 200] = response_model
        self.answers: Final[Mapping[int | str, Any]] = models
        """The class of the JSON answer by status."""
        super().__init__(path, endpoint, response_model=None, responses=said, **options)

    @cached_property
    def query(self) -> QueryNames:
        """Names of the query parameters that the handler declares, in its signature or in `openapi_extra`."""
        kinds = {field.alias: field.field_info.annotation for field in _fields(self.dependant, "query_params")}
        extra = QueryNames.of((self.openapi_extra or {}).get("parameters", ()))
        repeatable = {name for name, kind in kinds.items() if _takes(list, kind)}
        integers = {name for name, kind in kinds.items() if _takes(int, kind)}
        return QueryNames(kinds.keys() | extra.known, repeatable | extra.repeatable, integers | extra.integers)

    @cached_property
    def offers(self) -> tuple[str, ...]:
        """Media types of the answers below `/v1`; none where answers have no content, or views choose."""
        if not self.is_strict or not self.path.startswith("/v1/"):
            return ()
        done = [said for status, said in self.responses.items() if str(status) < "3"]
        found = dict.fromkeys(media for said in done for media in said.get("content", ()))
        kind = self.response_class.value if isinstance(self.response_class, DefaultPlaceholder) else self.response_class
        if self.answers or not found:
            found |= {kind.media_type: None} if kind.media_type and self.status_code != 204 else {}
        return tuple(found)

    @cached_property
    def conditions(self) -> frozenset[str]:
        """Names of the conditional headers that the handler, or what it depends on, declares."""
        return _CONDITIONS & {each.alias.lower() for each in _fields(self.dependant, "header_params")}

    def _check_conditions(self, fields: Fields) -> None:
        """Refuse conditions that would not be evaluated: the client relies on them."""
        for name in sorted(_CONDITIONS - self.conditions):
            if name.encode() in fields:
                advice = "send the `ETag` in If-Match" if self.conditions else "send the request without it"
                raise HttpProblem(PRECONDITION, f"This operation does not evaluate {name}, and did nothing: {advice}")

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the framework's handler, which reads JSON strictly."""
        handler = super().get_route_handler()
        if self.body_field is None:
            return handler

        async def reading(request: Request) -> Response:
            if self.is_strict:
                _check_json(read_fields(request.scope))
            return await handler(StrictRequest(request.scope, request.receive))

        return reading

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Ask the gate, check the query, and guard the body; one declared too long is refused unread."""
        found, fields = None, read_fields(scope)
        if scope["method"] in (self.methods or ()):  # of any other, the framework tells which there are
            row = f"{scope['method']} {self.path}"
            found = await scope["app"].state.services.admit(scope, fields, row, scope["path_params"])
            if self.is_strict and not is_query_foreign(self.endpoint):
                self.query.read(scope["query_string"])
            if self.is_strict and scope["method"] not in {"GET", "HEAD", "OPTIONS"}:
                self._check_conditions(fields)
            if self.offers:
                choose(fields.get(b"accept"), self.offers)
            if said := (self.openapi_extra or {}).get("x-deprecated"):
                send = with_headers(send, _deprecation(scope, **said))
        terms = terms_of(self.endpoint)
        settings: Settings = scope["app"].state.services.settings
        limit = terms.longest(fields, scope["query_string"], settings)
        size = int(fields.get(b"content-length", "0"))
        if size > limit:
            raise too_long(limit)
        if size and terms.counts_for_quota and found is not None:
            await found.stores.quotas.check(stored_bytes=size)
        digest = BodyDigest(fields) if terms.digest_checked else None
        declared = None if b"transfer-encoding" in fields else size
        body = context_of(scope).body = GuardedBody(receive, limit, settings, digest, size=declared)
        await super().handle(scope, body, send)


def _deprecation(scope: Scope, since: str, successor: str) -> Headers:
    """Return headers of a deprecated operation (RFC 9745), which name the row of its successor."""
    moment = datetime.fromisoformat(f"{since}T00:00:00Z").timestamp()
    path = public_path(scope) + scope["root_path"] + successor.partition(" ")[2]
    link = f'<{path}>; rel="successor-version"'
    return [(b"deprecation", b"@%d" % moment), (b"link", link.encode("ascii"))]


def _check_json(fields: Fields) -> None:
    """Refuse a body that is not said to be JSON: no other is read."""
    media = media_type_of(fields)
    is_empty = fields.get(b"content-length", "0") == "0" and b"transfer-encoding" not in fields
    if is_empty or media == JSON or media.endswith("+json"):
        return
    raise HttpProblem(
        MEDIA, f"Send the body with Content-Type: {JSON}, not {media[:80] or 'without a type'}", offers=[JSON]
    )


def foreign_query(handler: Handler) -> Handler:
    """Mark the handler of a URL whose query is for other programs, such as a script, and is not checked."""
    setattr(handler, _FOREIGN, True)
    return handler


def is_query_foreign(handler: Callable[..., Any]) -> bool:
    """Return True for a handler marked by `foreign_query`."""
    return getattr(handler, _FOREIGN, False)


class GuardedRouter(APIRouter):
    """Router of guarded routes; compares with them only paths that begin as one of theirs."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"route_class": GuardedRoute} | options)

    @cached_property
    def paths(self) -> frozenset[str]:
        """Paths of the routes without parameters."""
        return frozenset(path for path in self._templates() if "{" not in path)

    @cached_property
    def beginnings(self) -> tuple[str, ...]:
        """Paths of the other routes up to their first parameters."""
        return tuple({path.partition("{")[0] for path in self._templates() if "{" in path})

    @property
    def beginning(self) -> str:
        """A path that is compared with the routes."""
        return next(iter((*self.paths, *self.beginnings)))

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match the routes; a path of another router costs one comparison in place of one for each route."""
        path = scope["path"].removeprefix(scope["root_path"])
        if path not in self.paths and not path.startswith(self.beginnings):
            return Match.NONE, {}
        return super().matches(scope)

    def _templates(self) -> Iterator[str]:
        route: Any
        for route in self.routes:
            yield route.path


def rows_of(routes: Iterable[Any]) -> set[str]:
    """Rows that the table of rules needs for `routes`; `RuntimeError` for a route beside the gate."""
    return {row for row, _ in routes_of(routes)}


def routes_of(routes: Iterable[Any]) -> Iterator[tuple[str, GuardedRoute]]:
    """Rows of the table of rules with their routes, in the order of matching; see `rows_of`."""
    for route in routes:
        if included := getattr(route, "original_router", None):
            yield from routes_of(included.routes)
        elif isinstance(route, GuardedRoute):
            for method in (route.methods or set()) - {"HEAD"}:
                yield f"{method} {route.path}", route
        else:
            raise RuntimeError(f"{route!r} is not a GuardedRoute: its access would not be checked")


def _fields(dependant: Dependant, kind: str) -> Iterator[Any]:
    """Return fields of a kind of parameters of a handler, and of what it depends on."""
    yield from getattr(dependant, kind)
    for each in dependant.dependencies:
        yield from _fields(each, kind)


def _takes(kind: type, annotation: Any) -> bool:
    """Return True for the annotation of a kind, such as a list, which may be optional."""
    return kind in {annotation, get_origin(annotation)} or any(_takes(kind, each) for each in get_args(annotation))
