"""Makes the OpenAPI document from the framework's routes and the table of views."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute

from protoslice.build import build
from protoslice.server.api.encoding import json_schemas
from protoslice.server.api.models import ProblemModel
from protoslice.server.api.views import VIEWS, View
from protoslice.server.auth.permissions import Rule
from protoslice.server.problems import MEDIA_TYPE, PROBLEMS
from protoslice.server.request.middleware import OPERATING
from protoslice.server.routing import BINARY, Route, header, routes_of

_PROBLEM_SCHEMA: Final = {"$ref": "#/components/schemas/ProblemModel"}
_SEEN: Final = {"description": "Not modified: the client has the current version."}
_ALWAYS: Final = (400, 408, 421, 431, 500, 503)
_RETRY: Final = {503}
_REQUEST_ID: Final = {"x-request-id": header("Request id, as in logs and problems; the client may choose it.")}


def _described(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses for an operation's failures, including the failures that all operations share."""
    return {status: _problem(status) for status in sorted({*statuses, *_ALWAYS})}


def _problem(status: int) -> dict[str, Any]:
    found = [problem for problem in PROBLEMS if problem.status == status]
    headers = dict(_REQUEST_ID)
    if status in _RETRY:
        headers["retry-after"] = header("Seconds to wait.", "integer")
    examples = {problem.slug: {"value": _example(problem)} for problem in found}
    return {
        "description": "; ".join(problem.title for problem in found),
        "headers": headers,
        "content": {MEDIA_TYPE: {"schema": _PROBLEM_SCHEMA, "examples": examples}},
    }


def _example(problem: Any) -> dict[str, Any]:
    return {
        "type": problem.type,
        "title": problem.title,
        "status": problem.status,
        "detail": problem.advice,
        "request_id": "5f2b9c0d1e3a47788899aabb",
    }


_DIGEST: Final = {
    "name": "Content-Digest",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "Digest of the body, which the service verifies: `sha-256=:<base64>:`.",
}
_CHANGING: Final = frozenset({"post", "put", "patch", "delete"})
_NAME: Final = "^[a-z0-9][a-z0-9-]{0,62}$"
_TAG: Final = "^[A-Za-z0-9][A-Za-z0-9._:@~+-]{0,127}$"
_PATTERNS: Final = {
    "/v1/stores/{ref}": "^(mlflow-artifacts:/.*|[A-Za-z0-9_][A-Za-z0-9._:@~+/-]*)$",
    "/v1/schemas/{name}": _TAG,
    "/v1/spaces/{space}": _NAME,
    "/v1/stores/{id}": "^[0-9a-f]{64}$",
    "/v1/tags/{tag}": _TAG,
    "/v1/tokens/{id}": "^[0-9A-Za-z]{10}$",
    "/v1/uploads/{upload}": "^[0-9a-f]{10}-[0-9a-f]{20}$",
    "/v1/webhooks/{name}": _NAME,
    "/problems/{slug}": "^[a-z-]+$",
}
"""Patterns of path parameters, keyed by the path up to the parameter.

Any other path parameter has only a maximum length.
"""
_LONGEST_PATH: Final = 65_536
_SECURITY: Final = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An access token. A service that is open needs none.",
    },
    "basic": {"type": "http", "scheme": "basic", "description": "Any user name, and an access token as the password."},
}
_REQUEST_HEADERS: Final = {
    "If-Match": "Respond only if the representation has one of these entity tags.",
    "If-None-Match": "Respond with 304 if the representation has one of these entity tags.",
    "Want-Repr-Digest": "`sha-256=0` leaves out the digest.",
    "Want-Content-Digest": "`sha-256=1` asks for the digest of the bytes sent, if available.",
}
_RANGE_HEADERS: Final = {
    "Range": "One or more ranges: `bytes=0-4095`, `bytes=-100`, `bytes=0-9,100-199`.",
    "If-Range": "Use the ranges only if the representation has this entity tag.",
}
_KEPT: Final = {
    "etag": header("Strong entity tag of this representation."),
    "cache-control": header("Immutable for an id; must be revalidated for a tag."),
    "content-location": header("Permanent URL, if different from the requested one."),
    "vary": header("Request headers that select the representation."),
    **_REQUEST_ID,
}
_DESCRIBED: Final = {
    **_KEPT,
    "accept-ranges": header("`bytes`; `none` for rendered formats."),
    "content-disposition": header("Name for the download."),
    "content-length": header("Length of the body; always present.", "integer"),
    "repr-digest": header("SHA-256 of the whole representation, if known."),
    "content-digest": header("SHA-256 of the bytes sent, if requested."),
    "x-protobuf-message": header("Full name of the message type, if known."),
    "x-tensor-dtype": header("Type of the tensor's elements."),
    "protoslice-omitted": header(
        'Tensors that were left out: `count=2, names=("words" "odd%20name")`, at most ten names.'
    ),
    "x-tensor-shape": header("Shape of the tensor: lengths separated by commas; empty for a scalar."),
}


