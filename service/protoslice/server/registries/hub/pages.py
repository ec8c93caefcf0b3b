"""Pages of lists, which clients of the hub follow by a header."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from fastapi import Request

from protoslice.server.access.places import absolute_url


def next_page(request: Request, cursor: str | None) -> dict[str, str]:
    """The header that names the next page; empty on the last page."""
    if cursor is None:
        return {}
    kept = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    path: str = request.scope["path"].removeprefix(request.scope["root_path"])
    url = absolute_url(request.scope, quote(path, safe="/%"))
    return {"link": f'<{url}?{urlencode([*kept, ("cursor", cursor)])}>; rel="next"'}
