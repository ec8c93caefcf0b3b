"""ONNX models of a store as files that runtimes load: a small model and its weights, or all in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from protoslice.concurrency.executor import Worker
from protoslice.concurrency.results import Results
from protoslice.errors import NotFound
from protoslice.formats.onnx_files.external import WEIGHTS, check_alignment, in_one_file, with_external_data
from protoslice.formats.onnx_files.extraction import Graph, SubModel, graph_of
from protoslice.formats.onnx_files.messages import OnnxProto
from protoslice.identity import ONNX_FILES
from protoslice.sources.ropes import Rope
from protoslice.stores.objects.representation import Representation
from protoslice.stores.reading.tensors.tensors import Etag, Readables
from protoslice.tensors.model import Model

MODEL: Final = "model.onnx"
SINGLE: Final = "single.onnx"
_PIECE_WEIGHT: Final = 32
"""Bytes of memory per piece of a rope, about."""

Made = Mapping[str, Rope]


class StoreOnnx:
    """ONNX files of one store, composed on first use and kept in memory."""

    def __init__(
        self,
        model: Model,
        row: int,
        check: Callable[[], object],
        results: Results,
        worker: Worker,
        readable: Readables,
        etag: Etag,
    ) -> None:
        """`check` raises the reason if there is no root proto."""
        self._model = model
        self._row = row
        self._results = results
        self._check = check
        self._worker = worker
        self._readable = readable
        self._etag = etag

    def tag(self, name: str, inputs: Sequence[str], outputs: Sequence[str], align: int) -> str:
        """Entity tag of what `file` gives."""
        stated = (tuple(inputs), tuple(outputs)) if inputs or outputs else None
        return self._etag("onnx", ONNX_FILES, name, stated, align)

    async def file(self, name: str, inputs: Sequence[str], outputs: Sequence[str], align: int) -> Representation:
        """`model.onnx` or `weights.bin`, or `single.onnx` with all weights inside; `NotFound` for another name.

        With `inputs` or `outputs`, of the part of the graph between these values.
        """
        if name not in {MODEL, WEIGHTS, SINGLE}:
            raise NotFound(f"No ONNX file {name[:100]!r}: use {MODEL}, {WEIGHTS} or {SINGLE}")
        check_alignment(align)
        self._check()
        part = SubModel(tuple(inputs), tuple(outputs)) if inputs or outputs else None
        files = await self._results.get(
            (self._row, "onnx files", name == SINGLE, part, align),
            lambda: self._files(name == SINGLE, part, align),
            cancellable=True,
        )
        data = files[name]
        etag = self.tag(name, inputs, outputs, align)
        return Representation(data.core, self._readable(data), etag, name, kind="onnx")

    async def _files(self, single: bool, part: SubModel | None, align: int) -> tuple[Made, int]:
        """Files by name, and the bytes of memory that they hold."""
        # Found to the end, once: all parts of the model are made out of it.
        key = (self._row, "graph of an onnx model")
        graph = None if part is None else await self._results.get(key, self._named)
        files = await self._worker.bulk(lambda: self._composed(single, part, align, graph))
        return files, sum(data.literals + _PIECE_WEIGHT * data.core.piece_count for data in files.values())

    async def _named(self) -> tuple[Graph, int]:
        graph = await self._worker.bulk(lambda: graph_of(OnnxProto(self._model)))
        return graph, graph.weight

    def _composed(self, single: bool, part: SubModel | None, align: int, graph: Graph | None) -> Made:
        proto = OnnxProto(self._model)
        if single:
            return {SINGLE: in_one_file(proto, part, graph)}
        files = with_external_data(proto, part, align, graph)
        return {MODEL: files.model, WEIGHTS: files.weights}