def openapi_document(routes: Sequence[BaseRoute], rules: Mapping[str, Rule]) -> dict[str, Any]:
    """Return the OpenAPI document of these routes and views. `rules` maps each route's method and path to its rule."""
    shown = [(row, route) for row, route in routes_of(routes) if route.include_in_schema]
    described = dict(sorted(shown, key=lambda each: isinstance(each[1], View)))
    document = get_openapi(
        title="Protoslice",
        version=build(),
        summary="Protobuf files of any size, served in parts",
        description="Upload protobuf models of any size; download chunks, files and merged parts by range. "
        "Every `GET` also takes `HEAD`, which returns the same headers without a body.",
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        routes=list(described.values()),
        tags=[
            {
                "name": "spaces",
                "description": "Isolated tenants with their own stores, tags and schemas, below `/spaces/{space}`.",
            },
            {
                "name": "webhooks",
                "description": "URLs that receive the events of a space, and their deliveries.",
            },
            {"name": "tokens", "description": "Access tokens."},
            {"name": "audit", "description": "Changes, and who made them."},
            {"name": "sessions", "description": "Browser sign-in."},
            {"name": "stores", "description": "Immutable sets of files, one of which may be the root proto."},
            {"name": "uploads", "description": "Uploads that survive interruptions: tus 1.0."},
            {"name": "views", "description": "What can be read from a store."},
            {
                "name": "chunks",
                "description": "Deduplication: parts of files (pieces) that need not be sent or downloaded again.",
            },
            {"name": "tags", "description": "Movable names of stores."},
            {"name": "repositories", "description": "Repositories of model registries, and their versions."},
            {"name": "schemas", "description": "Message types from uploaded descriptor sets."},
            {"name": "operations", "description": "Health, metrics and help."},
        ],
    )
    kinds = [kind for route in described.values() for kind in route.answers.values()]
    kinds += [ProblemModel, *(kind for view in VIEWS for kind in view.json)]
    schemas, definitions = json_schemas(dict.fromkeys(kinds))
    for row, route in described.items():
        operation = document["paths"][route.path_format][row.partition(" ")[0].lower()]
        _describe(operation, route)
        for status, kind in route.answers.items():
            operation["responses"][str(status)]["content"] = {"application/json": {"schema": schemas[kind]}}
        if isinstance(route, View):
            operation["responses"] |= _responses(route, [schemas[kind] for kind in route.json])
    state = document["paths"]["/v1/uploads/{upload}"]
    state["head"] = _head_of(state["get"])
    document["components"]["schemas"] |= definitions
    _finish(document, {row.replace(":path}", "}"): rule for row, rule in rules.items()})
    return document


def _describe(operation: dict[str, Any], route: Route) -> None:
    """Add the facts about a route that FastAPI does not know."""
    responses: dict[str, Any] = operation["responses"]
    failures = {*route.fails, *([412] if route.cached else ()), *([422] if "422" in responses else ())}
    if route.cached:
        responses["304"] = _SEEN
    responses |= {str(status): described for status, described in _described(*failures).items()}
    if route.deprecation is not None:
        operation["x-deprecated"] = route.deprecation._asdict()


def _head_of(operation: Mapping[str, Any]) -> dict[str, Any]:
    """Derive the HEAD operation from a GET operation, for protocols whose clients use HEAD."""
    responses = {status: {**said} for status, said in operation["responses"].items()}
    for each in responses.values():
        each.pop("content", None)
    named = {"operationId": f"{operation['operationId']}_head", "summary": f"{operation['summary']}: headers only"}
    return {**operation, **named, "responses": responses}


