"""Root of a new store: its choice among the files, and its records, such as index and plan."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from protoslice import _core, schema
from protoslice.catalog.manifest import ObjectLocation
from protoslice.catalog.new_objects import NewObjects, ObjectWriter
from protoslice.catalog.requests import IngestRequest
from protoslice.concurrency.executor import Worker
from protoslice.detection import BY_NAME, is_text_name
from protoslice.errors import CorruptModel, InvalidInput, LimitExceeded, NotFound, ProtosliceError, Unsupported
from protoslice.formats.registry import formats_of
from protoslice.formats.roots import Candidate, manifests_of, rank, tried
from protoslice.ingest.file_writer import IngestedFile
from protoslice.library.indexing import Decoded, Indexed, IndexingTerms, ProtoFile, Side, decode, index
from protoslice.library.opening import open_proto
from protoslice.schema.text_worker import serialized_apart
from protoslice.serving.schemas import Types
from protoslice.serving.store_options import RulesByType
from protoslice.serving.stored import StoredObject, open_object
from protoslice.sources.files import BytesSource
from protoslice.sources.source import RangeSource
from protoslice.storage import Storage
from protoslice.tensors.model import Model


def check_kept(kept: RulesByType) -> None:
    """Raise an error that names type and rule unless all rules parse, and apply to their bundled types."""
    for type_name, rules in kept.items():
        try:
            _core.Plan.rules(rules)
            if type_name in schema.bundled():
                with open_proto(b"", type_name) as empty:
                    empty.split(rules=rules)
        except ProtosliceError as error:
            raise _of_type(type_name, error)  # noqa: B904 - the same error, with the type in front


def planned(
    document: _core.Document, type_name: str | None, request: IngestRequest, kept: RulesByType
) -> tuple[_core.Plan, tuple[str, ...]]:
    """Return the plan of a root of type `type_name`, and its rules in canonical form."""
    by_type = kept.get(type_name or "", ()) if request.rules is None else ()
    rules = list(request.rules or by_type)
    try:
        plan = document.plan(request.min_chunk, request.max_chunk, rules)
    except ProtosliceError as error:
        if by_type and type_name is not None:
            _of_type(type_name, error)
        raise
    return plan, tuple(_core.Plan.rules(rules))


def _of_type(type_name: str, error: ProtosliceError) -> ProtosliceError:
    error.message = f"the default rules for {type_name}: {error.message}"
    return error


class DecodedBytes:
    """Side object of at most `room` bytes. `write` and `source` block: call them in worker threads only."""

    def __init__(
        self,
        storage: Storage,
        objects: NewObjects,
        worker: Worker,
        *,
        room: int,
        verify: bool,
    ) -> None:
        self.room = room
        self.stored: ObjectLocation | None = None
        """Location of the object after `source`; None when nothing was written."""
        self._storage = storage
        self._objects = objects
        self._worker = worker
        self._verify = verify
        self._writer: ObjectWriter | None = None
        self._opened: StoredObject | None = None
        self._closed = False

    def write(self, data: bytes, /) -> None:
        """Append `data`; raise `LimitExceeded` beyond `room`."""
        size = (0 if self._writer is None else self._writer.size) + len(data)
        if size > self.room:
            raise LimitExceeded(f"The decoded file has {size} bytes or more, but the upload has room for {self.room}")
        self._worker.wait_for(self._write(data))

    def source(self) -> RangeSource:
        """Publish the object and open it for reading."""
        return self._worker.wait_for(self._open())

    async def close(self) -> None:
        """Close the opened object, or discard an unpublished one."""
        self._closed = True  # a worker thread may outlive its cancelled caller
        if self._opened is not None:
            self._opened.close()
        elif self._writer is not None:
            await self._writer.abort()

    async def _write(self, data: bytes) -> None:
        if self._closed:
            raise InvalidInput("the upload was cancelled")
        if self._writer is None:
            self._writer = await self._objects.writer()
        self._writer.sums.update(data)
        await self._writer.write(data)

    async def _open(self) -> RangeSource:
        if self._writer is None or not self._writer.size:
            return BytesSource(b"")
        self.stored = await self._writer.commit()
        opened = await open_object(self._storage, self.stored, self._worker, verify=self._verify)
        if self._closed:
            opened.close()
        self._opened = opened
        return opened


_TEXT_AT_ONCE: Final = 64 << 10
"""Text up to this size is parsed in this process, in some milliseconds.

