"""Reports on pushes, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protoslice.sizes import format_size


def report_lines(pushed: Any, advice: str | None) -> Iterator[str]:
    """Type and tensors of the pushed model, a line for each trouble with it, and the bytes that were sent.

    `advice` says how to send missing files; None when nothing can be said.
    """
    if pushed.report is not None:
        yield from _about(pushed.store, pushed.report)
        if pushed.report.missing and advice is not None:
            yield advice
    copied = f", {format_size(pushed.copied)} reused" if pushed.copied else ""
    yield f"{format_size(pushed.sent)} sent{copied}" if pushed.created else "this store is already on the service"


def _about(store: Any, report: Any) -> Iterator[str]:
    yield _kind(store) if store.root is None else f"{_kind(store)}, {_tensors(report.tensors)}"
    more = "" if report.complete else " and more"
    if report.missing:
        yield f"missing files: the model refers to {', '.join(report.missing)}{more}, but they were not sent"
    for damage in report.damaged:
        yield f"damaged: {damage.part}: {damage.error}"
    if report.duplicates:
        yield f"Duplicate tensor names: {', '.join(report.duplicates)}{more}"


def _kind(store: Any) -> str:
    if store.root is None:
        return f"stored as plain files: {store.why or 'no root proto was found'}"
    return f"{store.root}: {store.type}" if store.type != "unknown" else f"{store.root}: protobuf of unknown type"


def _tensors(count: int | None) -> str:
    if count is None:
        return "no tensors in a known format"
    return f"{count} tensor{'' if count == 1 else 's'}"
