"""Documents of an opened store (a root, a bundle's index or a record stream): their values, trees and treemaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any, Final

from protoslice import _core
from protoslice.catalog.paging import PageBudget, ResultPage, first_item, item_bytes
from protoslice.concurrency import Job
from protoslice.detection import Detection, look_at
from protoslice.errors import InvalidInput, NoRoot, Unsupported
from protoslice.facts import Node
from protoslice.library.documents import Document, index_document
from protoslice.library.proto import node_at
from protoslice.serving.opened import OpenStore
from protoslice.serving.representation import Representation
from protoslice.serving.stored import StoredFile
from protoslice.sources.ropes import Rope
from protoslice.versions import READERS, RECORDS
from protoslice.views import records
from protoslice.views.records import PIECE_WEIGHT, Plan, RecordsRequest

ROOT: Final = RecordsRequest()
"""The request for the root's document."""
DEPTH: Final = 16
_INDEXES: Final = 64 << 20
"""The most memory in bytes that the documents of one store's indexes may take."""
_LIMITS: Final = _core.Limits(held=_INDEXES)
_ROWS: Final = 32
"""Largest number of rows that one call of the core returns. Each row holds a type name, which may be long."""
MOST_CELLS: Final = 1000
"""Largest number of nodes in a treemap."""
_EACH: Final = 250
"""Largest number of children of each node that a treemap shows."""


@dataclass(frozen=True, slots=True)
class StoreDocument:
    """A document with its sources, and the facts that determine its content."""

    document: Document
    sources: Sequence[StoredFile]
    facts: tuple[object, ...] = ()
    """Facts for the entity tag; empty for the root proto, because the store's id determines its content."""
    descriptor_set: bytes | None = None
    """The declarations of the document's types; None if the store's schema or the bundled types contain them."""


async def document_of(opened: OpenStore, request: RecordsRequest) -> StoreDocument:
    """Return the document in the file that `request` names, or else the document of the root or of the only file.

    Raise `NotFound` if the store does not have the file. Raise `Unsupported` or `NoRoot` if the file has no document.
    """
    root, files = opened.manifest.root, opened.files
    try:
        if request.file in {None, root}:
            proto = opened.known_root()
            return StoreDocument(proto.document, proto.sources)
    except (NoRoot, Unsupported) as error:
        path = root or (next(iter(files)) if len(files) == 1 else None)
        if path is None:
            raise
        try:
            return await _of_file(opened, path, request)
        except Unsupported:
            raise error from None
    assert request.file is not None
    if request.file in files:
        return await _of_file(opened, request.file, request)
    return await _of_records(opened, request)


async def _of_file(opened: OpenStore, path: str, request: RecordsRequest) -> StoreDocument:
    stored = opened.files[path]
    found = await opened.worker.run_long(lambda: look_at(stored, path)) if request.framing is None else None
    is_typed = found is not None and found.type_name is not None
    if found is not None and (found.kind in {"table", "safetensors", "gguf"} or (found.kind == "json" and is_typed)):
        key = (opened.row, "document of a file", path)
        return await opened.results.get(key, lambda: _index(opened, path, stored, found), cancellable=True)
    return await _of_records(opened, replace(request, file=path))


async def _of_records(opened: OpenStore, request: RecordsRequest) -> StoreDocument:
    """Return the document of the stream that `request` names; the stream may consist of shards."""
    document, sources, own, facts = await records.document(opened, request)
    facts = ("records", RECORDS, *facts)
    return StoreDocument(document, sources, facts, own.canonical if own is not None else None)


async def _index(opened: OpenStore, path: str, stored: StoredFile, found: Detection) -> tuple[StoreDocument, int]:
    """Return the document of an index or a header, and its memory in bytes."""
    made = await opened.worker.run_long(lambda: index_document(stored, path, found))
    assert made is not None, "files of these kinds have one"
    held = 2 * max(made.document.view()[2].size, stored.size if found.kind == "table" else 0)
    return StoreDocument(made.document, [], ("bundle" if found.kind == "table" else "weights", READERS, path)), held