def _responses(view: View, answers: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    content = {media: {"schema": _schema(media, answers)} for media in _media_types(view)}
    parts = {media: {"schema": BINARY} for media in (*_media_types(view), "multipart/byteranges")}
    position = header("Position of the part; only for a single range.")
    return {
        "200": {"description": "The whole representation.", "headers": _DESCRIBED, "content": content},
        "206": {
            "description": "The requested ranges.",
            "headers": {**_DESCRIBED, "content-range": position},
            "content": parts,
        },
        "304": {"description": "Not modified: the client has the current version.", "headers": _KEPT},
    }


def _media_types(view: View) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{media}; charset=utf-8" if _is_text(media) else media for media in view.media_types))


def _is_text(media: str) -> bool:
    return media.endswith("json") or media.startswith("text/")


def _schema(media: str, answers: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    if media.startswith("application/json;") and answers:
        return {"anyOf": answers} if len(answers) > 1 else answers[0]
    if media.partition(";")[0].endswith("json"):
        return {}
    return {"type": "string"} if media.startswith("text/") else BINARY


def _finish(document: dict[str, Any], rules: Mapping[str, Rule]) -> None:
    """Add the parts that all operations share."""
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    document["components"]["securitySchemes"] = _SECURITY
    shared: dict[str, Any] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            rule = rules[f"{'GET' if method == 'head' else method.upper()} {path}"]
            asked = [{name: [rule.scope.value]} for name in _SECURITY] if rule.scope is not None else []
            operation["security"] = [*asked, {}] if asked else []
            operation["parameters"] = [_bounded(path, each) for each in operation.get("parameters", ())]
            if "requestBody" in operation:
                operation["parameters"].append(_DIGEST)
            if "206" in operation["responses"]:
                operation["parameters"] += [_header(*each) for each in (_RANGE_HEADERS | _REQUEST_HEADERS).items()]
            elif "304" in operation["responses"]:
                operation["parameters"] += _conditions(operation["parameters"])
            said = _problems(method, _common(method, path, operation, rule)) | operation["responses"]
            operation["responses"] = {
                status: _shared(shared, status, each, method) for status, each in sorted(said.items())
            }
    document["components"]["responses"] = dict(sorted(shared.items()))
    _bound_numbers(document)


def _common(method: str, path: str, operation: Mapping[str, Any], rule: Rule) -> set[int]:
    """Return the failure statuses that an operation shares with all operations of its kind."""
    found = {400} if path in OPERATING else {400, 429}
    if rule.scope is not None:
        found |= {401, 403, 404}
    if method in _CHANGING:
        found |= {403, 412}
    if path.startswith("/v1/") and (method == "head" or _has_content(operation)):
        found.add(406)
    if "requestBody" in operation:
        found |= {413, 415}
    return found | ({507} if rule.changes(method.upper()) else set())


def _has_content(operation: Mapping[str, Any]) -> bool:
    return any("content" in said for status, said in operation["responses"].items() if status < "3")


def _conditions(parameters: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the conditional headers of a read, except headers that are already among its parameters."""
    known = {str(each["name"]).lower() for each in parameters}
    for name in ("If-Match", "If-None-Match"):
        if name.lower() not in known:
            yield _header(name, _REQUEST_HEADERS[name])


def _header(name: str, said: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": said, "schema": {"type": "string"}}


def _problems(method: str, statuses: Iterable[int]) -> dict[str, dict[str, Any]]:
    found = _described(*statuses)
    if method == "head":
        for each in found.values():
            each.pop("content")
    return {str(status): said for status, said in found.items()}


def _bounded(path: str, parameter: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter in its final form.

    A path parameter gets its pattern or its maximum length. A header's name gets capital initials.
    """
    if parameter["in"] == "header":
        return {**parameter, "name": parameter["name"].title()}
    if parameter["in"] != "path" or parameter["schema"].get("type") != "string" or "enum" in parameter["schema"]:
        return parameter
    pattern = _PATTERNS.get(path.partition(f"{{{parameter['name']}}}")[0] + f"{{{parameter['name']}}}")
    bounds = {"maxLength": _LONGEST_PATH} if pattern is None else {"pattern": pattern}
    return {**parameter, "schema": {**parameter["schema"], "minLength": 1, **bounds}}


def _bound_numbers(part: Any) -> None:
    """Add a format and inclusive bounds to integers, because all client generators understand these."""
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _bound_numbers(each)
    if isinstance(part, dict) and part.get("type") == "integer":
        for bound, name, step in (("exclusiveMaximum", "maximum", -1), ("exclusiveMinimum", "minimum", 1)):
            if bound in part:
                part[name] = int(part.pop(bound)) + step
        part.setdefault("format", "int32" if -(1 << 31) <= part.get("maximum", 1 << 31) < 1 << 31 else "int64")


def _shared(shared: dict[str, Any], status: str, said: dict[str, Any], method: str) -> dict[str, Any]:
    """Return a reference to a failure. The document describes the failure once for all operations."""
    if int(status) < 400:
        return said
    name = f"Problem{status}{'Head' if method == 'head' else ''}"
    if shared.setdefault(name, said) != said:
        raise AssertionError(f"operations say different things of {status}")
    return {"$ref": f"#/components/responses/{name}"}
