"""Spaces in paths: splits a path into its space and the rest that routes match, and makes URLs in a space."""

from __future__ import annotations

import re
from typing import Annotated, Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from fastapi import Path
from pydantic import AfterValidator
from starlette.requests import Request
from starlette.types import Scope

from protoslice.catalog.spaces import DEFAULT_SPACE
from protoslice.server.context import public_path

_SPACE: Final = "protoslice.space"
_PATH: Final = re.compile(r"(/spaces/([a-z0-9][a-z0-9-]{0,62}))(/.*)", re.DOTALL)
_NAMED: Final = re.compile(
    rb"((?:/spaces/[^/]+)?/v1/stores/)"
    rb"([^/]*%2[Ff][^/%]*(?:@|:|%40|%3[Aa])[^/]*|mlflow-artifacts(?::|%3[Aa])%2[Ff][^/]*)(/.*)?",
    re.DOTALL,
)
"""The pattern of a store's path with a name from a registry: `owner%2Fname@revision` or `name%2Fof%2Fartifact:tag`."""
_SLASH: Final = "%2F"
_PLAIN_IN_PATHS: Final = "/:@!$&'()*+,;=~"


class SpacePath(NamedTuple):
    """A path that is split: its space, the beginning that names the space, and the rest."""

    space: str
    root: str
    path: str


def space_path(path: str) -> SpacePath:
    """Split a decoded path into its space and the rest. A path that names no space is in the default space."""
    found = _PATH.fullmatch(path) if path.startswith("/spaces/") else None
    return SpacePath(DEFAULT_SPACE, "", path) if found is None else SpacePath(found[2], found[1], found[3])


def resolve_space(scope: Scope) -> SpacePath:
    """Split a request's path into its space and the rest. Set `root_path` (ASGI), which routes skip when they match."""
    named = _NAMED.fullmatch(scope.get("raw_path") or b"")
    if named is not None:  # slashes in the name stay encoded, so that the name is one segment for all routes
        head, ref, rest = (unquote_to_bytes(part or b"").decode("utf-8", "replace") for part in named.groups())
        scope["path"] = head + ref.replace("/", _SLASH) + rest
    place = space_path(scope["path"])
    scope["root_path"], scope[_SPACE] = place.root, place.space
    return place


def space_of(scope: Scope) -> str:
    """Return the space of a request."""
    found: str = scope[_SPACE]
    return found


def url_of(scope: Scope, path: str) -> str:
    """Return the URL of `path` in the request's space, without scheme and host."""
    return public_path(scope) + _in_space(scope, path)


def absolute_url(scope: Scope, path: str) -> str:
    """Return the URL of `path` in the request's space, with scheme and host."""
    return service_url(scope) + _in_space(scope, path)


def asked_url(scope: Scope, *, absolute: bool = False) -> str:
    """Return the request's URL without its query. The path is exactly as the client sent it."""
    raw: bytes = scope["raw_path"]
    return (service_url(scope) if absolute else public_path(scope)) + raw.decode("latin-1")


def lasting_url(scope: Scope, store_id: str) -> str:
    """Return the request's URL with the store's id in place of the reference. The route must have matched.

    The decoded path is split, because the raw path may have fewer parts: a request may encode slashes as `%2F`.
    """
    root: str = scope.get("root_path", "")
    rest = quote(scope["path"].removeprefix(root).split("/", 4)[4], safe=_PLAIN_IN_PATHS)
    query: bytes = scope["query_string"]
    return url_of(scope, f"/v1/stores/{store_id}/{rest}") + (f"?{query.decode('latin-1')}" if query else "")


def service_url(scope: Scope) -> str:
    """Return the URL at which clients reach the service. The configured URL takes precedence over the request's."""
    url = Request(scope).url
    return _public_url(scope) or f"{url.scheme}://{url.netloc}"


def _public_url(scope: Scope) -> str:
    found: str = scope["app"].services.settings.public_url
    return found


def _in_space(scope: Scope, path: str) -> str:
    root: str = scope.get("root_path", "")
    return root + path


def plain_ref(ref: str) -> str:
    """Return a reference from a path with its slashes decoded."""
    return ref.replace(_SLASH, "/")


Ref = Annotated[
    str,
    AfterValidator(plain_ref),
    Path(
        description="Id of the store, its first 12 or more digits, a tag, or a name in a registry.",
        examples=["resnet50:3"],
    ),
]
"""The path parameter that names a store."""
