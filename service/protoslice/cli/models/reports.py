"""Reports on pushed models, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["told"]


def told(store: Any, report: Any) -> Iterator[str]:
    """The type and the tensors of a model, then a line for each trouble with it."""
    yield f"{_kind(store)}, {_tensors(report.tensors)}"
    more = "" if report.complete else " and more"
    if report.missing:
        yield f"missing: the model refers to {', '.join(report.missing)}{more}, which was not sent"
    for damage in report.damaged:
        yield f"damaged: {damage.part}: {damage.error}"
    if report.duplicates:
        yield f"several tensors bear each of these names: {', '.join(report.duplicates)}{more}"


def _kind(store: Any) -> str:
    if store.root is None:
        return f"kept as files: {store.why or 'no root proto was found'}"
    return f"{store.root}: {store.type}" if store.type != "unknown" else f"{store.root}: a proto of unknown type"


def _tensors(count: int | None) -> str:
    if count is None:
        return "no tensors that a format knows of"
    return f"{count} tensor{'' if count == 1 else 's'}"
