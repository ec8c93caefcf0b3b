"""Facts read from a service's JSON, which is validated."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, Final, TypeVar

from protoslice.errors import IntegrityError
from protoslice.facts import (
    Damage,
    DtypeTotal,
    File,
    GraphEdge,
    GraphEntry,
    GraphNode,
    Histogram,
    ModelReport,
    Node,
    PiecePlace,
    SignatureTensor,
    StoreName,
)

T = TypeVar("T")


def read_json(kind: type[T], data: object) -> T:
    """Fact of class `kind` in `data`, without unknown members; `IntegrityError` for other data."""
    what = _WORDS.sub(" ", kind.__name__).lower()
    if not isinstance(data, Mapping):
        raise IntegrityError(f"The service's response is not a valid {what}")
    given: dict[str, Any] = {}
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name in data:
            try:
                given[field.name] = _READERS[str(field.type)](data[field.name])
            except (ValueError, TypeError, RecursionError) as error:
                said = f"The service's response has a {what} with an invalid {field.name!r}"
                raise IntegrityError(said) from error
    try:
        return kind(**given)
    except TypeError as error:
        raise IntegrityError(f"The service's response has a {what} that lacks a member") from error


def _plain(wanted: type[T]) -> Callable[[Any], T]:
    def read(value: Any) -> T:
        if type(value) is not wanted:
            raise TypeError
        return value

    return read


def _perhaps(read: Callable[[Any], T]) -> Callable[[Any], T | None]:
    return lambda value: None if value is None else read(value)


def _each(read: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    return lambda value: tuple(read(each) for each in _plain(list)(value))


def _number(value: Any) -> float:
    if type(value) not in {int, float}:
        raise TypeError
    return float(value)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError
    return value


_WORDS: Final = re.compile("(?<=[a-z])(?=[A-Z])")
_text = _plain(str)
_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "str": _text,
    "str | None": _perhaps(_text),
    "Compared": _text,
    "Change": _text,
    "int": _count,
    "int | None": _perhaps(_count),
    "float": _number,
    "float | None": _perhaps(_number),
    "bool": _plain(bool),
    "datetime": lambda value: datetime.fromisoformat(_text(value)),
    "datetime | None": _perhaps(lambda value: datetime.fromisoformat(_text(value))),
    "tuple[str, ...]": _each(_text),
    "tuple[tuple[str, str], ...]": _each(_each(_text)),
    "tuple[int, ...]": _each(_count),
    "tuple[int, ...] | None": _perhaps(_each(_count)),
    "tuple[File, ...]": _each(lambda value: read_json(File, value)),
    "tuple[StoreName, ...]": _each(lambda value: read_json(StoreName, value)),
    "tuple[Damage, ...]": _each(lambda value: read_json(Damage, value)),
    "tuple[DtypeTotal, ...]": _each(lambda value: read_json(DtypeTotal, value)),
    "Histogram | None": _perhaps(lambda value: read_json(Histogram, value)),
    "ModelReport | None": _perhaps(lambda value: read_json(ModelReport, value)),
    "tuple[PiecePlace, ...]": _each(lambda value: read_json(PiecePlace, value)),
    "tuple[int | None, ...] | None": _perhaps(_each(_perhaps(_count))),
    "tuple[SignatureTensor, ...]": _each(lambda value: read_json(SignatureTensor, value)),
    "tuple[GraphEntry, ...]": _each(lambda value: read_json(GraphEntry, value)),
    "tuple[GraphNode, ...]": _each(lambda value: read_json(GraphNode, value)),
    "tuple[GraphEdge, ...]": _each(lambda value: read_json(GraphEdge, value)),
    "tuple[Node, ...]": _each(lambda value: read_json(Node, value)),
}
"""The reader of a member, by the annotation of its dataclass field."""
