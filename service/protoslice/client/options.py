"""Options of clients and of their calls; searches of lists as parameters of queries."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypedDict

from protoslice.client.download.cache import Cache
from protoslice.errors import InvalidInput
from protoslice.sizes import parse_size

_SIZES: Final = frozenset({"min_size", "max_size"})
_TIMES: Final = frozenset({"since", "until"})


class ClientOptions(TypedDict, total=False):
    """Options of a client."""

    headers: Mapping[str, str]
    """Headers of every request, such as Authorization."""
    token: str
    """Token of the service, sent as `Authorization: Bearer`, and never to another origin."""
    timeout_seconds: float
    """Longest silence of the service; 30 by default. A response slower than 1 KiB/s for four of them is given up."""
    attempts: int
    """Attempts at an operation without progress; 6 by default."""
    backoff_seconds: float
    """Pause before the second attempt, doubled for each further one; 0.1 by default."""
    parallel: int
    """Concurrent requests of a large download; 4 by default."""
    cache: Cache | str | os.PathLike[str] | None
    """Cache of pieces, or its folder, so that another version is fetched in part; None by default."""


class GraphOptions(TypedDict, total=False):
    """Options of `graph`."""

    graph: str
    """Path of the graph; the outermost by default."""
    hops: int
    """Most links between the node in the middle and the others; 2 by default."""
    search: str
    """Words in the names or paths of nodes to begin with, or else in those of values that nodes make; by default the
    ends of the graph."""
    limit: int
    """Most nodes; 100 by default."""


class StoreSearch(TypedDict, total=False):
    """Which stores to list, and in which order; None is the same as no value."""

    name: str | None
    """Part of a tag, of a name in a registry such as `ann/m@main`, or of the path of a file."""
    type: str | None
    """Full message name of the root; empty for stores without a root."""
    uploader: str | None
    """Token or account that created the store."""
    min_size: int | str | None
    """Bytes, or a size such as 1GiB."""
    max_size: int | str | None
    since: datetime | None
    """Time of the oldest store; local, if it has no zone."""
    until: datetime | None
    """Time before which the newest store was created."""
    nameless: bool | None
    """True for stores without a name: no tag, and none in a registry."""
    sort: str | None
    """`created`, `size`, `name`, `type` or `uploader`; with `-` in front, descending. Default: `-created`."""
    tag: str | None
    """Beginning of a tag: the stores of those tags in the order of the tags. Only together with `type`."""


class ChangeSearch(TypedDict, total=False):
    """Which changes to list; None is the same as no value."""

    who: str | None
    """Name of a token or an account."""
    what: str | None
    """Kind of change, such as `tag.set`."""
    subject: str | None
    """Id of a store or token, or the name of what was changed."""
    since: datetime | None
    until: datetime | None


def search_params(search: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the parameters of a query for a search."""
    return [(name, _text(name, value)) for name, value in search.items() if value is not None]


def _text(name: str, value: Any) -> str:
    if name in _TIMES:
        if not isinstance(value, datetime):
            raise InvalidInput(
                f"Invalid {name} {value!r}: use a datetime, such as datetime.now(UTC) - timedelta(days=1)"
            )
        return value.astimezone(UTC).isoformat()
    if isinstance(value, bool):
        return str(value).lower()
    return str(parse_size(value)) if name in _SIZES and isinstance(value, str) else str(value)
