"""Routes. Each route declares path, access, body, answer and failures once, for routing, permissions and OpenAPI."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_origin

from fastapi import Request
from fastapi.datastructures import DefaultPlaceholder
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from protoslice.server.auth.permissions import Rule
from protoslice.server.context import context_of, public_path
from protoslice.server.http.digests import BodyDigest
from protoslice.server.http.headers import HeaderMap, Headers, media_type_of, read_fields, with_headers
from protoslice.server.http.negotiation import JSON, choose
from protoslice.server.http.query import QueryNames
from protoslice.server.http.responses import StrictRequest
from protoslice.server.problems import MEDIA, METHOD, PRECONDITION, HttpProblem
from protoslice.server.request.body import JSON_BODY, BodyLimits, LimitedBody, too_long
from protoslice.server.request.failures import Render, render_problem
from protoslice.server.services import ServerState

Handler = TypeVar("Handler", bound=Callable[..., Any])

_CONDITIONS: Final = frozenset({"if-match", "if-none-match", "if-unmodified-since"})
"""The conditional headers of writes (RFC 9110, section 13.1)."""


BINARY: Final = {"type": "string", "format": "binary"}
"""The schema of bytes in the OpenAPI document."""


def header(description: str, kind: str = "string") -> dict[str, Any]:
    """Return a response header in the form of the OpenAPI document."""
    return {"description": description, "schema": {"type": kind}}


class Deprecated(NamedTuple):
    """The deprecation of an operation: its date, and the method and path of the successor."""

    since: str
    successor: str


class Route(APIRoute):
    """A route that checks the rule, the query, the conditions and the body of a request before the handler runs."""

    def __init__(  # noqa: PLR0913 - the columns of a row
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        rule: Rule,
        body: BodyLimits = JSON_BODY,
        any_query: bool = False,
        answer: Any = None,
        fails: Iterable[int] = (),
        cached: bool = False,
        deprecated: Deprecated | None = None,
        render: Render = render_problem,
        strict: bool = True,
        responses: Mapping[int | str, Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        """Declare a route.

        `rule` says who may call the route, and `body` limits the body. `any_query` turns off the check of the query,
        for URLs whose query is for other programs, such as a script. `answer` is the class of the JSON answer. `fails`
        lists statuses of problems that not all routes of this kind have. `cached` says that the answer has an entity
        tag for conditions.

        Routes of other protocols have a `render` function, which makes their answers to failed requests. With `strict`
        off, a route ignores unknown query parameters and conditions of writes, as other servers of its protocol do.
        Further `options` are the options of FastAPI's route.
        """
        described = {status: dict(each) for status, each in (responses or {}).items()}
        # FastAPI would make models of these classes, and encode the answers a second time.
        models = {status: each.pop("model") for status, each in described.items() if "model" in each}
        if answer is not None:
            models[options.get("status_code") or 200] = answer
        self.answers: Final[Mapping[int | str, Any]] = models
        """The classes of the JSON answers by status."""
        self.rule, self.body_limits, self.any_query = rule, body, any_query
        self.render, self.is_strict = render, strict
        self.fails, self.cached, self.deprecation = frozenset(fails), cached, deprecated
        super().__init__(
            path,
            endpoint,
            response_model=None,
            responses=described,
            deprecated=True if deprecated else None,
            **options,
        )

    @cached_property
    def query(self) -> QueryNames:
        """The names of the query parameters that the handler declares, in its signature or in `openapi_extra`."""
        kinds = {field.alias: field.field_info.annotation for field in _fields(self.dependant, "query_params")}
        extra = QueryNames.of((self.openapi_extra or {}).get("parameters", ()))
        repeatable = {name for name, kind in kinds.items() if _takes(list, kind)}
        integers = {name for name, kind in kinds.items() if _takes(int, kind)}
        return QueryNames(kinds.keys() | extra.known, repeatable | extra.repeatable, integers | extra.integers)

    @cached_property
    def offers(self) -> tuple[str, ...]:
        """The media types of answers below `/v1`.

        The result is empty if answers have no content, or if views choose the type.
        """
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
        """The names of the conditional headers that the handler or one of its dependencies declares."""
        return _CONDITIONS & {each.alias.lower() for each in _fields(self.dependant, "header_params")}

    def _check_conditions(self, fields: HeaderMap) -> None:
        """Refuse conditions that would not be evaluated, because the client relies on them."""
        for name in sorted(_CONDITIONS - self.conditions):
            if name.encode() in fields:
                advice = "send the `ETag` in If-Match" if self.conditions else "send the request without it"
                raise HttpProblem(
                    PRECONDITION, f"This operation does not support {name}; nothing was changed: {advice}"
                )

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the framework's handler. It parses JSON strictly."""
        handler = super().get_route_handler()
        if self.body_field is None:
            return handler

        async def reading(request: Request) -> Response:
            if self.is_strict:
                _check_json(read_fields(request.scope))
            return await handler(StrictRequest(request.scope, request.receive))

        return reading

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the request's permissions and query, limit its body, and call the handler.

        A body whose declared length is too long is refused before it is read.
        """
        context = context_of(scope)
        context.route, context.render = self.path, partial(self.render, scope)
        if scope["method"] not in (self.methods or ()):
            raise method_not_allowed(scope)
        services: ServerState = scope["app"].services
        fields = read_fields(scope)
        found = await services.admit(scope, fields, self.rule, scope["path_params"])
        if self.is_strict and not self.any_query:
            self.query.read(scope["query_string"])
        if self.is_strict and scope["method"] not in {"GET", "HEAD", "OPTIONS"}:
            self._check_conditions(fields)
        if self.offers:
            choose(fields.get(b"accept"), self.offers)
        if self.deprecation is not None:
            send = with_headers(send, _deprecation_headers(scope, self.deprecation))
        limit = self.body_limits.longest(fields, scope["query_string"], services.settings)
        size = int(fields.get(b"content-length", "0"))
        if size > limit:
            raise too_long(limit)
        if size and self.body_limits.counts_for_quota:
            await found.stores.quotas.check(stored_bytes=size)
        digest = BodyDigest(fields) if self.body_limits.digest_checked else None
        declared = None if b"transfer-encoding" in fields else size
        body = context.body = LimitedBody(receive, limit, services.settings, digest, size=declared)
        await super().handle(scope, body, send)


class RouteGroup(BaseRoute):
    """The routes of one resource.

    If a path belongs to another resource, a single comparison rules out all routes of the group.
    """

    def __init__(self, **options: Any) -> None:
        """Make an empty group, whose routes share `options`."""
        self.routes: Final[list[Route]] = []
        self._options = options
        self._paths: set[str] = set()
        self._prefixes: tuple[str, ...] = ()

    def add(self, path: str, handler: Callable[..., Any], **options: Any) -> None:
        """Add a route. Raise `TypeError` if it has no `rule`."""
        route = Route(path, handler, **{**self._options, **options})
        self.routes.append(route)
        prefix, parameter, _ = path.partition("{")
        if parameter:
            self._prefixes = tuple({*self._prefixes, prefix})
        else:
            self._paths.add(path)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match the first route with this path and method. Otherwise match the first route with this path."""
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        if path not in self._paths and not path.startswith(self._prefixes):
            return Match.NONE, {}
        partial: tuple[Match, Scope] = Match.NONE, {}
        for route in self.routes:
            match, child = route.matches(scope)
            if match is Match.FULL:
                return match, child
            if match is Match.PARTIAL and partial[0] is Match.NONE:
                partial = match, child
        return partial

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the route that matched."""
        await scope["route"].handle(scope, receive, send)


def endpoint(
    group: RouteGroup,
    row: str,
    rule: Rule,
    *,
    status: int = 200,
    operation: str | None = None,
    experimental: bool = False,
    **options: Any,
) -> Callable[[Handler], Handler]:
    """Make the decorated function answer the calls of `row`, which is a method and a path, such as `GET /v1/tags`.

    `experimental` says that the call may change within `/v1`. `options` are the options of `Route`. The function's
    docstring is the description of the operation. The function's name is the operation's name, unless `operation` is
    set.
    """
    method, _, path = row.partition(" ")
    if experimental:
        options["openapi_extra"] = {**options.get("openapi_extra", {}), "x-stability": "experimental"}

    def add(handler: Handler) -> Handler:
        group.add(
            path,
            handler,
            rule=rule,
            methods=[method],
            operation_id=operation or handler.__name__,
            status_code=None if status == 200 else status,
            **options,
        )
        return handler

    return add


def routes_of(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, Route]]:
    """Yield each route with its method and path, in the order of matching.

    Raise `RuntimeError` for a route that has no rule.
    """
    for route in routes:
        if isinstance(route, RouteGroup):
            yield from routes_of(route.routes)
        elif isinstance(route, Route):
            for method in (route.methods or set()) - {"HEAD"}:
                yield f"{method} {route.path}", route
        else:
            raise RuntimeError(f"{route!r} is not a Route: its access would not be checked")


def method_not_allowed(scope: Scope) -> HttpProblem:
    """Return the problem for a request whose path only has routes for other methods."""
    return HttpProblem(METHOD, METHOD.advice, headers={"allow": ", ".join(_allowed(scope))})


def _allowed(scope: Scope) -> Iterator[str]:
    routes: Iterable[BaseRoute] = scope["app"].router.routes
    for method in ("GET", "PUT", "POST", "PATCH", "DELETE"):
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes):
            yield method
            if method == "GET":
                yield "HEAD"


def _deprecation_headers(scope: Scope, deprecated: Deprecated) -> Headers:
    """Return the headers of a deprecated operation (RFC 9745). These headers name the operation's successor."""
    moment = datetime.fromisoformat(f"{deprecated.since}T00:00:00Z").timestamp()
    path = public_path(scope) + scope["root_path"] + deprecated.successor.partition(" ")[2]
    link = f'<{path}>; rel="successor-version"'
    return [(b"deprecation", b"@%d" % moment), (b"link", link.encode("ascii"))]


def _check_json(fields: HeaderMap) -> None:
    """Refuse a body that is not declared as JSON."""
    media = media_type_of(fields)
    is_empty = fields.get(b"content-length", "0") == "0" and b"transfer-encoding" not in fields
    if is_empty or media == JSON or media.endswith("+json"):
        return
    raise HttpProblem(
        MEDIA, f"Send the body with Content-Type: {JSON}, not {media[:80] or 'without a type'}", offers=[JSON]
    )


def _fields(dependant: Dependant, kind: str) -> Iterator[Any]:
    """Yield the parameters of one kind, such as `query_params`, that a handler and its dependencies declare."""
    yield from getattr(dependant, kind)
    for each in dependant.dependencies:
        yield from _fields(each, kind)


def _takes(kind: type, annotation: Any) -> bool:
    """Return True if the annotation, which may be optional, is of a kind such as a list."""
    return kind in {annotation, get_origin(annotation)} or any(_takes(kind, each) for each in get_args(annotation))
