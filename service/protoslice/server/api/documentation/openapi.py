"""The OpenAPI document: what the framework knows of its routes, and the views from their own table."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from protoslice.server.api.documentation.openapi_fragments import BINARY, REQUEST_ID, header, problems
from protoslice.server.api.models import ProblemModel
from protoslice.server.api.views import VIEWS, StoreView

VERSION: Final = "1"
_DIGEST: Final = {
    "name": "Content-Digest",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "Digest of the body, verified: `sha-256=:<base64>:`.",
}
_CHANGING: Final = frozenset({"post", "put", "patch", "delete"})
_REF: Final = {
    "name": "ref",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "A store's id, an unambiguous beginning of one (12 digits or more), or a tag.",
    "example": "resnet50:3",
}
_REST: Final[dict[str, dict[str, Any]]] = {
    "path": {
        "schema": {"type": "string"},
        "description": "The file's path; may hold slashes.",
        "example": "model.onnx",
    },
    "name": {
        "schema": {"type": "string"},
        "description": "The name of the tensor, or its address; may hold slashes.",
        "example": "conv1.weight",
    },
    "n": {"schema": {"type": "integer", "minimum": 0}, "description": "The number, from 0.", "example": 0},
}
_REQUEST_HEADERS: Final = {
    "If-Match": "Answer only if the representation has one of these entity tags.",
    "If-None-Match": "Answer 304 if the representation has one of these entity tags.",
    "Want-Repr-Digest": "`sha-256=0` leaves the digest out.",
    "Want-Content-Digest": "`sha-256=1` asks for the digest of the bytes sent, where that is at hand.",
}
_RANGE_HEADERS: Final = {
    "Range": "One or several ranges: `bytes=0-4095`, `bytes=-100`, `bytes=0-9,100-199`.",
    "If-Range": "Take ranges only of the representation with this entity tag.",
}
_KEPT: Final = {
    "etag": header("Strong; of this representation."),
    "cache-control": header("Immutable under an id; revalidated under a tag."),
    "content-location": header("The lasting URL, when the one asked is not."),
    "vary": header("What chooses the representation."),
    **REQUEST_ID,
}
_DESCRIBED: Final = {
    **_KEPT,
    "accept-ranges": header("`bytes`; `none` for rendered forms."),
    "content-disposition": header("A name for the download."),
    "content-length": header("Always there.", "integer"),
    "repr-digest": header("sha-256 of the whole representation, where it is known."),
    "content-digest": header("sha-256 of the bytes sent, where it was asked for."),
    "x-protobuf-message": header("Full name of the message's type, where it is known."),
    "x-tensor-dtype": header("The type of a tensor's elements."),
    "protoslice-omitted": header(
        'Tensors that were left out: `count=2, names=("words" "odd%20name")`, at most ten names.'
    ),
    "x-tensor-shape": header("A tensor's shape: lengths with commas between, nothing for a scalar."),
}


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """The document of `app`."""
    document = get_openapi(
        title="Protoslice",
        version=VERSION,
        summary="Big protobufs, part by part",
        description="Upload a protobuf of any size; pull chunks, files and merged parts of it by range.",
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        routes=app.routes,
        tags=[
            {"name": "spaces", "description": "Stores, tags and schemas behind a wall, below `/spaces/{space}`."},
            {
                "name": "webhooks",
                "description": "Addresses that a space tells of its changes, and what was sent to each.",
            },
            {"name": "tokens", "description": "Who may do what in a space."},
            {"name": "sessions", "description": "Signing in, of people with a browser."},
            {"name": "stores", "description": "Immutable sets of files, one of which may be the root proto."},
            {"name": "uploads", "description": "Uploads that survive interruptions: tus 1.0, and the IETF draft."},
            {"name": "views", "description": "What a store can be read as."},
            {"name": "chunks", "description": "What need not be sent or fetched, because it is there."},
            {"name": "tags", "description": "Movable names for stores."},
            {"name": "repositories", "description": "Repositories of registries, and their versions."},
            {"name": "schemas", "description": "Message types out of uploaded descriptor sets."},
            {"name": "operations", "description": "Health, metrics, help."},
        ],
    )
    for view in VIEWS:
        methods = {method: _operation(view, method) for method in ("get", "head")}
        document["paths"][view.path.replace(":path}", "}")] = methods
    _finish(document)
    return document


def _operation(view: StoreView, method: str) -> dict[str, Any]:
    head = method == "head"
    return {
        "tags": ["views"],
        "operationId": f"{view.operation}_head" if head else view.operation,
        "summary": view.summary + (": the headers alone" if head else ""),
        "description": view.description,
        "parameters": _parameters(view, ranged=not head),
        "responses": _responses(view, head=head),
    }


def _parameters(view: StoreView, *, ranged: bool) -> list[dict[str, Any]]:
    rest = (view.rest or "").partition(":")[0]
    found = [_REF, *([{"name": rest, "in": "path", "required": True, **_REST[rest]}] if rest else []), *view.parameters]
    headers = {**(_RANGE_HEADERS if ranged else {}), **_REQUEST_HEADERS}
    return [
        *found,
        *(
            {"name": name, "in": "header", "required": False, "description": said, "schema": {"type": "string"}}
            for name, said in headers.items()
        ),
    ]


def _responses(view: StoreView, *, head: bool) -> dict[str, Any]:
    content = {media: {"schema": _schema(media)} for media in _media_types(view)}
    found: dict[int | str, dict[str, Any]] = {
        200: {"description": "The whole.", "headers": _DESCRIBED, **({} if head else {"content": content})},
        304: {"description": "The client has it already.", "headers": _KEPT},
    }
    statuses = [404, 409, 412, 413, 422, *([406] if view.rendered else [])]
    if not head:
        headers = {**_DESCRIBED, "content-range": header("Where the part lies; only with a single range.")}
        parts = {
            **{media: {"schema": BINARY} for media in _media_types(view)},
            "multipart/byteranges": {"schema": BINARY},
        }
        found[206] = {"description": "The ranges asked for.", "headers": headers, "content": parts}
        statuses.append(416)
    failures = problems(*statuses)
    if head:
        for each in failures.values():
            each.pop("content")
    return {str(status): said for status, said in sorted({**found, **failures}.items(), key=lambda item: str(item[0]))}


def _media_types(view: StoreView) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{media}; charset=utf-8" if _is_text(media) else media for media in view.media_types))


def _is_text(media: str) -> bool:
    return media.endswith("json") or media.startswith("text/")


def _schema(media: str) -> dict[str, Any]:
    return (
        {} if media.partition(";")[0].endswith("json") else {"type": "string"} if media.startswith("text/") else BINARY
    )


def _finish(document: dict[str, Any]) -> None:
    """Replace the framework's own 422 by our problems, and add the parts that it leaves out."""
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    model = ProblemModel.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(model.pop("$defs", {}))
    schemas["ProblemModel"] = model
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    shared: dict[str, Any] = {}
    for operations in document["paths"].values():
        for method, operation in operations.items():
            _drop_validation(operation["responses"])
            if "requestBody" in operation:
                operation["parameters"] = [*operation.get("parameters", ()), _DIGEST]
            if method in _CHANGING:
                operation["responses"].setdefault("403", problems(403)[403])
            operation["responses"] = {
                status: _shared(shared, status, said, method) for status, said in sorted(operation["responses"].items())
            }
    document["components"]["responses"] = dict(sorted(shared.items()))


def _shared(shared: dict[str, Any], status: str, said: dict[str, Any], method: str) -> dict[str, Any]:
    """A failure is said once for all operations."""
    if int(status) < 400:
        return said
    name = f"Problem{status}{'Head' if method == 'head' else ''}"
    if shared.setdefault(name, said) != said:
        raise AssertionError(f"operations say different things of {status}")
    return {"$ref": f"#/components/responses/{name}"}


def _drop_validation(responses: dict[str, Any]) -> None:
    content = responses.get("422", {}).get("content", {})
    if "application/json" in content:
        content.pop("application/json")
        if not content:
            responses.pop("422")
