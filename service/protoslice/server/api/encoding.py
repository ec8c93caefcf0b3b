"""The JSON of the API: one function for each fact."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any, Final

from protoslice.facts import (
    ChunkEntry,
    Difference,
    ModelReport,
    Node,
    Piece,
    PiecePlace,
    RecordsSummary,
    Removed,
    RepositorySummary,
    RepositoryVersion,
    Restored,
    Schema,
    Signature,
    SignatureTensor,
    Store,
    StoreName,
    Tag,
)
from protoslice.library.chunk_sizes import size_problem
from protoslice.stores.paging import ResultPage
from protoslice.stores.reading.comparisons import StoreComparison

Json = dict[str, Any]

_REPOSITORY: Final = tuple(field.name for field in fields(RepositorySummary))
_VERSION: Final = tuple(field.name for field in fields(RepositoryVersion))

_FILE_WEIGHT: Final = 120
"""Bytes of JSON for a file, beside its path."""


def format_time(time: datetime) -> str:
    """A time in UTC, to the second, as in `2026-11-21T10:00:00Z`."""
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def store_json(store: Store) -> Json:
    """JSON of a store, as `StoreModel` describes it."""
    return {
        "id": store.id,
        "type": store.type,
        "root": store.root,
        "size": store.size,
        "chunks": store.chunks,
        "min_chunk": store.min_chunk,
        "max_chunk": store.max_chunk,
        "created": format_time(store.created),
        "tags": list(store.tags),
        "files": [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in store.files],
        "source": store.source,
        "schema": store.schema,
        "planner": store.planner,
        "rules": list(store.rules),
        "why": store.why,
        "names": [{"protocol": each.protocol, "name": each.name} for each in store.names or _tag_names(store)],
    }


def _tag_names(store: Store) -> tuple[StoreName, ...]:
    """Names of a store whose names in registries have not been looked for."""
    return tuple(StoreName("tag", tag) for tag in store.tags)


def store_weight(store: Store) -> int:
    """Bytes of a store's JSON, about."""
    texts = sum(len(file.path) for file in store.files) + len(store.why or "")
    texts += 2 * sum(map(len, store.tags)) + sum(map(len, store.rules)) + sum(len(each.name) for each in store.names)
    return _FILE_WEIGHT * (1 + len(store.files)) + texts


def report_json(report: ModelReport) -> Json:
    """The report on a model; its files are told with the store."""
    return {
        "type": report.type,
        "tensors": report.tensors,
        "missing": list(report.missing),
        "duplicates": list(report.duplicates),
        "damaged": [{"part": damage.part, "error": damage.error} for damage in report.damaged],
        "dtypes": [asdict(total) for total in report.dtypes],
        "complete": report.complete,
    }


def comparison_json(found: StoreComparison, page: ResultPage[Difference]) -> Json:
    """In what a store differs from another: counts, and a page of the differences."""
    return {
        "before": found.before,
        "after": found.after,
        "equal": not found.counts,
        "counts": [{"what": what, "change": change, "count": count} for (what, change), count in found.counts.items()],
        "read": found.read,
        "assumed": found.assumed,
        "items": [asdict(each) for each in page.items],
        "next": page.next,
    }


def restored_json(restored: Restored) -> Json:
    """A restored store."""
    return store_json(restored.store) | {"tags_taken": list(restored.tags_taken)}


def removed_json(removed: Removed) -> Json:
    """JSON of a removal, as `RemovedModel` describes it."""
    until = format_time(removed.restorable_until)
    return {"id": removed.id, "tags": list(removed.tags), "restorable_until": until}


def tag_json(tag: Tag) -> Json:
    """A tag; its entity tag is a header."""
    return {"name": tag.name, "store": tag.store, "updated": format_time(tag.updated)}


def repository_json(repository: RepositorySummary) -> Json:
    """A repository, with the store of its head."""
    return {name: getattr(repository, name) for name in _REPOSITORY} | {"updated": format_time(repository.updated)}


def version_json(version: RepositoryVersion) -> Json:
    """A branch or tag of a repository."""
    return {name: getattr(version, name) for name in _VERSION} | {"updated": format_time(version.updated)}


def schema_json(schema: Schema) -> Json:
    """A schema; its entity tag is a header."""
    return {
        "name": schema.name,
        "size": schema.size,
        "messages": schema.messages,
        "updated": format_time(schema.updated),
    }


def chunk_json(chunk: ChunkEntry) -> Json:
    """An entry of a chunk table."""
    return {
        "index": chunk.index,
        "kind": chunk.kind,
        "type": chunk.type,
        "path": chunk.path,
        "size": chunk.size,
        "sha256": chunk.sha256,
        "problem": size_problem(chunk.path, chunk.size),
    }


def piece_json(piece: Piece) -> Json:
    """A piece of a file."""
    return {"file": piece.file, "offset": piece.offset, "size": piece.size, "sha256": piece.sha256}


def place_json(place: PiecePlace) -> Json:
    """A place of a piece."""
    return {
        "sha256": place.sha256,
        "size": place.size,
        "store": place.store,
        "file": place.file,
        "offset": place.offset,
    }


def node_json(node: Node) -> Json:
    """A node; `children` and `more` are there for a node whose children were asked for."""
    shown: Json = {
        "path": node.path,
        "field": node.field,
        "name": node.name,
        "kind": node.kind,
        "type": node.type,
        "count": node.count,
        "size": node.size,
        "deeper": node.deeper,
        "text": node.text,
    }
    if node.more is not None:
        shown |= {"children": [node_json(child) for child in node.children], "more": node.more}
    return shown


def signature_json(signature: Signature) -> Json:
    """A signature, with its inputs and outputs."""
    return {
        "name": signature.name,
        "method": signature.method,
        "tags": list(signature.tags),
        "inputs": [_signature_tensor(tensor) for tensor in signature.inputs],
        "outputs": [_signature_tensor(tensor) for tensor in signature.outputs],
    }


def _signature_tensor(tensor: SignatureTensor) -> Json:
    shape = None if tensor.shape is None else list(tensor.shape)
    return {"name": tensor.name, "tensor": tensor.tensor, "dtype": tensor.dtype, "shape": shape}


def records_summary_text(summary: RecordsSummary) -> bytes:
    """JSON text of a summary of records; `RECORDS` in `protoslice.identity` is the version of its form."""
    return json.dumps(asdict(summary)).encode()
