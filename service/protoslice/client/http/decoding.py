"""Functions that decode and validate a service's JSON: single facts, lists in pages, and stores.

The decoders are derived from the annotations of the classes in `protoslice.facts`. A new class needs no new decoder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from datetime import datetime
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from protoslice.client.http.connection import Connection, Params
from protoslice.errors import IntegrityError
from protoslice.facts import UNKNOWN, Store
from protoslice.versions import Policy, is_id_of

T = TypeVar("T")
Read = Callable[[Any], Any]

_WORDS: Final = re.compile("(?<=[a-z])(?=[A-Z])")


def decode(kind: type[T], data: object) -> T:
    """Decode JSON `data` as an object of class `kind`, and ignore unknown members.

    Raise `IntegrityError` if a member is missing or invalid.
    """
    if not isinstance(data, Mapping):
        raise IntegrityError(f"The service's response is not a valid {_words(kind)}")
    given: dict[str, Any] = {}
    for name, read in _members(kind).items():  # type: ignore[arg-type]  # mypy takes classes for unhashable
        if name in data:
            try:
                given[name] = read(data[name])
            except (ValueError, TypeError, RecursionError) as error:
                raise IntegrityError(f"The service's response has a {_words(kind)} with an invalid {name!r}") from error
    try:
        return kind(**given)
    except TypeError as error:
        raise IntegrityError(f"The service's response has a {_words(kind)} that lacks a member") from error


def _words(kind: type) -> str:
    return _WORDS.sub(" ", kind.__name__).lower()


@cache
def _members(kind: Any) -> Mapping[str, Read]:
    hints = get_type_hints(kind)
    return {field.name: _reader(hints[field.name]) for field in fields(kind)}


def _reader(hint: Any) -> Read:
    """Return a function that decodes a JSON value to an object of the type `hint`."""
    if (scalar := _SCALARS.get(hint)) is not None:
        return scalar
    args = get_args(hint)
    if get_origin(hint) in {Union, UnionType} and args[1:] == (NoneType,):
        return partial(_optional, _reader(args[0]))
    if get_origin(hint) is tuple and args[1:] == (...,):
        return partial(_tuple, _reader(args[0]))
    if get_origin(hint) is tuple and len(set(args)) == 1:
        return partial(_tuple, _reader(args[0]), length=len(args))
    if get_origin(hint) is Literal:
        return _text  # a newer service may have values that this client does not know
    assert isinstance(hint, type), hint
    return partial(decode, hint)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    return value


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError
    return value


def _number(value: Any) -> float:
    if type(value) not in {int, float}:
        raise TypeError
    return float(value)


def _time(value: Any) -> datetime:
    found = datetime.fromisoformat(_text(value))
    if found.tzinfo is None:
        raise ValueError
    return found


def _optional(read: Read, value: Any) -> Any:
    return None if value is None else read(value)


def _tuple(read: Read, value: Any, length: int | None = None) -> tuple[Any, ...]:
    if type(value) is not list or (length is not None and len(value) != length):
        raise TypeError
    return tuple(map(read, value))


_SCALARS: Final[Mapping[Any, Read]] = {
    str: _text, bool: _flag, int: _count, float: _number, datetime: _time, dict[str, Any]: _object,
}  # fmt: skip


def paginated(
    connection: Connection,
    kind: type[T],
    path: str,
    params: Params = (),
    *,
    limit: int | None = 1000,
    slow: bool = False,
) -> Iterator[T]:
    """Yield the items of a list, and request each page only when the caller needs its items.

    `limit` is the number of items per page. It is None for a list that always has one page.
    """
    sized = [] if limit is None else [("limit", str(limit))]
    cursor: str | None = None
    while True:
        more = [("cursor", cursor)] if cursor is not None else []
        page = connection.call("GET", path, params=[*params, *sized, *more], slow=slow).json()
        if not isinstance(page, dict) or not isinstance(page.get("items"), list):
            raise IntegrityError("The service's response is not a page of a list")
        for item in page["items"]:
            yield decode(kind, item)
        following = page.get("next")
        if following is None:
            return
        if not isinstance(following, str) or following == cursor:
            raise IntegrityError("The service returns the same page over and over")
        cursor = following


_ID: Final = re.compile("[0-9a-f]{12,64}")


def verified_store(store: Store, ref: str) -> Store:
    """Return `store` after checking its id.

    Raise `IntegrityError` if `ref` consists of the first digits of an id, but the store's id begins differently. Also
    raise `IntegrityError` if the digest of files and policy differs from the id. That check is skipped for files that
    were registered in place, because their digests are unknown.
    """
    if _ID.fullmatch(ref) and not store.id.startswith(ref):
        raise IntegrityError(f"The service returned store {store.id} instead of {ref}")
    files = [(file.path, file.size, file.sha256) for file in store.files if file.sha256 is not None]
    policy = Policy(
        root=store.root,
        type=None if store.type == UNKNOWN else store.type,
        min_chunk=store.min_chunk,
        max_chunk=store.max_chunk,
        schema=store.schema,
        planner=store.planner,
        rules=store.rules,
    )
    if len(files) == len(store.files) and not is_id_of(store.id, files, policy):
        raise IntegrityError(f"The files listed for store {store.id} do not match its id")
    return store
