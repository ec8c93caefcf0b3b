"""Opening of streams: a path, bytes or any object with range reads becomes `Records`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from protoslice import _core
from protoslice.sources.files import FileSource
from protoslice.sources.opening import SourceLike, as_source, filename_of
from protoslice.streams.framing import checked_framing, framing_of
from protoslice.streams.records import Records
from protoslice.streams.types import type_of


def open_records(
    source: SourceLike,
    type: str | None = None,
    *,
    framing: str | None = None,
    index: bytes | None = None,
    limits: _core.Limits | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Records:
    """Open a stream of records: a path, bytes, a seekable file or a range source.

    `framing` and `type`, the message type of the records, are detected unless given. `index`, from
    `Records.index_bytes` for the same bytes, spares the pass over the heads of the records.

    A stream that is cut off or damaged keeps its records up to there; `Records.fault` says where and why.
    `progress(done, total)` is called now and then, in bytes.
    """
    opening = as_source(source)
    with ExitStack() as held:
        if opening is not source and isinstance(opening, FileSource):
            held.enter_context(opening)
        if index is None:
            known = framing_of(opening) if framing is None else checked_framing(framing)
            index = _core.index_records(_core.Sources([opening]), known, limits=limits, progress=progress)
        records = Records(opening, index)
        records.type = type or type_of(records.core, opening, filename_of(source))
        records.own(held.pop_all())
        return records
    raise AssertionError("a with block that returns")  # pragma: no cover