async def merge(
    opened: OpenStore,
    path: str,
    fields: Sequence[str] | None,
    omit_larger_than: int | None,
    of: RecordsRequest = ROOT,
    *,
    omit: Sequence[str] = (),
) -> Representation:
    """Return the value at `path` in the document `of`.

    If `fields` are given, return only these fields of a message. Leave out fields that `omit` names, and fields of more
    than `omit_larger_than` bytes.
    """
    found = await document_of(opened, of)
    if omit_larger_than is not None and not 0 <= omit_larger_than < 1 << 63:
        raise InvalidInput("Invalid omit_larger_than: use a size in bytes, 0 or more")
    fields = tuple(fields or ())

    def planned() -> tuple[Plan, int]:
        kind, type_name, rope = found.document.view(path, list(fields) or None, omit_larger_than, omit)
        names = len(path) + sum(map(len, fields)) + sum(map(len, omit))
        return (kind, type_name, rope), names + Rope(rope, ()).literals + PIECE_WEIGHT * rope.piece_count

    key = (opened.row, "merge", path, fields, omit_larger_than, tuple(omit), *found.facts)
    kind, type_name, rope = await opened.results.get(key, lambda: opened.worker.run(planned))
    whole = not path and not fields and omit_larger_than is None and not omit
    if whole and not found.facts and opened.is_serialized:
        as_file = opened.file(opened.manifest.root or "")
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
    etag = opened.etag(
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


def _filename(path: str, ending: str) -> str:
    kept = "".join(c if c.isalnum() or c in "._-" else "_" for c in path)[:100].strip("_")
    return f"{kept or 'message'}.{ending}"


async def tree(
    opened: OpenStore, path: str, depth: int, limit: int, cursor: str | None, of: StoreDocument | None = None
) -> ResultPage[Node]:
    """Return a page of the nodes below `path` in the document `of`, by default the root, with `depth` levels of nodes.

    `depth` is between 1 and `DEPTH`.
    """
    if not 1 <= depth <= DEPTH:
        raise InvalidInput(f"Invalid depth: use 1 to {DEPTH}")
    found, first = of or await document_of(opened, ROOT), first_item(cursor)
    items, total = await opened.worker.run(lambda: nodes_below(found.document, path, first, depth, PageBudget(limit)))
    last = first + len(items)
    return ResultPage(items, str(last) if items and last < total else None)


async def treemap(opened: OpenStore, path: str, depth: int, min_share: float) -> Node:
    """Return the node at `path` with its largest descendants, at most `depth` levels (1 to `DEPTH`) below the node."""
    if not 1 <= depth <= DEPTH:
        raise InvalidInput(f"depth must be from 1 to {DEPTH}")
    return await opened.worker.finish(treemap_job(opened.known_root().document, path, depth, min_share))


def nodes_below(document: Document, path: str, first: int, depth: int, room: PageBudget) -> tuple[Sequence[Node], int]:
    """Return the nodes directly below `path` from number `first` on, within `room`, and how many exist in total.

    If `depth` is above 1, the descendants of these nodes use the rest of `room`, one node after the other. This call
    blocks.
    """
    rows, total = _rows(document, path, first, room)
    nodes = [node_at(path, row) for row in rows]
    return [_expanded(document, node, depth, room) for node in nodes], total


def _expanded(document: Document, node: Node, depth: int, room: PageBudget) -> Node:
    if not node.deeper or depth == 1 or room.left <= 0:
        return node
    children, total = nodes_below(document, node.path, 0, depth - 1, room)
    return replace(node, children=tuple(children), more=total - len(children))


def _rows(document: Document, path: str, first: int, room: PageBudget) -> tuple[list[tuple[Any, ...]], int]:
    rows: list[tuple[Any, ...]] = []
    while True:
        some, total = document.children(path, first + len(rows), min(room.left, _ROWS))
        for row in some:
            if not room.takes(_bytes_of(path, row)):
                return rows, total
            rows.append(row)
        if not some or not room.left or first + len(rows) >= total:
            return rows, total


def _bytes_of(path: str, row: tuple[Any, ...]) -> int:
    return item_bytes(path, *[part for part in row if isinstance(part, str)])


@dataclass(slots=True)
class _Cell:
    """A node of a treemap under construction."""

    node: Node
    depth: int
    """The number of levels that may follow below the node."""
    children: list[_Cell] = field(default_factory=list)
    total: int | None = None
    """The number of all children; None until the node is opened."""

    def finished(self) -> Node:
        if self.total is None:
            return self.node
        children = tuple(child.finished() for child in self.children)
        return replace(self.node, children=children, more=self.total - len(children))


def treemap_job(document: _core.Document, path: str, depth: int, min_share: float) -> Job[Node]:
    """Return the node at `path` with its descendants; each slice of work opens one node.

    The largest node is opened first, so that the details are where most bytes are. Descendants with less than
    `min_share` of the bytes at `path` are left out, and `more` of their parent counts them.
    """
    if not 0 <= min_share <= 1:
        raise InvalidInput("Invalid min_share: use a share of the whole, from 0 to 1")
    _, (kind, type_name, size, parts) = document.heaviest(path, 0, 0)
    if not parts:  # the node is a value
        size = document.view(path)[2].size
    root = Node(path, 0, None, kind, type_name, None, size, parts > 0, None)
    room, least = PageBudget(MOST_CELLS), max(1, int(root.size * min_share))
    top = _Cell(root, depth)
    waiting, number = [(0, 0, top)], 0
    while waiting and room.left:
        _, _, cell = heappop(waiting)
        rows, (*_, cell.total) = document.heaviest(cell.node.path, min(_EACH, room.left), least)
        for row in rows:
            if not room.takes(_bytes_of(cell.node.path, row)):
                break
            child = _Cell(node_at(cell.node.path, row), cell.depth - 1)
            cell.children.append(child)
            if child.node.deeper and child.depth > 0:
                number += 1
                heappush(waiting, (-child.node.size, number, child))
        yield
    return top.finished()
