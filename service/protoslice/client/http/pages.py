"""Paginated lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from protoslice.client.http.connection import Connection, Params
from protoslice.client.http.json_facts import read_json
from protoslice.errors import IntegrityError

T = TypeVar("T")


def paginated(
    connection: Connection,
    kind: type[T],
    path: str,
    params: Params = (),
    *,
    limit: int | None = 1000,
    slow: bool = False,
) -> Iterator[T]:
    """Items of a list, whose pages are requested as the items are consumed; None for a list of one page."""
    sized = [] if limit is None else [("limit", str(limit))]
    cursor: str | None = None
    while True:
        more = [("cursor", cursor)] if cursor is not None else []
        page = connection.call("GET", path, params=[*params, *sized, *more], slow=slow).json()
        if not isinstance(page, dict) or not isinstance(page.get("items"), list):
            raise IntegrityError("The service's response is not a page of a list")
        for item in page["items"]:
            yield read_json(kind, item)
        following = page.get("next")
        if following is None:
            return
        if not isinstance(following, str) or following == cursor:
            raise IntegrityError("The service returns the same page over and over")
        cursor = following
