"""Table of rules: for every route the scope that it needs, and where its request names tags.

A route without a row does not start; views add their own. `CONTRIBUTING.md` tells how to add one.
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


_OPEN: Final = Rule(None)
_READ: Final = Rule(Scope.READ)
SHOWN: Final = Rule(Scope.READ, signed=True)
"""Of what a store shows."""
_WRITE: Final = Rule(Scope.WRITE)
_DELETE: Final = Rule(Scope.DELETE)
_SCHEMAS: Final = Rule(Scope.SCHEMAS)
_ADMIN: Final = Rule(Scope.ADMIN)
_COMMIT: Final = Rule(Scope.WRITE, TagPlace.REPOSITORY)
_CUT: Final = Rule(Scope.DELETE, TagPlace.REPOSITORY)
_SEND: Final = Rule(Scope.WRITE, TagPlace.REPOSITORY, signed=True)
_OCI: Final = "/v2/{name:path}"
_MLFLOW: Final = "/api/2.0/mlflow-artifacts"
_HUB: Final = "/api/{kind}/{name:repository}"
_LFS_PARTS: Final = "/api/lfs-parts/{kind}/{name:repository}/{oid}/{size}/{chunk}"
_XET: Final = "/api/xet/{kind}/{name:repository}/{session}/v1"

RULES: Final[dict[str, Rule]] = {
    "GET /": _OPEN,
    "GET /assets/{name}": _OPEN,
    "GET /docs": _OPEN,
    "GET /livez": _OPEN,
    "GET /diff/{rest:path}": _OPEN,
    "GET /m/{rest:path}": _OPEN,
    "GET /metrics": Rule(Scope.READ, everywhere=True),
    "GET /openapi.json": _OPEN,
    "GET /.well-known/oauth-protected-resource": _OPEN,
    "GET /session": _OPEN,
    "POST /session": _OPEN,
    "DELETE /session": _OPEN,
    "GET /session/login": _OPEN,
    "GET /session/callback": _OPEN,
    "GET /operations": _OPEN,
    "GET /problems/{slug}": _OPEN,
    "GET /readyz": _OPEN,
    "POST /v1/chunks/missing": _READ,
    "POST /v1/drafts/{name:path}": Rule(Scope.WRITE, TagPlace.QUERY),
    "GET /v1/repositories": _READ,
    "GET /v1/repositories/{name:path}": _READ,
    "GET /v1/schemas": _READ,
    "GET /v1/schemas/{name}": _READ,
    "PUT /v1/schemas/{name}": _SCHEMAS,
    "DELETE /v1/schemas/{name}": _SCHEMAS,
    "GET /v1/spaces": Rule(Scope.READ, everywhere=True),
    "PUT /v1/spaces/{space}": Rule(Scope.ADMIN, everywhere=True),
    "GET /v1/stores": _READ,
    "PUT /v1/stores": Rule(Scope.WRITE, TagPlace.QUERY),
    "POST /v1/stores": Rule(Scope.WRITE, TagPlace.QUERY),
    "POST /v1/stores/assemble": Rule(Scope.WRITE, TagPlace.BODY),
    "POST /v1/stores/register": Rule(Scope.REGISTER, TagPlace.BODY),
    "GET /v1/stores/{ref}": SHOWN,
    "DELETE /v1/stores/{ref}": _DELETE,
    "POST /v1/stores/{id}/restore": _DELETE,
    "GET /v1/stores/{ref}/chunks": SHOWN,
    "GET /v1/stores/{ref}/diff": SHOWN,
    "GET /v1/stores/{ref}/diff/{name:path}": SHOWN,
    "GET /v1/stores/{ref}/graph": SHOWN,
    "GET /v1/stores/{ref}/groups": SHOWN,
    "GET /v1/stores/{ref}/pieces": SHOWN,
    "GET /v1/stores/{ref}/references.json": SHOWN,
    "GET /v1/stores/{ref}/signatures": SHOWN,
    "GET /v1/stores/{ref}/summary": SHOWN,
    "GET /v1/stores/{ref}/tensors": SHOWN,
    "GET /v1/stores/{ref}/tree": SHOWN,
    "GET /v1/stores/{ref}/treemap": SHOWN,
    "GET /v1/tags": _READ,
    "GET /v1/tags/{tag}": _READ,
    "PUT /v1/tags/{tag}": Rule(Scope.WRITE, TagPlace.PATH),
    "DELETE /v1/tags/{tag}": Rule(Scope.DELETE, TagPlace.PATH),
    "POST /v1/sign": _READ,
    "GET /v1/tokens": _ADMIN,
    "POST /v1/tokens": _ADMIN,
    "DELETE /v1/tokens/{id}": _ADMIN,
    "OPTIONS /v1/uploads": _OPEN,
    "POST /v1/uploads": Rule(Scope.WRITE, TagPlace.UPLOAD),
    "OPTIONS /v1/uploads/{upload}": _OPEN,
    "GET /v1/uploads/{upload}": _WRITE,
    "PATCH /v1/uploads/{upload}": _WRITE,
    "POST /v1/uploads/{upload}": _WRITE,
    "DELETE /v1/uploads/{upload}": _WRITE,
    "GET /v1/uploads/{upload}/records": _READ,
    "GET /v1/webhooks": _ADMIN,
    "PUT /v1/webhooks/{name}": _ADMIN,
    "DELETE /v1/webhooks/{name}": _ADMIN,
    "GET /v1/webhooks/{name}/letters": _ADMIN,
    "POST /v1/webhooks/{name}/redeliver": _ADMIN,
    # The hub, whose clients send the token as Bearer.
    "GET /api/whoami-v2": _READ,
    "POST /api/validate-yaml": _OPEN,
    "POST /api/repos/create": Rule(Scope.WRITE, TagPlace.BODY),
    "DELETE /api/repos/delete": _DELETE,
    f"GET {_HUB}": _READ,
    f"GET {_HUB}/commits/{{revision}}": _READ,
    f"GET {_HUB}/refs": _READ,
    f"GET {_HUB}/revision/{{revision}}": _READ,
    f"GET {_HUB}/tree/{{revision}}": _READ,
    f"GET {_HUB}/tree/{{revision}}/{{folder:path}}": _READ,
    f"POST {_HUB}/paths-info/{{revision}}": _READ,
    f"POST {_HUB}/preupload/{{revision}}": _COMMIT,
    f"POST {_HUB}/commit/{{revision}}": _COMMIT,
    f"POST {_HUB}/discussions": _COMMIT,
    f"POST {_HUB}/branch/{{branch}}": _COMMIT,
    f"POST {_HUB}/tag/{{revision}}": _COMMIT,
    f"DELETE {_HUB}/branch/{{branch}}": _CUT,
    f"DELETE {_HUB}/tag/{{tag}}": _CUT,
    **{
        f"GET {kind}/{{name:repository}}/{files}/{{revision}}/{{path:path}}": _READ
        for kind in ("", "/datasets")
        for files in ("resolve", "raw")
    },
    **{
        f"GET /{{name:owned}}{rest}": _OPEN
        for rest in (
            "",
            "/tree/{revision}",
            "/tree/{revision}/{path:path}",
            "/blob/{revision}/{path:path}",
            "/commit/{revision}",
        )
    },
    # A batch of downloads; one of uploads asks for the scope to write.
    "POST /datasets/{name:repository}.git/info/lfs/objects/batch": _READ,
    "POST /{name:repository}.git/info/lfs/objects/batch": _READ,
    "GET /api/lfs-files/{kind}/{name:repository}/{oid}": SHOWN,
    "PUT /api/lfs-uploads/{kind}/{name:repository}/{upload}": _SEND,
    f"POST {_LFS_PARTS}": _SEND,
    f"PUT {_LFS_PARTS}/{{number}}": _SEND,
    f"GET {_HUB}/xet-write-token/{{revision}}": _COMMIT,
    f"POST {_XET}/xorbs/default/{{hash}}": _COMMIT,
    f"POST {_XET}/shards": _COMMIT,
    # MLflow, whose clients send the token as Bearer or as the password of Basic.
    "GET /api/3.0/mlflow/server-info": _OPEN,
    f"GET {_MLFLOW}/artifacts": _READ,
    f"GET {_MLFLOW}/artifacts/{{name:path}}": SHOWN,
    f"PUT {_MLFLOW}/artifacts/{{name:path}}": _COMMIT,
    f"DELETE {_MLFLOW}/artifacts/{{name:path}}": _CUT,
    f"GET {_MLFLOW}/presigned/{{name:path}}": _READ,
    f"PUT {_MLFLOW}/parts/{{session}}/{{name:path}}": _SEND,
    **{f"POST {_MLFLOW}/mpu/{step}/{{name:path}}": _COMMIT for step in ("create", "complete", "abort")},
    # OCI registries, whose clients send the token as the password of Basic.
    "GET /v2/": _READ,
    "GET /v2/_catalog": _READ,
    f"GET {_OCI}/tags/list": _READ,
    f"GET {_OCI}/blobs/{{digest}}": _READ,
    f"GET {_OCI}/manifests/{{ref}}": _READ,
    f"GET {_OCI}/referrers/{{digest}}": _READ,
    f"PUT {_OCI}/manifests/{{ref}}": _COMMIT,
    f"POST {_OCI}/blobs/uploads/": _COMMIT,
    f"GET {_OCI}/blobs/uploads/{{upload}}": _COMMIT,
    f"PATCH {_OCI}/blobs/uploads/{{upload}}": _COMMIT,
    f"PUT {_OCI}/blobs/uploads/{{upload}}": _COMMIT,
    f"DELETE {_OCI}/blobs/uploads/{{upload}}": _COMMIT,
    f"DELETE {_OCI}/blobs/{{digest}}": _CUT,
    f"DELETE {_OCI}/manifests/{{ref}}": _CUT,
}
"""Rules by method and template of the path; HEAD goes by the row of GET. Views add their own."""


def add_rule(row: str, rule: Rule) -> None:
    """Add the rule of a route that is declared elsewhere."""
    if RULES.setdefault(row, rule) is not rule:
        raise RuntimeError(f"{row} has two rules")


def check_rules(routes: Iterable[str]) -> None:
    """Raise `RuntimeError` unless the table has a row for each of `routes`."""
    missing = sorted(set(routes) - RULES.keys())
    if missing:
        raise RuntimeError(f"server/access/rules.py: add rows for {', '.join(missing)}")
