"""Choice of a store's root: the file that is its proto, or a reason why there is none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from protoslice.concurrency.executor import Worker
from protoslice.errors import InvalidInput, NotFound, ProtosliceError, Unsupported
from protoslice.formats.roots import Candidate, manifests_of, rank, tried
from protoslice.sources.files import BytesSource
from protoslice.sources.source import RangeSource
from protoslice.stores.ingest.file_writer import IngestedFile
from protoslice.stores.ingest.root_records import NotAModel, RootRecords
from protoslice.stores.manifest import ObjectLocation
from protoslice.stores.requests import IngestRequest

Open = Callable[[IngestedFile], Awaitable["Opened"]]
Made = tuple[RootRecords | None, ObjectLocation | None]
Prepare = Callable[[IngestedFile], Awaitable[Made]]

_STREAMS: Final = frozenset({"riegeli", "tfrecord"})
"""Kinds of files that hold records, as detection names them."""


class Opened(RangeSource, Protocol):
    """Bytes of a file that arrived."""

    def close(self) -> None:
        """Release them."""


class HeldFile(BytesSource):
    """File that arrived and is in memory still."""

    def close(self) -> None:
        """Leaves the bytes to their owner."""


@dataclass(frozen=True, slots=True)
class Root:
    """Root of an ingest and the records prepared for it; without a `file` there is a `why`."""

    file: IngestedFile | None
    prepared: RootRecords | None = None
    side: ObjectLocation | None = None
    why: str | None = None
    stream: str | None = None
    """Path of the likeliest file that holds records, as its bytes show."""

    @property
    def path(self) -> str | None:
        """Path of the root; None without a root."""
        return self.file.info.path if self.file is not None else None

    @property
    def type(self) -> str | None:
        """Type of the root; None when unknown or without a root."""
        if self.prepared is not None:
            return self.prepared.type
        return self.file.detection.type_name if self.file is not None else None


async def choose_root(
    files: Sequence[IngestedFile], request: IngestRequest, *, opened: Open, worker: Worker, prepare: Prepare
) -> Root:
    """The root of `files`: the one that `request` names, else the first of the likely ones that prepares.

    `opened` opens a file; `prepare` makes the records of a root or raises `NotAModel`. Raises when a root or type
    is named and cannot be used, and for damage in a file whose content identifies it.
    """
    if not files:
        raise InvalidInput("The upload contains no files")
    ranked = await _ranked(files, opened, worker)
    stream = next((file.info.path for file in ranked if file.detection.kind in _STREAMS), None)
    if request.names_a_root:
        file = ranked[0] if request.root is None else _named(files, request.root)
        try:
            return Root(file, *await _prepared(file, prepare, alone=len(files) == 1), stream=stream)
        except NotAModel as error:
            raise Unsupported(f"{error.why}; if the file is a protobuf, pass its type") from error
    reasons: dict[str, str] = {}
    by_path = {file.info.path: file for file in ranked}
    for file in (by_path[candidate.path] for candidate in tried(_candidates(ranked))):
        try:
            return Root(file, *await _prepared(file, prepare, alone=len(files) == 1), stream=stream)
        except NotAModel as error:
            reasons[file.info.path] = error.why
    return Root(None, why=_why(ranked, reasons, stream), stream=stream)


def _named(files: Sequence[IngestedFile], path: str) -> IngestedFile:
    found = next((file for file in files if file.info.path == path), None)
    if found is None:
        raise NotFound(f"The upload has no file {path!r} to use as the root")
    return found


async def _prepared(file: IngestedFile, prepare: Prepare, *, alone: bool) -> Made:
    """The result of `prepare`; with several files, errors are prefixed with the path."""
    try:
        return await prepare(file)
    except ProtosliceError as error:
        if not alone:
            error.message = f"{file.info.path}: {error.message}"
        raise


def _why(ranked: Sequence[IngestedFile], reasons: dict[str, str], stream: str | None) -> str:
    """Reason why no file is a root, given for the likeliest file."""
    path, reason = next(iter(reasons.items()), (ranked[0].info.path, ranked[0].detection.why))
    records = "" if stream is None else f". The records of {stream} can be read at /records"
    if len(ranked) == 1:
        hint = "" if "not a protobuf" in reason else ". If it is a protobuf, pass its type"
        return f"{path} is not in a supported format ({reason}){hint}{records}"
    if stream is not None:
        records += f"?file={stream}"
    return (
        f"none of the {len(ranked)} files is in a supported format ({path}: {reason}). If one is a protobuf, pass its "
        f"path as root, and its type{records}"
    )


async def _ranked(files: Sequence[IngestedFile], opened: Open, worker: Worker) -> list[IngestedFile]:
    """The files, likeliest root first."""
    # In a thread, since an upload may hold ten thousand files.
    by_path = {file.info.path: file for file in files}
    candidates = await worker.run(lambda: _candidates(files))
    contents = {
        each.path: await _content(await opened(by_path[each.path]), worker)
        for each in await worker.run(lambda: manifests_of(candidates))
    }
    ranked = await worker.run(lambda: rank(candidates, contents))
    return [by_path[each.path] for each in ranked]


def _candidates(files: Sequence[IngestedFile]) -> list[Candidate]:
    return [Candidate(file.info.path, file.detection.kind, file.info.size) for file in files]


async def _content(file: Opened, worker: Worker) -> bytes:
    try:
        return await worker.run(lambda: file.read(0, file.size))
    finally:
        file.close()
