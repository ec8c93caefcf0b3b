"""Query parameters, for routes that take them without the framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, quote

from protoslice.errors import InvalidInput, NotFound
from protoslice.sizes import parse_size

_MOST_PARAMETERS = 1000


class Query:
    """The parameters of one request."""

    def __init__(self, values: Mapping[str, Sequence[str]], client: str = "") -> None:
        self._values = values
        self.client = client
        """Key that the client counts under; "" where that is not asked for."""

    def one(self, name: str) -> str | None:
        """The value of a parameter that may be given once."""
        values = self._values.get(name, ())
        if len(values) > 1:
            raise InvalidInput(f"the parameter {name!r} may be given only once")
        return values[0] if values else None

    def many(self, name: str) -> tuple[str, ...]:
        """The values of a parameter that may be repeated."""
        return tuple(self._values.get(name, ()))

    def flag(self, name: str) -> bool:
        """A parameter that is `true` or `false`; False where it is not given."""
        text = (self.one(name) or "false").lower()
        if text not in {"true", "false", "1", "0"}:
            raise InvalidInput(f"Invalid {name} {text[:40]!r}: use true or false")
        return text in {"true", "1"}

    def size(self, name: str) -> int | None:
        """A size in bytes."""
        text = self.one(name)
        return None if text is None else parse_size(text)


_NONE = Query({})


def read_query(query_string: bytes, client: str = "") -> Query:
    """The parameters of a query string; `InvalidInput` when it is no UTF-8, or has too many."""
    if not query_string:
        return _NONE
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS
        )
    except ValueError as error:
        raise InvalidInput("the query is not percent-encoded UTF-8, or has too many parameters") from error
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return Query(values, client)


def with_parameter(query_string: bytes, name: str, value: str) -> str:
    """The query with one parameter set anew."""
    pairs = [
        (key, text) for key, text in parse_qsl(query_string.decode("latin-1"), keep_blank_values=True) if key != name
    ]
    return "&".join(f"{quote(key, safe='')}={quote(text, safe='')}" for key, text in [*pairs, (name, value)])


def number_of(what: str, text: str) -> int:
    """Number of a chunk or a record, as `what` says."""
    if not text.isascii() or not text.isdigit():
        raise InvalidInput(f"{text[:40]!r} is not the number of a {what}")
    if len(text) > 18:
        raise NotFound(f"there is no {what} {text[:40]}")
    return int(text)


def plain_size(given: int | str) -> int:
    """A size that is given in JSON or in a query."""
    return given if isinstance(given, int) else parse_size(given)
