"""The views of a whole model: its archive, ONNX files, report, summary, signatures and graphs."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from protoslice import _core
from protoslice.catalog.paging import PageBudget, ResultPage, first_item, item_bytes
from protoslice.detection import look_at
from protoslice.errors import CorruptModel, LimitExceeded, NotFound, Unsupported
from protoslice.facts import File, GraphLevel, GraphSection, ModelReport, Neighbourhood, Signature
from protoslice.file_names import without_version_control
from protoslice.formats.onnx_external import WEIGHTS, check_alignment, in_one_file, with_external_data
from protoslice.formats.onnx_extraction import Graph, SubModel, graph_of
from protoslice.formats.onnx_messages import OnnxProto
from protoslice.formats.registry import signatures_in
from protoslice.formats.report import MOST_LISTED, report_job
from protoslice.graphs import Ends, GraphOutline, GraphQuery, Graphs, Weight, subgraph
from protoslice.serving.opened import OpenStore
from protoslice.serving.representation import Representation
from protoslice.serving.stored import StoredFile
from protoslice.sources.ropes import Rope
from protoslice.tensors.model import Model
from protoslice.tensors.omitted import Omitted
from protoslice.versions import ARCHIVES, ONNX_FILES
from protoslice.views import tensors

MODEL: Final = "model.onnx"
SINGLE: Final = "single.onnx"
_PIECE_WEIGHT: Final = 32
"""The approximate memory per piece of a rope in bytes."""
_GRAPH_BITS: Final = 32
"""The number of low bits in a cursor that hold a signature's number. The other bits hold the meta graph's number."""
_READ: Final = 4 << 20
"""Largest number of bytes of signatures that are examined for one page."""
_GRAPH_WEIGHT: Final = 64 << 10
"""The fewest bytes that a meta graph counts for, because finding it takes a few reads."""

_OnnxFiles = Mapping[str, Rope]


async def archive(opened: OpenStore) -> Representation:
    """Return all files as one tar archive in the order of their paths, without files of version control."""
    files = {file.path: file for file in opened.manifest.files}
    shown = sorted(without_version_control(files))  # uploads of the same store may order the files differently
    gone = sorted(files.keys() - set(shown))

    async def made() -> tuple[_core.Rope, int]:
        rope = await opened.worker.run(lambda: tar_of([files[path] for path in shown]))
        return rope, Rope(rope, ()).literals + _PIECE_WEIGHT * rope.piece_count

    return Representation(
        await opened.results.get((opened.row, "archive"), made),
        [opened.files[path] for path in shown],
        opened.etag("archive", ARCHIVES, *(["without"] if gone else [])),
        f"{opened.manifest.id[:12]}.tar",
        media_type="application/x-tar",
        omitted=Omitted.of(len(gone), gone, what="file"),
    )


def tar_of(files: Sequence[File]) -> _core.Rope:
    """Return the rope of a POSIX archive of `files`; file number n is read from source n.

    The bytes depend only on the files: owners, modes and times are the same in every archive.
    """
    pieces: list[bytes | tuple[int, int, int]] = []
    behind = b""
    for number, file in enumerate(files):
        pieces.append(behind + _header(file))
        if file.size:
            pieces.append((number, 0, file.size))
        behind = bytes(-file.size % tarfile.BLOCKSIZE)
    pieces.append(behind + bytes(2 * tarfile.BLOCKSIZE))
    return _core.Rope(pieces)


def _header(file: File) -> bytes:
    entry = tarfile.TarInfo(file.path)
    entry.size = file.size
    # The format is fixed, because Python's default may change. pax has records for long or non-ASCII names and for
    # sizes above 8 GiB.
    return entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def onnx_tag(opened: OpenStore, name: str, inputs: Sequence[str], outputs: Sequence[str], align: int) -> str:
    """Return the entity tag of `onnx_file`'s result."""
    stated = (tuple(inputs), tuple(outputs)) if inputs or outputs else None
    return opened.etag("onnx", ONNX_FILES, name, stated, align)


async def onnx_file(
    opened: OpenStore, name: str, inputs: Sequence[str], outputs: Sequence[str], align: int
) -> Representation:
    """Return the file `name`: `model.onnx`, its weights in `weights.bin`, or `single.onnx`, which contains all weights.

    If `inputs` or `outputs` are given, the model is only the part of the graph between these values. Raise `NotFound`
    for any other file name.
    """
    if name not in {MODEL, WEIGHTS, SINGLE}:
        raise NotFound(f"There is no ONNX file {name[:100]!r}: use {MODEL}, {WEIGHTS} or {SINGLE}")
    check_alignment(align)
    opened.known_root()
    part, single = SubModel(tuple(inputs), tuple(outputs)) if inputs or outputs else None, name == SINGLE

    async def made() -> tuple[_OnnxFiles, int]:
        # This work cannot be cancelled and is done once, because all parts of the model are cut out of the graph.
        graph = None if part is None else await opened.results.get((opened.row, "graph of an onnx model"), found)
        files = await opened.worker.run_long(lambda: _composed(opened.model, part, align, graph, single=single))
        return files, sum(data.literals + _PIECE_WEIGHT * data.core.piece_count for data in files.values())

    async def found() -> tuple[Graph, int]:
        graph = await opened.worker.run_long(lambda: graph_of(OnnxProto(opened.model)))
        return graph, graph.weight

    files = await opened.results.get((opened.row, "onnx files", single, part, align), made, cancellable=True)
    data, etag = files[name], onnx_tag(opened, name, inputs, outputs, align)
    return Representation(data.core, tensors.readable(opened, data), etag, name, kind="onnx")


