"""A model in local files or in files at a URI."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import cached_property
from heapq import nlargest
from itertools import chain, islice
from typing import Final

from protoslice.cli.models.files import NamedFiles, errors_about, is_stream, named_files, opened
from protoslice.cli.models.source import ChunkPolicy, ModelSource, PathContent, RootType, TreeListing
from protoslice.concurrency import finish
from protoslice.defaults import MAX_CHUNK, MIN_CHUNK
from protoslice.detection import look_at
from protoslice.errors import CorruptModel, InconsistentChunks, LimitExceeded, NotFound, Unsupported
from protoslice.facts import ModelReport, Neighbourhood, Signature, TensorEntry, TensorStatistics
from protoslice.formats.report import report_job
from protoslice.graphs import GraphQuery
from protoslice.library.documents import (
    TENSOR_BUNDLE,
    FileDocument,
    StreamDocument,
    header_of,
    index_document,
    stream_document,
)
from protoslice.library.models import LocalModel, model_around
from protoslice.library.proto import Proto, View, node_at, size_problem
from protoslice.sources.ropes import Rope
from protoslice.splitters import splitter_named
from protoslice.streams import open_records
from protoslice.tensors.listing import entry_of
from protoslice.tensors.model import Tensor
from protoslice.tensors.omitted import Omitted, refuse
from protoslice.tensors.safetensors_file import Safetensors
from protoslice.tensors.statistics import statistics_job

_BIGGEST = 10
_INTO_RECORDS: Final = re.compile(r"records(\[|$)")
_SHOWN_SHARE = 0.001


class LocalModelSource(ModelSource):
    """A model in files, and the proto in its root."""

    def __init__(
        self, name: str, root: RootType, held: ExitStack, *, close_look: bool, tags: Sequence[str] | None
    ) -> None:
        self._name = name
        self._type = root
        self._held = held
        self._close_look = close_look
        self._tags = tags

    @cached_property
    def proto(self) -> Proto:
        """Return the proto in the root."""
        if is_stream(self._name):
            return self._held.enter_context(opened(self._name, self._type))
        return self._held.enter_context(self._place.proto(close_look=self._close_look))

    @cached_property
    def _place(self) -> NamedFiles:
        return self._held.enter_context(named_files(self._name, self._type))

    @cached_property
    def _model(self) -> LocalModel:
        model = self._held.enter_context(self._place.model())
        return model if self._tags is None else model.tagged(self._tags)

    def facts(self) -> dict[str, object]:
        try:
            proto = self.proto
        except Unsupported:
            if (facts := self._facts_of_tensors()) is None:
                raise
            return facts
        biggest = [part for part in proto.largest(_BIGGEST) if part.size >= proto.size * _SHOWN_SHARE]
        return {
            "file": self._name,
            "type": proto.type,
            **self._files(),
            "proto_size": proto.size,
            "form": proto.form,
            "chunks": len(proto.chunks),
            "own_chunks": proto.chunks.plan.kept,
            "index_size": len(proto.index_bytes),
            "why": proto.why,
            "biggest": [asdict(part) for part in biggest],
        }

    def signatures(self) -> Iterator[Signature]:
        try:
            return model_around(self.proto, {}, self._name).signatures()
        except Unsupported:  # the root may be in another format, such as a program in JSON
            pass
        try:
            return self._model.signatures()
        except Unsupported:
            return iter(())

    def graph(self, query: GraphQuery) -> Neighbourhood:
        return self._model.graph(query)

    def _files(self) -> dict[str, object]:
        proto = self.proto
        with errors_about(self._name):
            if is_stream(self._name):  # standard input has no other files
                return _files_of(None, model_around(proto, {}, self._name), proto.sources[0].size)
            around = model_around(proto, self._place.files, self._place.root)
            return _files_of(self._place, around, proto.sources[0].size)

    def _facts_of_tensors(self) -> dict[str, object] | None:
        """Return facts about a root that is not a proto, such as a bundle's index. Return None without tensors."""
        try:
            tensors = sorted(self._model.tensors, key=lambda tensor: -(tensor.size or 0))
        except Unsupported:
            return None
        model = self._model.model
        return {
            "file": self._name,
            "type": model.type,
            **_files_of(self._place, self._model, model.files[model.root].size),
            "proto_size": None,
            "form": "other",
            "chunks": 0,
            "index_size": 0,
            "bundle": self._header,
            "why": f"not a proto, but it has {len(tensors)} tensors",
            "biggest": [
                {"path": each.name, "size": each.size, "count": None, "stored": _details(each)}
                for each in tensors[:_BIGGEST]
                if each.size
            ],
        }

    @property
    def _header(self) -> Mapping[str, object] | None:
        """Return the header of a tensor bundle's index, or None for any other file."""
        other = self._other
        if other is None or isinstance(other.document, StreamDocument):
            return None
        return header_of(other) if other.document.view()[1] == TENSOR_BUNDLE else None

    def tree(self, path: str, limit: int) -> TreeListing:
        rows, total = self._document(path).document.children(path, 0, limit)
        return TreeListing([node_at(path, row) for row in rows], total)

    def _document(self, path: str) -> FileDocument:
        """Return the document to which `path` belongs: the proto, a bundle's index, or a stream of records."""
        try:
            proto = self.proto
        except (CorruptModel, Unsupported) as error:
            # A chunked proto is a stream of records too, but only a path such as `records[0]` refers to the records.
            is_chunked = isinstance(error, InconsistentChunks)
            if (is_chunked and not _INTO_RECORDS.match(path)) or self._other is None:
                raise
            return self._other
        # The bytes of a stream can also be parsed as a message of unknown type.
        if proto.type is None and _INTO_RECORDS.match(path) and self._other is not None:
            return self._other
        return FileDocument(proto.document, proto.sources)

    @cached_property
    def _other(self) -> FileDocument | None:
        """Return the root as a document if it is a bundle's index, a header of weights, or a stream of records.

        Return None for other files and for standard input.
        """
        if is_stream(self._name):
            return None
        with errors_about(self._name):
            source = self._place.files[self._place.root]
            indexed = index_document(source, self._place.root, look_at(source, self._place.root))
            if indexed is not None:
                return indexed
            try:
                records = open_records(source, self._type.name)
            except Unsupported:
                return None
            return stream_document(records, [source], self._type.types)

    def rules(self, policy: ChunkPolicy) -> Sequence[str]:
        return policy.rules

    def chunks(self, policy: ChunkPolicy) -> Iterable[dict[str, object]]:
        fields = ("index", "kind", "type", "path", "size")
        split = self.proto.chunks
        if policy != ChunkPolicy():
            splitter = splitter_named(policy.splitter) if policy.splitter is not None else None
            least, most = policy.min_chunk or MIN_CHUNK, policy.max_chunk or MAX_CHUNK
            split = self.proto.split(min_chunk=least, max_chunk=most, rules=policy.rules, splitter=splitter)
        return [
            {name: getattr(chunk, name) for name in fields} | {"problem": size_problem(chunk.path, chunk.size)}
            for chunk in split
        ]

    def part(
        self,
        path: str,
        fields: Sequence[str] | None = None,
        omit_larger_than: int | None = None,
        omit: Sequence[str] = (),
    ) -> PathContent:
        found = self._document(path)
        with errors_about(self._name):
            kind, type_name, rope = found.document.view(path, fields or None, omit_larger_than, omit)
        return PathContent(View(rope, found.sources, kind, type_name), kind, type_name)

    def summary(self) -> ModelReport | None:
        report = finish(report_job(self._around.model, most=None))
        return None if report.tensors is None else report

    def largest(self, limit: int) -> Sequence[TensorEntry]:
        largest = nlargest(limit, self._around.tensors, key=lambda tensor: tensor.size or 0)
        return [entry_of(tensor) for tensor in largest]

    @property
    def _around(self) -> LocalModel:
        """Return the model with its other files; a model from standard input has no other files."""
        return model_around(self.proto, {}, self._name) if is_stream(self._name) else self._model

    def tensors(self, name: str | None, dtype: str | None) -> Iterator[TensorEntry]:
        return (entry_of(tensor) for tensor in self._model.matching(name, dtype))

    def tensor(self, name: str, slice_: str | None, form: str) -> Rope:
        return self._model.read(name, slice_, form)

    def statistics(self, name: str, slice_: str | None, sample: int | None) -> TensorStatistics:
        return finish(statistics_job(self._model.tensor(name), slice_, sample))

    def safetensors(self, name: str | None, *, strict: bool = False) -> tuple[Rope, Omitted | None]:
        matching = self._model.matching(name)
        first = list(islice(matching, 1))
        if name is not None and not first:
            raise NotFound(f"{self._name}: no tensor named {name!r}")
        file = Safetensors(metadata=self._model.tensors.metadata)
        for tensor in chain(first, matching):
            file.add(tensor)
        data = file.finish()
        refuse(file.omitted, strict)
        return data, file.omitted


def _files_of(place: NamedFiles | None, model: LocalModel, root_size: int) -> dict[str, object]:
    """Return the sizes of the model's files, its root first, and the names of missing files.

    `place` is the folder from which the model was opened, or None for standard input. If the user named a folder, the
    member `folder` has the number and the total size of the folder's files.
    """
    root, report = model.model.root, finish(report_job(model.model, most=None))
    sizes = {root: root_size} | {path: model.model.files[path].size for path in report.files if path != root}
    folder = None
    if place is not None and place.named is None:
        folder = {"files": len(place.files), "size": sum(place.files.size_of(path) for path in place.files)}
    return {
        "size": sum(sizes.values()),
        "root": root,
        "root_size": root_size,
        "files": [{"path": path, "size": size} for path, size in sizes.items()],
        "missing": report.missing,
        "folder": folder,
    }


def _details(tensor: Tensor) -> Mapping[str, object]:
    """Return facts that exist only in the format of this tensor. Return an empty mapping if the facts are too long."""
    try:
        return {} if tensor.details is None else tensor.details()
    except LimitExceeded:
        return {}
