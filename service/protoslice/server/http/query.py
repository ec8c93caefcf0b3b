"""Query parameters: the names that a route accepts, and their values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl, quote

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from protoslice.errors import InvalidInput, NotFound
from protoslice.sizes import parse_size

SIGNATURE: Final = frozenset({"psl-expires", "psl-token", "psl-signature"})
"""The parameters of signed URLs. Every route accepts them, because a service that requires no tokens ignores them."""
_MOST_PARAMETERS: Final = 1000
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2}))?"
)
_INTEGER: Final = re.compile("-?[0-9]+")
_LONGEST_SHOWN: Final = 40
"""The number of an unknown name's characters that an error shows, and that are compared with known names."""


class QueryNames:
    """The names of a route's query parameters.

    A request may have each parameter only once, unless the parameter is `repeatable`.
    """

    def __init__(self, names: Iterable[str] = (), repeatable: Iterable[str] = (), integers: Iterable[str] = ()) -> None:
        self.repeatable = frozenset(repeatable)
        self.integers = frozenset(integers)
        self.known = frozenset(names) | self.repeatable
        self._ignored = self.known | SIGNATURE
        self._empty = Query({}, self.known)

    @classmethod
    def of(cls, parameters: Iterable[Mapping[str, Any]]) -> QueryNames:
        """Return the names of an OpenAPI operation's query parameters. Arrays are repeatable."""
        kinds = {each["name"]: each["schema"].get("type") for each in parameters if each["in"] == "query"}
        repeatable, integers = ([name for name in kinds if kinds[name] == kind] for kind in ("array", "integer"))
        return cls(kinds, repeatable, integers)

    def read(self, query_string: bytes, client: str = "") -> Query:
        """Parse a query string. Raise `InvalidInput` for unknown or repeated names, and for invalid UTF-8."""
        if not query_string:
            return self._empty
        values = _split(query_string)
        if not values.keys() <= self._ignored:
            raise InvalidInput(self._unknown(next(name for name in values if name not in self._ignored)))
        for name, given in values.items():
            if len(given) > 1 and name not in self.repeatable:
                raise InvalidInput(self._repeated(name))
            if name in self.integers:
                _check_digits(name, given)
        return Query(values, self.known, client)

    def _unknown(self, name: str) -> str:
        shown = f"Unknown query parameter {name[:_LONGEST_SHOWN]!r}"
        nearest = get_close_matches(name[:_LONGEST_SHOWN].lower(), sorted(self.known), n=1)
        if nearest:
            return f"{shown}: did you mean {nearest[0]!r}?"
        return (
            f"{shown}: use one of {_listed(self.known)}"
            if self.known
            else f"{shown}: this URL takes no query parameters"
        )

    def _repeated(self, name: str) -> str:
        several = f"; use {' or '.join(f'`{each}=`' for each in sorted(self.repeatable))} to give several values"
        return f"Query parameter {name!r} may be given only once{several if self.repeatable else ''}"


class Query:
    """The query parameters of one request, by the names that its route declares."""

    __slots__ = ("_known", "_values", "client")

    def __init__(self, values: Mapping[str, Sequence[str]], known: frozenset[str], client: str = "") -> None:
        self._values = values
        self._known = known
        self.client = client
        """The client's key for limits per client; "" if the route does not need it."""

    def one(self, name: str) -> str | None:
        """Return the value of a parameter that may occur once. Return None if it is absent."""
        values = self.many(name)
        return values[0] if values else None

    def many(self, name: str) -> tuple[str, ...]:
        """Return the values of a parameter. Raise `RuntimeError` for a name that the route does not declare."""
        if name not in self._known:
            raise RuntimeError(f"the route reads the query parameter {name!r} without declaring it")
        return tuple(self._values.get(name, ()))

    def flag(self, name: str) -> bool:
        """Return a parameter that is `true` or `false`. Return False if it is absent."""
        text = (self.one(name) or "false").lower()
        if text not in {"true", "false", "1", "0"}:
            raise InvalidInput(f"Invalid {name} {text[:40]!r}: use true or false")
        return text in {"true", "1"}

    def size(self, name: str) -> int | None:
        """Return a size in bytes. Return None if the parameter is absent."""
        text = self.one(name)
        return None if text is None else parse_size(text)


def values_of(query_string: bytes, name: str) -> tuple[str, ...]:
    """Return the values of one parameter without checking the other parameters."""
    return tuple(_split(query_string).get(name, ())) if query_string else ()


def _split(query_string: bytes) -> Mapping[str, Sequence[str]]:
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS
        )
    except ValueError as error:
        raise InvalidInput("The query is not percent-encoded UTF-8, or has too many parameters") from error
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return values


def _check_digits(name: str, given: Iterable[str]) -> None:
    """Refuse numbers that only `int()` accepts: with spaces, underscores, plus signs, or digits of other scripts."""
    for text in given:
        if _INTEGER.fullmatch(text) is None:
            raise InvalidInput(f"Invalid {name} {text[:_LONGEST_SHOWN]!r}: use digits only")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))


def with_parameter(query_string: bytes, name: str, value: str) -> str:
    """Return the query with one parameter replaced."""
    pairs = [
        (key, text) for key, text in parse_qsl(query_string.decode("latin-1"), keep_blank_values=True) if key != name
    ]
    return "&".join(f"{quote(key, safe='')}={quote(text, safe='')}" for key, text in [*pairs, (name, value)])


def number_of(what: str, text: str) -> int:
    """Return the number of a chunk or a record. `what` is the word for the chunk or the record in errors."""
    if not text.isascii() or not text.isdigit():
        raise InvalidInput(f"Invalid {what} number {text[:40]!r}")
    if len(text) > 18:
        raise NotFound(f"No {what} {text[:40]}")
    return int(text)


def parse_time(text: object) -> datetime:
    """Parse a time of RFC 3339: a date and time with an offset, or a date, which means midnight UTC."""
    try:
        if not isinstance(text, str) or _TIME.fullmatch(text) is None:
            raise ValueError
        found = datetime.fromisoformat(text.upper())
    except ValueError:
        advice = (
            "use RFC 3339, such as 2026-11-01, 2026-11-01T12:00:00Z or 2026-11-01T12:00:00-05:00 (+ is %2B in a URL)"
        )
        raise PydanticCustomError("time", "Invalid time: {advice}", {"advice": advice}) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


Time = Annotated[datetime, BeforeValidator(parse_time)]
"""The type of a time in a query or a body."""


def plain_size(given: int | str) -> int:
    """Return a size in bytes. `given` is a number of bytes, or a text such as `1MiB`."""
    return given if isinstance(given, int) else parse_size(given)
