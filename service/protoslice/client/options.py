"""The options of clients and of their methods, and the query parameters of searches."""

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
    """The options of a client."""

    headers: Mapping[str, str]
    """Headers of every request, such as Authorization."""
    token: str
    """Access token, which the client sends as `Authorization: Bearer`, and never to another origin."""
    timeout_seconds: float
    """Seconds to wait for the next bytes from the service. The default is 30.

    The client also gives up a response that is slower than 1 KiB/s over four times this number of seconds.
    """
    attempts: int
    """Number of attempts without progress after which an operation fails. The default is 6."""
    backoff_seconds: float
    """Pause in seconds before the second attempt. The default is 0.1. Each further pause is twice as long."""
    parallel: int
    """Maximum number of concurrent requests of a large download. The default is 4."""
    cache: Cache | str | os.PathLike[str] | None
    """Cache of pieces, or the cache's folder. The default is None.

    With a cache, the download of another version fetches only the pieces that are new.
    """


class GraphOptions(TypedDict, total=False):
    """The options of `Client.graph`."""

    graph: str
    """Path of the graph. The default is the outermost graph."""
    hops: int
    """Largest distance from the nodes in the middle, counted in edges. The default is 2."""
    search: str
    """Words that the nodes in the middle contain in their names or paths.

    If no node matches, the nodes that output a value with a matching name are in the middle. Without a search, the
    graph's ends are in the middle.
    """
    limit: int
    """Maximum number of nodes. The default is 100."""


class StoreSearch(TypedDict, total=False):
    """Conditions on the stores to list, and their order. A condition of None is ignored."""

    name: str | None
    """Text that a tag, a name in a registry (such as `ann/m@main`) or a file path contains."""
    type: str | None
    """Full name of the root's message type; an empty text finds stores without a root."""
    uploader: str | None
    """Name of the token or account that created the store."""
    min_size: int | str | None
    """Smallest size in bytes, or a text such as `1GiB`."""
    max_size: int | str | None
    since: datetime | None
    """Earliest creation time. A time without a zone is local time."""
    until: datetime | None
    """Time before which the stores were created. A time without a zone is local time."""
    nameless: bool | None
    """True to find only stores that have neither a tag nor a name in a registry."""
    sort: str | None
    """Sort key: `created`, `size`, `name`, `type` or `uploader`. A `-` in front sorts in descending order.

    The default is `-created`.
    """
    tag: str | None
    """Beginning of a tag. Stores with such tags are listed in the order of the tags.

    The only other condition that may be combined with this condition is `type`.
    """


class ChangeSearch(TypedDict, total=False):
    """Conditions on the changes to list. A condition of None is ignored."""

    who: str | None
    """Name of the token or account that made the change."""
    what: str | None
    """Kind of change, such as `tag.set`."""
    subject: str | None
    """Id of the store or token that was changed, or the name of another changed item."""
    since: datetime | None
    until: datetime | None


def search_params(search: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the query parameters of a search."""
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
