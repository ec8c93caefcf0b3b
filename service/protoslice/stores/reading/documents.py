"""Documents of an opened store: its root, the index of a bundle, a stream of records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from protoslice import _core
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.results import Results
from protoslice.detection import Detection, look_at
from protoslice.errors import NoRoot, Unsupported
from protoslice.identity import READERS, RECORDS
from protoslice.library.documents import Document, index_document
from protoslice.stores.objects.stored import StoredFile
from protoslice.stores.reading.records import RecordsRequest, StoreRecords

ROOT: Final = RecordsRequest()
"""Request for the document of the root."""
_INDEXES: Final = 64 << 20
"""Bytes of memory for documents of indexes, for each store."""
_LIMITS: Final = _core.Limits(held=_INDEXES)


@dataclass(frozen=True, slots=True)
class StoreDocument:
    """A document with its sources, and the facts that decide its content."""

    document: Document
    sources: Sequence[StoredFile]
    facts: tuple[object, ...] = ()
    """Empty for the root proto, whose content the store's id decides."""
    descriptor_set: bytes | None = None
    """Declarations of its types; None where the store or the bundled types have them."""


class StoreDocuments:
    """Documents of one store, each by the file that it lies in."""

    def __init__(
        self,
        root: str | None,
        files: Mapping[str, StoredFile],
        proto: Callable[[], StoreDocument],
        records: StoreRecords,
        row: int,
        results: Results,
        worker: Worker,
    ) -> None:
        """`proto` gives the document of the root, or raises the reason why there is none."""
        self._root = root
        self._files = files
        self._proto = proto
        self._records = records
        self._row = row
        self._results = results
        self._worker = worker

    async def of(self, request: RecordsRequest) -> StoreDocument:
        """The document in the file of `request`; without one, in the root or in the store's only file.

        `NotFound` for a file that the store does not have, `Unsupported` or `NoRoot` for one without a document.
        """
        try:
            if request.file in {None, self._root}:
                return self._proto()
        except (NoRoot, Unsupported) as error:
            path = self._root or (next(iter(self._files)) if len(self._files) == 1 else None)
            if path is None:
                raise
            try:
                return await self._of_file(path, request)
            except Unsupported:
                raise error from None
        assert request.file is not None
        if request.file in self._files:
            return await self._of_file(request.file, request)
        return await self._of_records(request)

    async def _of_file(self, path: str, request: RecordsRequest) -> StoreDocument:
        stored = self._files[path]
        found = await self._worker.bulk(lambda: look_at(stored, path)) if request.framing is None else None
        is_typed = found is not None and found.type_name is not None
        if found is not None and (
            found.kind in {"table", "safetensors", "gguf"} or (found.kind == "json" and is_typed)
        ):
            key = (self._row, "document of a file", path)
            return await self._results.get(key, lambda: self._index(path, stored, found), cancellable=True)
        return await self._of_records(replace(request, file=path))

    async def _of_records(self, request: RecordsRequest) -> StoreDocument:
        """The stream that `request` names, which may be one of shards."""
        document, sources, own, facts = await self._records.document(request)
        facts = ("records", RECORDS, *facts)
        return StoreDocument(document, sources, facts, own.canonical if own is not None else None)

    async def _index(self, path: str, stored: StoredFile, found: Detection) -> tuple[StoreDocument, int]:
        """The document of an index or a header, and its weight in bytes."""
        made = await self._worker.bulk(lambda: index_document(stored, path, found))
        assert made is not None, "files of these kinds have one"
        held = 2 * max(made.document.view()[2].size, stored.size if found.kind == "table" else 0)
        return StoreDocument(made.document, [], ("bundle" if found.kind == "table" else "weights", READERS, path)), held
