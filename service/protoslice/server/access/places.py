"""Places of requests: the space that a path begins with, and the rest of the path, which routes match."""

from __future__ import annotations

import re
from typing import Annotated, Final, NamedTuple
from urllib.parse import unquote_to_bytes

from pydantic import AfterValidator
from starlette.requests import Request
from starlette.types import Scope

from protoslice.stores.names import DEFAULT_SPACE

_SPACE: Final = "protoslice.space"
_PATH: Final = re.compile(r"(/spaces/([a-z0-9][a-z0-9-]{0,62}))(/.*)", re.DOTALL)
_NAMED: Final = re.compile(
    rb"((?:/spaces/[^/]+)?/v1/stores/)"
    rb"([^/]*%2[Ff][^/%]*(?:@|:|%40|%3[Aa])[^/]*|mlflow-artifacts(?::|%3[Aa])%2[Ff][^/]*)(/.*)?",
    re.DOTALL,
)
"""Path of a store by its name in a registry: `owner%2Fname@revision`, `name%2Fof%2Fartifact:tag`."""
_SLASH: Final = "%2F"


class SpacePath(NamedTuple):
    """The space of a path, the beginning of the path that names it, and the rest."""

    space: str
    root: str
    path: str


def place_of(path: str) -> SpacePath:
    """Space and rest of a decoded path; a path that names no space is one of the default space."""
    found = _PATH.fullmatch(path) if path.startswith("/spaces/") else None
    return SpacePath(DEFAULT_SPACE, "", path) if found is None else SpacePath(found[2], found[1], found[3])


def mount(scope: Scope) -> SpacePath:
    """Space and rest of the path of a request; sets `root_path` (ASGI), behind which routes match."""
    named = _NAMED.fullmatch(scope.get("raw_path") or b"")
    if named is not None:  # the slashes of the name stay encoded, so that it is one segment for every route
        head, ref, rest = (unquote_to_bytes(part or b"").decode("utf-8", "replace") for part in named.groups())
        scope["path"] = head + ref.replace("/", _SLASH) + rest
    place = place_of(scope["path"])
    scope["root_path"], scope[_SPACE] = place.root, place.space
    return place


def space_of(scope: Scope) -> str:
    """The space of a request."""
    found: str = scope[_SPACE]
    return found


def url_of(scope: Scope, path: str) -> str:
    """The URL of `path` in the space of the request."""
    root: str = scope.get("root_path", "")
    return root + path


def absolute_url(scope: Scope, path: str) -> str:
    """The URL of `path` in the space of the request, with the scheme and host that the client asked."""
    return str(Request(scope).base_url).rstrip("/") + path


def plain_ref(ref: str) -> str:
    """A reference of a path with its slashes as they are."""
    return ref.replace(_SLASH, "/")


Ref = Annotated[str, AfterValidator(plain_ref)]
"""Parameter of a path: an id of a store, the beginning of one, a tag, or a name in a registry."""
