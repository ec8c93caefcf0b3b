"""The root of a new store: how it is chosen among the files, and its records, such as index and plan."""

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
    """Raise an error, which names type and rule, unless all rules parse and apply to their bundled types."""
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
    """Return the plan for a root of the type `type_name`, and the plan's rules in canonical form."""
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
    """A side object of at most `room` bytes. `write` and `source` block, so only worker threads may call them."""

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
        """The object's location after `source`; None when nothing was written."""
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
        """Close the opened object, or discard an unpublished object."""
        self._closed = True  # a worker thread may keep running after its caller was cancelled
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
"""The size in bytes of the largest text that this process parses. Parsing it takes some milliseconds.

Longer text is parsed in another process, because it would hold the GIL too long.
"""
_DECODED_RATIO: Final = 128
"""Largest number of decoded bytes per byte of a compressed chunked proto."""
_DECODED_FREE: Final = 16 << 20
"""Decoded bytes that a compressed chunked proto may always have, regardless of its size."""
_DECODED_HELD: Final = 64 << 20
"""The largest chunk, in bytes of memory, that is decoded as a whole because it cannot be decoded in pieces.

Decoding needs two or three times as much memory.
"""
_NOT_PROTOS: Final = ("text", "json", "table", "tfrecord", "paddle", "safetensors", "gguf")
"""The kinds of root that are stored without an index, because formats read them directly."""


@dataclass(frozen=True, slots=True)
class RootRecords:
    """The records of a root, which are stored next to the files."""

    type: str | None
    index: bytes
    plan: bytes
    chunks: int
    schema: schema.TypeSchema | None
    """The schema that reads the root; None for a root of unknown type."""
    image: bytes | None = None
    kept: bool = False
    """True when the plan was kept from a chunked root."""
    merged: bool = False
    """True for a chunked root, whose image consists of the merged chunks."""
    rules: tuple[str, ...] = ()
    """The rules of the plan in canonical form."""


class NotAModel(Exception):
    """The exception for a file that cannot be a root; `why` is the reason."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class BoundedSide(Side, Protocol):
    """A destination of decoded bytes that has a size limit."""

    @property
    def room(self) -> int:
        """Largest number of bytes that may be written."""


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
    """Prepare a root; return None for a file that is not a proto but that a format reads.

    Raise `NotAModel` for any other file. Raise it too for a file that was taken for a proto on weak evidence and
    does not parse. `kept_rules` apply to roots whose request has no rules. If `texts` is set, a text of a known type
    may be parsed.
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
    """Return the limits for an untrusted file, and the file's index if the scan during the upload has made it."""
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
        # A subclass of `Unsupported` comes from the side, which refuses the bytes of a valid chunked proto.
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
"""The kinds of files that contain records, as detection names them."""


class Opened(RangeSource, Protocol):
    """The bytes of a file that has arrived."""

    def close(self) -> None:
        """Release the bytes."""


class HeldFile(BytesSource):
    """A file that has arrived and is still in memory."""

    def close(self) -> None:
        """Do nothing, because the owner keeps the bytes."""


@dataclass(frozen=True, slots=True)
class Root:
    """The root of an ingest and the records prepared for it; if `file` is None, `why` is the reason."""

    file: IngestedFile | None
    prepared: RootRecords | None = None
    side: ObjectLocation | None = None
    why: str | None = None
    stream: str | None = None
    """The path of the likeliest file whose content shows that it contains records."""

    @property
    def path(self) -> str | None:
        """The path of the root, or None without a root."""
        return self.file.info.path if self.file is not None else None

    @property
    def type(self) -> str | None:
        """The type of the root; None if it is unknown or if there is no root."""
        if self.prepared is not None:
            return self.prepared.type
        return self.file.detection.type_name if self.file is not None else None


async def choose_root(
    files: Sequence[IngestedFile], request: IngestRequest, *, opened: Open, worker: Worker, prepare: Prepare
) -> Root:
    """Return the root of `files`: the file that the request names, or else the likeliest file that can be prepared.

    `opened` opens a file. `prepare` makes the records of a root or raises `NotAModel`. Raise an error when a named root
    or type cannot be used. Raise an error for a damaged file whose content clearly identifies its kind.
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
    """Return the result of `prepare`; if there are several files, add the path to the message of an error."""
    try:
        return await prepare(file)
    except ProtosliceError as error:
        if not alone:
            error.message = f"{file.info.path}: {error.message}"
        raise


def _why(ranked: Sequence[IngestedFile], reasons: dict[str, str], stream: str | None) -> str:
    """Return why no file is a root; the reason is that of the likeliest file."""
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
    """Return the files, with the likeliest root first."""
    # A thread does this, because an upload may have ten thousand files.
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
