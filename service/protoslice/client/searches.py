"""Searches of lists, as parameters of queries."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypedDict

from protoslice.errors import InvalidInput
from protoslice.sizes import parse_size

_SIZES: Final = frozenset({"min_size", "max_size"})
_TIMES: Final = frozenset({"since", "until"})


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