Longer text would hold the GIL too long.
"""
_DECODED_RATIO: Final = 128
"""Decoded bytes per byte of a compressed chunked proto, at most."""
_DECODED_FREE: Final = 16 << 20
"""Decoded bytes that a compressed chunked proto of any size may have."""
_DECODED_HELD: Final = 64 << 20
"""Memory of decoding a chunk that cannot be decoded in pieces, at most.

It is taken two or three times.
"""
_NOT_PROTOS: Final = ("text", "json", "table", "tfrecord", "paddle", "safetensors", "gguf")
"""Kinds of root stored without an index, for formats that read them directly."""


@dataclass(frozen=True, slots=True)
class RootRecords:
    """Records of a root, stored next to the files."""

    type: str | None
    index: bytes
    plan: bytes
    chunks: int
    schema: schema.TypeSchema | None
    """Schema that the root is read by; None for a root of unknown type."""
    image: bytes | None = None
    kept: bool = False
    """True when the plan is the one that a chunked root came with."""
    merged: bool = False
    """True for a chunked root, whose image is its chunks merged."""
    rules: tuple[str, ...] = ()
    """Rules of the plan, in canonical form."""


class NotAModel(Exception):
    """Raised for a file that cannot be a root, for the reason `why`."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class BoundedSide(Side, Protocol):
    """Destination of decoded bytes with a limit."""

    @property
    def room(self) -> int:
        """Bytes that may be written, at most."""


def prepare_root(
    source: RangeSource,
    received: IngestedFile,
    side: BoundedSide,
    types: Types,
    request: IngestRequest,
    *,
    kept_rules: RulesByType,
    texts: bool,
) -> RootRecords | None:
    """Prepare a root; return None for a file that is no proto, but that a format reads.

    Raise `NotAModel` for any other file, and for a file that does not parse and was taken for a proto on weak evidence.
    `kept_rules` are for roots without rules in the request; `texts` allows parsing a text of known type.
    """
    detection = received.detection
    text_type = request.type_or(detection.type_name) if texts and detection.kind == "text" else None
    if detection.kind in _NOT_PROTOS and request.type is None and text_type is None:
        _check_known(source, received, request)
        return None
    if not source.size and detection.kind == "unknown" and not request.names_a_root:
        raise NotAModel("the file is empty")
    file = _file(source, received, request, text_type)
    terms = _terms(file, received, side, types)
    found = _index(_decode(file, side, terms, request), received, terms, request)
    plan, rules = found.own_plan() if request.plan is None and not request.rules else None, tuple[str, ...]()
    if plan is None:
        document = _core.Document(_core.Index(found.index), found.flat, found.sources, found.image)
        plan, rules = planned(document, found.type, request, kept_rules)
    image = None if found.image is None else found.image.encode()
    return RootRecords(
        found.type,
        found.index,
        plan.encode(),
        len(plan),
        types.of(found.type) if found.type else None,
        image,
        kept=plan.kept,
        merged=found.chunked is not None,
        rules=rules,
    )


def _check_known(source: RangeSource, received: IngestedFile, request: IngestRequest) -> None:
    """Raise `NotAModel` for a file that no format reads as a root, unless the request names a root."""
    path, detection = received.info.path, received.detection
    if request.rules:
        raise NotAModel("split rules only apply to protobufs, but the root file is not one: leave out the rules")
    if not request.names_a_root and not formats_of(Model(path, detection.type_name, {path: source}, None, detection)):
        raise NotAModel(f"{detection.why}; files of this kind are not supported as models")


