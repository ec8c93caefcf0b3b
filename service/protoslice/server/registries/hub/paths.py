"""Paths of the hub: the name of a repository in them, and segments that hold encoded slashes."""

from __future__ import annotations

import re
from typing import Annotated, Final
from urllib.parse import quote, unquote

from pydantic import AfterValidator
from starlette.convertors import Convertor, register_url_convertor
from starlette.types import Scope

from protoslice.errors import InvalidInput, NotFound

_OURS: Final = re.compile(rb"/(?:api/|(?:datasets/)?[^/]+(?:/[^/]+)?/(?:resolve|raw|tree|blob|commit)/)")
USER: Final = "default"
"""Name of the user, and owner of repositories that are created without one."""
_KINDS: Final = {"models": "", "datasets": "datasets/"}
TAKEN: Final = frozenset({"api", "datasets", "kernels", "models", "spaces", "v1", "v2"})
"""First segments of other paths, which no repository of models may have."""

Encoded = Annotated[str, AfterValidator(unquote)]
"""Parameter of a path, which is matched as it was spelled."""


class _RepositoryConvertor(Convertor[str]):
    """Matches `name` or `owner/name`."""

    regex = "[^/]+(?:/[^/]+)?"

    def convert(self, value: str) -> str:
        """The value as it is."""
        return value

    def to_string(self, value: str) -> str:
        """The value as it is."""
        return value


class _OwnedConvertor(_RepositoryConvertor):
    """Matches `owner/name` and `datasets/owner/name` where no other path of the service begins so."""

    regex = rf"(?:datasets/)?(?!(?:{'|'.join(sorted(TAKEN))})/)[^/]+/[^/]+"


register_url_convertor("repository", _RepositoryConvertor())
register_url_convertor("owned", _OwnedConvertor())


def spelled(scope: Scope) -> Scope:
    """`scope` with a path of the hub as it was spelled; any other unchanged.

    The branch `feat/x` is one segment of a path, `feat%2Fx`.
    """
    raw: bytes = scope.get("raw_path") or b""
    root: str = scope.get("root_path", "")
    rest = raw.removeprefix(root.encode("latin-1", "replace"))
    if rest.startswith(b"/v1/") or not _OURS.match(rest):
        return scope
    return {**scope, "path": root + rest.decode("latin-1")}


def repository_of(kind: str, name: str) -> str:
    """Name of the repository of a kind, `models` or `datasets`, by its name in a path.

    `NotFound` for other kinds, and for names that begin like other paths of the service.
    """
    plain = unquote(name)
    if kind not in _KINDS or plain.partition("/")[0] in TAKEN:
        raise NotFound(
            f"{kind[:80]}/{plain[:200]} cannot be a repository: use models or datasets, and a name such as OWNER/NAME"
        )
    if plain.count("/") > 1:
        raise InvalidInput(f"Invalid repository name {plain[:200]!r}: use OWNER/NAME")
    return _KINDS[kind] + plain


def url_of(name: str) -> str:
    """Path of a repository, as clients show it."""
    return "/" + quote(name)
