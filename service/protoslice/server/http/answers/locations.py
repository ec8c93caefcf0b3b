"""The lasting URL of a view: the one that was asked for, with the store's id in place of a name."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from starlette.types import Scope

_PLAIN_IN_PATHS: Final = "/:@!$&'()*+,;=~"


def lasting_url(scope: Scope, store_id: str) -> str:
    """Path and query of `scope`, whose route has matched, with the store's id in place of its reference.

    The decoded path counts: a request may spell even its slashes as `%2F`, so its raw path may have fewer parts.
    """
    root: str = scope.get("root_path", "")
    rest = quote(scope["path"].removeprefix(root).split("/", 4)[4], safe=_PLAIN_IN_PATHS)
    query: bytes = scope["query_string"]
    return f"{root}/v1/stores/{store_id}/{rest}" + (f"?{query.decode('latin-1')}" if query else "")