def _file(source: RangeSource, received: IngestedFile, request: IngestRequest, text_type: str | None) -> ProtoFile:
    path = received.info.path
    if received.detection.kind == "riegeli":
        return ProtoFile(source, "chunked", request.type_or(None), name=path, tell=request.type is None)
    if text_type is not None:
        return ProtoFile(source, "text", text_type, name=path)
    return ProtoFile(source, "serialized", request.type_or(received.scan.type if received.scan else None))


def _terms(file: ProtoFile, received: IngestedFile, side: BoundedSide, types: Types) -> IndexingTerms:
    """Return the limits for an untrusted file, and its index when the scan during upload made one."""
    most = min(side.room, _DECODED_FREE + _DECODED_RATIO * file.source.size)
    scanned = received.scan if file.form == "serialized" else None
    return IndexingTerms(
        types,
        decoding=_core.Limits(decoded=1 << 62, held=_DECODED_HELD, side=most),
        parse=schema.serialized if file.source.size <= _TEXT_AT_ONCE else serialized_apart,
        index=scanned.index if scanned is not None and scanned.type == file.type else None,
    )


def _decode(file: ProtoFile, side: BoundedSide, terms: IndexingTerms, request: IngestRequest) -> Decoded:
    try:
        return decode(file, side, terms)
    except Unsupported as error:
        # A subclass comes from the side, which refuses the bytes of a valid chunked proto.
        if file.form == "chunked" and type(error) is Unsupported:
            raise NotAModel(error.message) from error
        raise
    except CorruptModel as error:
        if file.form == "text" and request.type is None and not is_text_name(file.name or ""):
            raise NotAModel(f"{error.message}: not a valid message in text format") from error
        raise


def _index(decoded: Decoded, received: IngestedFile, terms: IndexingTerms, request: IngestRequest) -> Indexed:
    file, scan = decoded.file, received.scan
    try:
        if file.form == "serialized" and scan is not None and scan.error is not None and scan.type == file.type:
            raise scan.error
        return index(decoded, terms)
    except (CorruptModel, LimitExceeded) as error:
        sure = request.names_a_root or received.detection.confidence > BY_NAME
        if sure or file.form != "serialized":
            raise
        raise NotAModel(f"{received.detection.why}, but it does not parse as a message: {error}") from error


Open = Callable[[IngestedFile], Awaitable["Opened"]]
Made = tuple[RootRecords | None, ObjectLocation | None]
Prepare = Callable[[IngestedFile], Awaitable[Made]]

_STREAMS: Final = frozenset({"riegeli", "tfrecord"})
"""Kinds of files that hold records, as detection names them."""


class Opened(RangeSource, Protocol):
    """Bytes of a file that arrived."""

    def close(self) -> None:
        """Release the bytes."""


class HeldFile(BytesSource):
    """File that arrived and is still in memory."""

    def close(self) -> None:
        """Do nothing: the owner keeps the bytes."""


@dataclass(frozen=True, slots=True)
class Root:
    """Root of an ingest and the records prepared for it; without a `file`, `why` says why."""

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
    """Return the root of `files`: the one that `request` names, else the first likely one that can be prepared.

    `opened` opens a file; `prepare` makes the records of a root or raises `NotAModel`. Raise an error when a named root
    or type cannot be used, and for damage in a file whose content identifies it.
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
    """Return the result of `prepare`; with several files, errors are prefixed with the path."""
    try:
        return await prepare(file)
    except ProtosliceError as error:
        if not alone:
            error.message = f"{file.info.path}: {error.message}"
        raise


def _why(ranked: Sequence[IngestedFile], reasons: dict[str, str], stream: str | None) -> str:
    """Return the reason why no file is a root, for the likeliest file."""
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
    """Return the files, likeliest root first."""
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
