"""Opened stores and their views."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Self

from protoslice import _core, schema
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.results import Results
from protoslice.concurrency.shares import Shares
from protoslice.detection import look_at
from protoslice.errors import CorruptModel, InvalidInput, LimitExceeded, NoRoot, NotFound, Unsupported
from protoslice.facts import ChunkEntry, File, ModelReport, Node, Signature
from protoslice.file_names import without_version_control
from protoslice.formats.registry import formats_of, tensors_of
from protoslice.formats.report import MOST_LISTED, report_job
from protoslice.formats.tensorflow import tensors_with_tags
from protoslice.identity import ARCHIVES, READERS
from protoslice.library.documents import Document
from protoslice.pieces import extents_of
from protoslice.sources.ropes import Rope
from protoslice.storage import Span
from protoslice.stores.derived_facts import DerivedFacts
from protoslice.stores.finding import FileRef, refs_of
from protoslice.stores.manifest import Manifest
from protoslice.stores.names import check_plan
from protoslice.stores.objects.read_memo import ReadsOfStore
from protoslice.stores.objects.representation import Representation
from protoslice.stores.objects.stored import StoredFile
from protoslice.stores.paging import PageBudget, ResultPage, first_item
from protoslice.stores.reading.archive import tar_of
from protoslice.stores.reading.chunk_facts import ChunkFacts
from protoslice.stores.reading.chunks import StoreChunks
from protoslice.stores.reading.documents import ROOT, StoreDocument, StoreDocuments
from protoslice.stores.reading.graphs import StoreGraphs
from protoslice.stores.reading.heads import KeptHeads
from protoslice.stores.reading.onnx_files import StoreOnnx
from protoslice.stores.reading.records import (
    PIECE_WEIGHT,
    FindType,
    Plan,
    RecordsRequest,
    StoreRecords,
)
from protoslice.stores.reading.root import OpenRoot
from protoslice.stores.reading.tensors.signatures import signatures_page
from protoslice.stores.reading.tensors.tensors import StoreTensors
from protoslice.stores.reading.tree import nodes_below
from protoslice.stores.reading.treemap import treemap_job
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Model, RootProto
from protoslice.tensors.omitted import Omitted

DEPTH = 16
_WEIGHT = 20 << 10
"""Bytes of an opened store beside what is counted, about."""
_FILE_WEIGHT = 1500
"""Bytes of memory per file, about."""
_RECORD_WEIGHT = 2
"""Bytes of memory per byte of a record, about: as it is kept, and in the core."""
_CHUNK_WEIGHT = 72
"""Bytes of memory of the digest and the hash of a chunk, about."""


@dataclass(frozen=True, slots=True)
class TextView:
    """A view of a store that is JSON or a rendered message, with its digest."""

    text: bytes
    sha256: bytes
    next: str | None
    """Cursor of the next page; None for the last one, and for what is no page."""
    omitted: Omitted | None

    @classmethod
    def of(cls, text: bytes, *, next: str | None = None, omitted: Omitted | None = None) -> Self:
        """The view of this text."""
        return cls(text, hashlib.sha256(text).digest(), next, omitted)


class OpenStore:
    """Opened store: index and plan in memory, objects held open."""

    def __init__(
        self,
        manifest: Manifest,
        files: Sequence[StoredFile],
        proto: OpenRoot | None,
        worker: Worker,
        derived: DerivedFacts,
        results: Results,
        passes: Shares,
        find_type: FindType,
    ) -> None:
        """`results` keeps what is computed of the store; `passes` bounds passes over streams of all stores."""
        self.manifest = manifest
        self.info = manifest.as_store()
        self.seen_at = float("-inf")
        """Time by the event loop's clock from which the store is trusted."""
        self.read_at = float("-inf")
        """Time at which its row was last seen."""
        self._objects = (*files, *(proto.decoded if proto is not None else ()))
        self._reads = ReadsOfStore(self._objects, derived, worker)
        self._proto = proto
        self._worker = worker
        self._derived = derived
        self._chunks = self._chunks_by(proto.plan, "", self._etag) if proto is not None else None
        self.results = results
        """Results of views of all stores of the process."""
        self.heads = KeptHeads(manifest.row, derived, results)
        """Heads of views that are costly to make."""
        self._files = {file.path: (file, stored) for file, stored in zip(manifest.files, files, strict=True)}
        by_path = {path: stored for path, (_, stored) in self._files.items()}
        root = RootProto(proto.document, proto.sources) if proto is not None else None
        self.model = model = Model(manifest.root or "", manifest.type, by_path, root)
        """The model in the files."""
        self.tensors = StoreTensors(
            model,
            manifest.row,
            lambda: self._reads.memoizing(lambda: self._tensors(model)),
            results,
            worker,
            lambda *view: self._etag(READERS, *view),
        )
        """Tensors of the store."""
        self.onnx = StoreOnnx(model, manifest.row, self._known, results, worker, self.tensors.readable, self._etag)
        """The model as ONNX files."""
        self.graphs = StoreGraphs(model, manifest.row, self.tensors, results, worker)
        """Graphs of the model."""
        self.records = StoreRecords(by_path, worker, derived, find_type, self._etag, passes, manifest.row, results)
        """Records of the store's streams."""
        self.documents = StoreDocuments(
            manifest.root, by_path, self._root_document, self.records, manifest.row, results, worker
        )
        """Documents of the store: the root, the indexes of bundles, streams."""

    @cached_property
    def weight(self) -> int:
        """Bytes that the store holds in memory, about, without what is computed of it."""
        objects = {part for stored in self._objects for part in stored.parts}
        records = self._proto.weight if self._proto is not None else 0
        sums = sum(part.weight for part in objects)
        sums += _CHUNK_WEIGHT * len(self._chunks.plan) if self._chunks is not None else 0
        return _WEIGHT + _FILE_WEIGHT * len(self._files) + _RECORD_WEIGHT * records + sums

    async def text(self, view: tuple[object, ...], make: Callable[[], Awaitable[TextView]]) -> TextView:
        """The text of a view, which `make` gives unless it is in memory."""

        async def made() -> tuple[TextView, int]:
            found = await make()
            return found, len(found.text)

        return await self.results.get((self.manifest.row, "text", *view), made, cancellable=True)

    def file(self, path: str) -> Representation:
        """The file at `path`, unchanged; `NotFound` when the store has none."""
        if path not in self._files:
            raise NotFound(f"The store has no file {path!r}")
        file, stored = self._files[path]
        digest = bytes.fromhex(file.sha256) if file.sha256 else None
        is_root = path == self.manifest.root
        message = self.manifest.type if is_root and self._proto is not None and not self._proto.imaged else None
        etag = f"sha256-{file.sha256}" if file.sha256 else self._etag("file", path)
        rope = _core.Rope([(0, 0, stored.size)])
        return Representation(rope, [stored], etag, path.rpartition("/")[2], sha256=digest, message_type=message)

    def stored(self, path: str) -> StoredFile:
        """The objects that hold the file at `path`."""
        return self._files[path][1]

    @cached_property
    def refs(self) -> Mapping[str, FileRef]:
        """References to the files by path, for stores that share them."""
        return refs_of(self.manifest)

    async def archive(self) -> Representation:
        """All files as one tar archive, in the order of their paths, without those of version control."""
        shown = sorted(without_version_control(self._files))  # uploads of one store may differ in their order
        found, gone = [self._files[path] for path in shown], sorted(self._files.keys() - set(shown))
        _, _, rope = await self.results.get((self.manifest.row, "archive"), lambda: self._planned_archive(found))
        return Representation(
            rope,
            [stored for _, stored in found],
            self._etag("archive", ARCHIVES, *(["without"] if gone else [])),
            f"{self.manifest.id[:12]}.tar",
            media_type="application/x-tar",
            omitted=Omitted.of(len(gone), gone, what="file"),
        )

    async def _planned_archive(self, found: Sequence[tuple[File, StoredFile]]) -> tuple[Plan, int]:
        """The plan of an archive, and its weight in bytes."""
        rope = await self._worker.run(lambda: tar_of([file for file, _ in found]))
        return ("file", None, rope), Rope(rope, ()).literals + PIECE_WEIGHT * rope.piece_count

    def tensors_with(self, tags: Sequence[str] | None) -> StoreTensors:
        """The tensors, or those of the meta graph with exactly `tags`; see `tensors_with_tags`."""
        if tags is None:
            return self.tensors
        wanted = tuple(sorted(set(tags)))
        return StoreTensors(
            self.model,
            self.manifest.row,
            lambda: self._with_tags(wanted),
            self.results,
            self._worker,
            lambda *view: self._etag(READERS, "tags", wanted, *view),
            wanted,
        )

    async def _with_tags(self, tags: Sequence[str]) -> Tensors:
        found = await self.tensors.all()
        return await self._worker.bulk(lambda: tensors_with_tags(self.model, found, tags))

    @property
    def is_serialized(self) -> bool:
        """True if the root file is the serialized proto itself, rather than a chunked file or a text."""
        return self._proto is not None and not self._proto.imaged

    @property
    def facts_known(self) -> int:
        """Number of digests learnt so far; a cached answer made at a smaller number may lack some."""
        return self._chunks.facts.known if self._chunks is not None else 0

    async def metadata(self, plan: str | None = None) -> Representation:
        """The serialized `ChunkMetadata` of the store's `.cpb`; see `planned`."""
        return await (await self.planned(plan)).metadata()

    async def chunk(self, n: int, plan: str | None = None) -> Representation:
        """Chunk number `n`; `NotFound` when there is none; see `planned`."""
        return (await self.planned(plan)).one(n)

    def planned_chunk(self, n: int) -> Representation:
        """Chunk number `n` by the store's own plan, without reading storage; `NotFound` when there is none."""
        return self._own_chunks().one(n)

    async def chunks(
        self, *, limit: int, cursor: str | None, digests: bool = True, plan: str | None = None
    ) -> ResultPage[ChunkEntry]:
        """A page of the chunks; see `planned`.

        With `digests`, chunks of unknown digest are read whole to compute it.
        """
        return await (await self.planned(plan)).page(limit=limit, cursor=cursor, digests=digests)

    async def planned(self, plan: str | None = None) -> StoreChunks:
        """The chunks by the store's plan, or by its chunk sizes if `plan` is `policy`.

        The two differ for a chunked root alone. `InvalidInput` for another `plan`.
        """
        check_plan(plan)
        own = self._own_chunks()
        if not plan or not own.plan.kept:
            return own
        return await self.results.get((self.manifest.row, "plan by policy"), self._planned_by_policy)

    async def tree(
        self, path: str, depth: int, limit: int, cursor: str | None, of: StoreDocument | None = None
    ) -> ResultPage[Node]:
        """A page of the nodes below `path` in `of` or the root, nested `depth` levels deep (1 to `DEPTH`)."""
        if not 1 <= depth <= DEPTH:
            raise InvalidInput(f"Invalid depth: use 1 to {DEPTH}")
        found, first = of or await self.documents.of(ROOT), first_item(cursor)
        items, total = await self._worker.run(
            lambda: nodes_below(found.document, path, first, depth, PageBudget(limit))
        )
        last = first + len(items)
        return ResultPage(items, str(last) if items and last < total else None)

    async def treemap(self, path: str, depth: int, min_share: float) -> Node:
        """The node at `path` with the largest parts below it, nested `depth` levels deep (1 to `DEPTH`)."""
        if not 1 <= depth <= DEPTH:
            raise InvalidInput(f"depth must be from 1 to {DEPTH}")
        document = self._known().document
        return await self._worker.finish(treemap_job(document, path, depth, min_share))

    async def signatures(self, tags: Sequence[str] | None, limit: int, cursor: str | None) -> ResultPage[Signature]:
        """A page of the signatures of a SavedModel, or of its meta graph with exactly `tags`."""
        if self.manifest.root is None:
            raise self._no_root()
        return await self._worker.run(lambda: signatures_page(self.model, tags, limit, cursor))

    def _root_document(self) -> StoreDocument:
        proto = self._known()
        return StoreDocument(proto.document, proto.sources)

    async def merge(
        self,
        path: str,
        fields: Sequence[str] | None,
        omit_larger_than: int | None,
        of: RecordsRequest = ROOT,
        *,
        omit: Sequence[str] = (),
    ) -> Representation:
        """The value at `path` in the document `of`: its `fields`, without any above `omit_larger_than` or in `omit`."""
        found = await self.documents.of(of)
        if omit_larger_than is not None and not 0 <= omit_larger_than < 1 << 63:
            raise InvalidInput("Invalid omit_larger_than: use a size in bytes, 0 or more")
        fields = tuple(fields or ())
        view = (path, fields, omit_larger_than, tuple(omit))
        kind, type_name, rope = await self.results.get(
            (self.manifest.row, "merge", *view, *found.facts), lambda: self._planned_merge(found.document, *view)
        )
        whole = not path and not fields and omit_larger_than is None and not omit
        if whole and not found.facts and not self._known().imaged:
            as_file = self.file(self.manifest.root or "")
            return Representation(
                rope,
                found.sources,
                as_file.etag,
                as_file.filename,
                kind=kind,
                sha256=as_file.sha256,
                message_type=type_name,
                media_type="application/protobuf",
            )
        media = {"message": "application/protobuf", "string": "text/plain; charset=utf-8"}.get(
            kind, "application/octet-stream"
        )
        if kind not in {"message", "string", "bytes", "unknown", "repeated"}:
            media = "text/plain; charset=utf-8"
        etag = self._etag(
            "merge", path, list(fields) or None, omit_larger_than, *([("omit", *omit)] if omit else []), *found.facts
        )
        name = _filename(path, "pb" if kind == "message" else "txt" if media.startswith("text") else "bin")
        return Representation(
            rope,
            found.sources,
            etag,
            name,
            kind=kind,
            message_type=type_name,
            media_type=media,
            versioned=bool(found.facts),
            descriptor_set=found.descriptor_set,
        )

    async def _planned_merge(
        self, document: Document, path: str, fields: Sequence[str], omit_larger_than: int | None, omit: Sequence[str]
    ) -> tuple[Plan, int]:
        """The plan of a merge, and its weight in bytes."""

        def plan() -> tuple[Plan, int]:
            kind, type_name, rope = document.view(path, list(fields) or None, omit_larger_than, omit)
            names = len(path) + sum(map(len, fields)) + sum(map(len, omit))
            return (kind, type_name, rope), names + Rope(rope, ()).literals + PIECE_WEIGHT * rope.piece_count

        return await self._worker.run(plan)

    async def cpb(self, plan: str | None = None) -> Representation:
        """The store as one `.cpb`; see `planned`.

        The root itself, if the plan is the one that it came with. Otherwise the first call reads every chunk for the
        hashes of its records.
        """
        chunks = await self.planned(plan)
        if chunks.plan.kept:
            return replace(self.file(self.manifest.root or ""), media_type="application/x-riegeli")
        name = (self.manifest.root or "").rpartition("/")[2].rpartition(".")[0] or "model"
        return await chunks.cpb(f"{name}.cpb")

    def extents(self) -> list[Span]:
        """Spans of the chunks in the root file, as start and end; empty for a root that is no proto."""
        return list(extents_of(self._proto.plan)) if self._proto is not None else []

    def descriptor_set(self) -> bytes | None:
        """Descriptor set of the root's type and its dependencies; None when it is the bundled one or unknown."""
        read_by, bundled = self._proto.read_by if self._proto is not None else None, schema.bundled()
        if read_by is None or (
            read_by.name in bundled and bundled.kept(read_by.name).fingerprint == read_by.fingerprint
        ):
            return None
        return read_by.canonical

    def close(self) -> None:
        """Close the objects that are held open."""
        for stored in self._objects:
            stored.close()

    async def report(self, *, compare: bool) -> ModelReport:
        """Report on the model; `compare` also reads all parts that the model itself has checksums of."""
        root = self._files.get(self.manifest.root or "")
        checks = [(root[0].path, partial(_verify_records, *root))] if compare and root is not None else []
        job = report_job(self.model, most=None if compare else MOST_LISTED, compare=compare, checks=checks)
        return await self._worker.finish(job)

    async def summary(self) -> ModelReport:
        """The report on all tensors, without a look at their elements."""
        listed = None
        # The report tells why tensors cannot be listed.
        with suppress(CorruptModel, Unsupported, NotFound, LimitExceeded):
            listed = await self.tensors.all()
        return await self._worker.finish(report_job(self.model, most=None, listed=listed))

    def _tensors(self, model: Model) -> Tensors:
        """Tensors of `model`; `NoRoot` when there is no root and no format recognizes the files."""
        if model.root or formats_of(model):
            found = tensors_of(model)
            if self._reads.are_distant and len(found):
                _ = found[0].use  # reads the graph, which the memo is to have too
            return found
        raise self._no_root()

    def _no_root(self) -> NoRoot:
        return NoRoot(f"This store has files, but no root proto: {self.manifest.why or 'none was found'}")

    def _known(self) -> OpenRoot:
        if self.manifest.root is None:
            raise self._no_root()
        if self._proto is None:
            raise Unsupported(
                f"The root of this store, {self.manifest.root}, is not a protobuf: it has tensors, but no parts"
            )
        return self._proto

    def _own_chunks(self) -> StoreChunks:
        self._known()
        assert self._chunks is not None
        return self._chunks

    async def _planned_by_policy(self) -> tuple[StoreChunks, int]:
        """Chunks by the sizes of the manifest, and their weight in bytes."""
        document, sizes = self._known().document, (self.manifest.min_chunk, self.manifest.max_chunk)
        plan = await self._reads.memoizing(lambda: document.plan(*sizes))
        version = ("policy", _core.Plan.VERSION)
        name = f"-policy-{_core.Plan.VERSION}"
        chunks = self._chunks_by(plan, name, lambda *view: self._etag(*version, *view), versioned=True)
        return chunks, _WEIGHT + 4 * _CHUNK_WEIGHT * len(plan)

    def _chunks_by(
        self, plan: _core.Plan, name: str, etag: Callable[..., str], *, versioned: bool = False
    ) -> StoreChunks:
        """Chunks by `plan`; `name` tells the kept facts of one plan from those of another."""
        assert self._proto is not None
        facts = ChunkFacts(self._derived, self._worker, name)
        return StoreChunks(plan, self._proto.sources, facts=facts, worker=self._worker, etag=etag, versioned=versioned)

    def _etag(self, *view: object) -> str:
        """Entity tag of a view: digest of store id, parameters, and the version of the code behind the view."""
        return hashlib.sha256(repr((self.manifest.id, *view)).encode()).hexdigest()


def _verify_records(file: File, source: StoredFile) -> None:
    """Verify the record hashes of a riegeli file; does nothing for other files."""
    if look_at(source, file.path).kind == "riegeli":
        _core.Chunked.verify(source)


def _filename(path: str, ending: str) -> str:
    kept = "".join(c if c.isalnum() or c in "._-" else "_" for c in path)[:100].strip("_")
    return f"{kept or 'message'}.{ending}"
