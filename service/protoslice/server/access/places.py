"""Places of requests: the space that a path begins with, and the rest of the path, which routes match."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from starlette.types import Scope

from protoslice.stores.spaces import DEFAULT_SPACE

_SPACE: Final = "protoslice.space"
_PATH: Final = re.compile(r"(/spaces/([a-z0-9][a-z0-9-]{0,62}))(/.*)", re.DOTALL)


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
