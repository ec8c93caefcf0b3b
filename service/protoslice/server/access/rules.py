"""Rules of routes: the scope that each needs, and where its request names tags.

Rows of our own API add their rules (`server/api/endpoints.py`, `server/api/views.py`); those of registries are here.
The service does not start with a route that has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from protoslice.server.access.decision import Scope


class TagPlace(Enum):
    """Place where a request names the tags that it sets or removes."""

    NOWHERE = auto()
    PATH = auto()
    """The parameter `tag` of the route."""
    QUERY = auto()
    """The parameters `tag` of the query."""
    UPLOAD = auto()
    """The query, and the word `tag` of Upload-Metadata."""
    REPOSITORY = auto()
    """The parameter `name` of the route: a repository, whose name patterns match as they do tags."""
    BODY = auto()
    """The body: the route calls `Services.allow_tags` before it gets at any stores."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Scope that a route needs; None lets everybody in, and opens no space."""

    scope: Scope | None
    tags: TagPlace = TagPlace.NOWHERE
    everywhere: bool = False
    """True for a route that concerns all spaces: a grant in one of them is not enough."""
    signed: bool = False
    """True for a route that signed URLs open: a closed list that a test checks."""

    def changes(self, method: str) -> bool:
        """True when a request of `method` may change something."""
        return self.scope not in {None, Scope.READ} and method not in {"GET", "HEAD", "OPTIONS"}


OPEN: Final = Rule(None)
READ: Final = Rule(Scope.READ)
SHOWN: Final = Rule(Scope.READ, signed=True)
"""Of what a store shows."""
WRITE: Final = Rule(Scope.WRITE)
DELETE: Final = Rule(Scope.DELETE)
SCHEMAS: Final = Rule(Scope.SCHEMAS)
ADMIN: Final = Rule(Scope.ADMIN)
_COMMIT: Final = Rule(Scope.WRITE, TagPlace.REPOSITORY)
_CUT: Final = Rule(Scope.DELETE, TagPlace.REPOSITORY)
_SEND: Final = Rule(Scope.WRITE, TagPlace.REPOSITORY, signed=True)
_OCI: Final = "/v2/{name:path}"
_MLFLOW: Final = "/api/2.0/mlflow-artifacts"
_HUB: Final = "/api/{kind}/{name:repository}"
_LFS_PARTS: Final = "/api/lfs-parts/{kind}/{name:repository}/{oid}/{size}/{chunk}"
_XET: Final = "/api/xet/{kind}/{name:repository}/{session}/v1"

RULES: Final[dict[str, Rule]] = {
    # The hub, whose clients send the token as Bearer.
    "GET /api/whoami-v2": READ,
    "POST /api/validate-yaml": OPEN,
    "POST /api/repos/create": Rule(Scope.WRITE, TagPlace.BODY),
    "DELETE /api/repos/delete": DELETE,
    f"GET {_HUB}": READ,
    f"GET {_HUB}/commits/{{revision}}": READ,
    f"GET {_HUB}/refs": READ,
    f"GET {_HUB}/revision/{{revision}}": READ,
    f"GET {_HUB}/tree/{{revision}}": READ,
    f"GET {_HUB}/tree/{{revision}}/{{folder:path}}": READ,
    f"POST {_HUB}/paths-info/{{revision}}": READ,
    f"POST {_HUB}/preupload/{{revision}}": _COMMIT,
    f"POST {_HUB}/commit/{{revision}}": _COMMIT,
    f"POST {_HUB}/discussions": _COMMIT,
    f"POST {_HUB}/branch/{{branch}}": _COMMIT,
    f"POST {_HUB}/tag/{{revision}}": _COMMIT,
    f"DELETE {_HUB}/branch/{{branch}}": _CUT,
    f"DELETE {_HUB}/tag/{{tag}}": _CUT,
    **{
        f"GET {kind}/{{name:repository}}/{files}/{{revision}}/{{path:path}}": READ
        for kind in ("", "/datasets")
        for files in ("resolve", "raw")
    },
    **{
        f"GET /{{name:owned}}{rest}": OPEN
        for rest in (
            "",
            "/tree/{revision}",
            "/tree/{revision}/{path:path}",
            "/blob/{revision}/{path:path}",
            "/commit/{revision}",
        )
    },
    # A batch of downloads; one of uploads asks for the scope to write.
    "POST /datasets/{name:repository}.git/info/lfs/objects/batch": READ,
    "POST /{name:repository}.git/info/lfs/objects/batch": READ,
    "GET /api/lfs-files/{kind}/{name:repository}/{oid}": SHOWN,
    "PUT /api/lfs-uploads/{kind}/{name:repository}/{upload}": _SEND,
    f"POST {_LFS_PARTS}": _SEND,
    f"PUT {_LFS_PARTS}/{{number}}": _SEND,
    f"GET {_HUB}/xet-write-token/{{revision}}": _COMMIT,
    f"POST {_XET}/xorbs/default/{{hash}}": _COMMIT,
    f"POST {_XET}/shards": _COMMIT,
    # MLflow, whose clients send the token as Bearer or as the password of Basic.
    "GET /api/3.0/mlflow/server-info": OPEN,
    f"GET {_MLFLOW}/artifacts": READ,
    f"GET {_MLFLOW}/artifacts/{{name:path}}": SHOWN,
    f"PUT {_MLFLOW}/artifacts/{{name:path}}": _COMMIT,
    f"DELETE {_MLFLOW}/artifacts/{{name:path}}": _CUT,
    f"GET {_MLFLOW}/presigned/{{name:path}}": READ,
    f"PUT {_MLFLOW}/parts/{{session}}/{{name:path}}": _SEND,
    **{f"POST {_MLFLOW}/mpu/{step}/{{name:path}}": _COMMIT for step in ("create", "complete", "abort")},
    # OCI registries, whose clients send the token as the password of Basic.
    "GET /v2/": READ,
    "GET /v2/_catalog": READ,
    f"GET {_OCI}/tags/list": READ,
    f"GET {_OCI}/blobs/{{digest}}": READ,
    f"GET {_OCI}/manifests/{{ref}}": READ,
    f"GET {_OCI}/referrers/{{digest}}": READ,
    f"PUT {_OCI}/manifests/{{ref}}": _COMMIT,
    f"POST {_OCI}/blobs/uploads/": _COMMIT,
    f"GET {_OCI}/blobs/uploads/{{upload}}": _COMMIT,
    f"PATCH {_OCI}/blobs/uploads/{{upload}}": _COMMIT,
    f"PUT {_OCI}/blobs/uploads/{{upload}}": _COMMIT,
    f"DELETE {_OCI}/blobs/uploads/{{upload}}": _COMMIT,
    f"DELETE {_OCI}/blobs/{{digest}}": _CUT,
    f"DELETE {_OCI}/manifests/{{ref}}": _CUT,
}
"""Rules by method and template of the path; HEAD goes by the row of GET."""


def add_rule(row: str, rule: Rule) -> None:
    """Add the rule of a route that is declared elsewhere."""
    if RULES.setdefault(row, rule) != rule:
        raise RuntimeError(f"{row} has two rules")


def check_rules(routes: Iterable[str]) -> None:
    """Raise `RuntimeError` unless the table has a row for each of `routes`."""
    missing = sorted(set(routes) - RULES.keys())
    if missing:
        raise RuntimeError(f"server/access/rules.py: add rows for {', '.join(missing)}")