def _composed(model: Model, part: SubModel | None, align: int, graph: Graph | None, *, single: bool) -> _OnnxFiles:
    proto = OnnxProto(model)
    if single:
        return {SINGLE: in_one_file(proto, part, graph)}
    files = with_external_data(proto, part, align, graph)
    return {MODEL: files.model, WEIGHTS: files.weights}


async def report(opened: OpenStore, *, compare: bool) -> ModelReport:
    """Report on the model. If `compare` is set, also read all parts for which the model has checksums."""
    root = opened.manifest.root
    checks = [(root, partial(_verify_records, root, opened.files[root]))] if compare and root is not None else []
    job = report_job(opened.model, most=None if compare else MOST_LISTED, compare=compare, checks=checks)
    return await opened.worker.finish(job)


async def summary(opened: OpenStore) -> ModelReport:
    """Return the report on all tensors, without reading their elements."""
    listed = None
    # If tensors cannot be listed, the report gives the reason.
    with suppress(CorruptModel, Unsupported, NotFound, LimitExceeded):
        listed = await tensors.listed(opened)
    return await opened.worker.finish(report_job(opened.model, most=None, listed=listed))


def _verify_records(path: str, source: StoredFile) -> None:
    """Verify the record hashes of a riegeli file; do nothing for other files."""
    if look_at(source, path).kind == "riegeli":
        _core.Chunked.verify(source)


async def signatures(
    opened: OpenStore, tags: Sequence[str] | None, limit: int, cursor: str | None
) -> ResultPage[Signature]:
    """Return a page of the signatures of a model, or only of its meta graph with exactly `tags`."""
    if opened.manifest.root is None:
        raise opened.no_root()
    return await opened.worker.run(lambda: signatures_page(opened.model, tags, limit, cursor))


def signatures_page(model: Model, tags: Sequence[str] | None, limit: int, cursor: str | None) -> ResultPage[Signature]:
    """Return a page of signatures, one meta graph after the other. This call blocks.

    If `tags` is not None, only the first meta graph with exactly these tags is listed. Each page examines a limited
    number of meta graphs, so an empty page may have a next page.
    """
    place = first_item(cursor)
    (count, read), first = signatures_in(model, tags), place >> _GRAPH_BITS
    room, items, left, skipped = PageBudget(limit), list[Signature](), _READ, place & (1 << _GRAPH_BITS) - 1
    for number in range(first, count):
        if left <= 0:
            return ResultPage(items, str(number << _GRAPH_BITS))
        found, size = read(number)
        left -= max(size, _GRAPH_WEIGHT)
        for at in range(skipped, len(found)):
            if not room.takes(_bytes_of(found[at])):
                return ResultPage(items, str(number << _GRAPH_BITS | at))
            items.append(found[at])
        skipped = 0
    return ResultPage(items)


def _bytes_of(signature: Signature) -> int:
    tensors = (*signature.inputs, *signature.outputs)
    alone = item_bytes(signature.name, signature.method, *signature.tags)
    return alone + sum(item_bytes(each.name, each.tensor, each.shape) for each in tensors)


_MOST_WEIGHTS: Final = 200_000
"""Largest number of tensors that a model may have for the outline of its graph to include weights."""


async def graph_part(opened: OpenStore, query: GraphQuery) -> Neighbourhood:
    """Return the requested part of a graph.

    Raise `Unsupported` for a model without graphs. Raise `NotFound` for a graph or node that the model does not have.
    """
    query.check()
    graphs, is_tensor = await _graphs(opened), await _is_tensor(opened)
    return await opened.worker.run_long(lambda: subgraph(graphs, query, is_tensor))


async def graph_level(opened: OpenStore, graph: str | None, block: int, node: str | None) -> GraphLevel:
    """Return the parts of a graph's block, or of the block that contains `node` if it is not None.

    The errors are those of `graph_part`.
    """
    outline = await _outline(opened, graph, node)
    return await opened.worker.run_long(lambda: outline.level(block, node))


async def graph_section(opened: OpenStore, graph: str | None, ends: Ends) -> GraphSection:
    """Return the nodes on all paths between two places of a graph. The errors are those of `graph_part`."""
    outline = await _outline(opened, graph, ends.start)
    return await opened.worker.run_long(lambda: outline.section(ends))


async def _graphs(opened: OpenStore) -> Graphs:
    async def made() -> tuple[Graphs, int]:
        graphs = await opened.worker.run_long(lambda: Graphs(opened.model))
        return graphs, graphs.weight

    # Finding a million nodes takes half a gigabyte. Any client can cause it, so only one such search runs at a time.
    return await opened.results.get((opened.row, "graphs"), made, alone=True)


async def _outline(opened: OpenStore, path: str | None, node: str | None) -> GraphOutline:
    graphs = await _graphs(opened)
    graph = graphs.number(path if path is not None or node is None else graphs.holder(node))

    async def made() -> tuple[GraphOutline, int]:
        weights = await _weights(opened)
        outline = await opened.worker.run_long(lambda: GraphOutline(graphs, graph, weights))
        return outline, outline.weight

    return await opened.results.get((opened.row, "outline of a graph", graph), made, alone=True)


async def _weights(opened: OpenStore) -> Sequence[Weight]:
    try:
        return await tensors.weights(opened, _MOST_WEIGHTS)
    except (Unsupported, NotFound, LimitExceeded):
        return ()


async def _is_tensor(opened: OpenStore) -> Callable[[str], bool]:
    """Return a function that tests names of tensors; it always returns False if tensors cannot be listed."""
    try:
        found = await tensors.listed(opened)
    except (Unsupported, NotFound, LimitExceeded):
        return lambda name: False
    return lambda name: bool(found.numbers(name))
