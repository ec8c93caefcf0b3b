"""The chunks of an opened store: the chunk table, single chunks with digests, the metadata, and the chunked proto."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from protoslice import _core
from protoslice.catalog.derived import DerivedFacts
from protoslice.catalog.paging import PageBudget, ResultPage, first_item, item_bytes
from protoslice.catalog.requests import check_plan
from protoslice.concurrency.executor import SLICE, Worker
from protoslice.concurrency.results import SingleFlight
from protoslice.errors import NotFound
from protoslice.facts import ChunkEntry
from protoslice.library.proto import size_problem
from protoslice.serving.opened import OpenStore
from protoslice.serving.representation import Representation, sha256_of
from protoslice.sources.ropes import Rope
from protoslice.versions import CPB

METADATA: Final = "tensorflow.proto_splitter.ChunkMetadata"
_LEAST_READ: Final = 4096
"""The number of bytes that each chunk adds to a slice of work, in addition to its length."""
# Saved facts with another version number come from older planners, perhaps for other chunks. Version 2 of the digests
# was a single table of all chunks.
_DIGESTS: Final = "digests-3"
_HASHES: Final = "hashes-2"
_GROUP: Final = 512
"""The number of chunks in a group. The digests of a group are saved together: a page rewrites only changed groups."""
_DIGEST_SIZE: Final = 32
_UNKNOWN: Final = bytes(_DIGEST_SIZE)
_ROWS: Final = struct.Struct(f"{_DIGEST_SIZE}s")
_FACTS_WEIGHT: Final = 72
"""The approximate memory of a chunk's digest and hash in bytes."""
_PLAN_WEIGHT: Final = 200
"""The approximate memory of a chunk in a plan in bytes."""


async def chunks(
    opened: OpenStore, *, limit: int, cursor: str | None, digests: bool = True, plan: str | None = None
) -> ResultPage[ChunkEntry]:
    """Return a page of the chunks of a plan; see `planned`.

    If `digests` is set, each chunk whose digest is unknown is read completely to compute the digest.
    """
    return await (await planned(opened, plan)).page(limit=limit, cursor=cursor, digests=digests)


async def chunk(opened: OpenStore, n: int, plan: str | None = None) -> Representation:
    """Return chunk number `n` of a plan; raise `NotFound` when the plan has no such chunk; see `planned`."""
    return (await planned(opened, plan)).one(n)


async def metadata(opened: OpenStore, plan: str | None = None) -> Representation:
    """Return the serialized `ChunkMetadata` of the store's chunked proto; see `planned`."""
    return await (await planned(opened, plan)).metadata()


async def cpb(opened: OpenStore, plan: str | None = None) -> Representation:
    """Return the store as one chunked proto; see `planned`.

    If the plan was kept from a chunked root, the result is the root file itself. Otherwise the first call reads every
    chunk to compute the hashes of the riegeli records.
    """
    found = await planned(opened, plan)
    if found.plan.kept:
        return replace(opened.file(opened.manifest.root or ""), media_type="application/x-riegeli")
    name = (opened.manifest.root or "").rpartition("/")[2].rpartition(".")[0] or "model"
    return await found.cpb(f"{name}.cpb")


def digests_known(opened: OpenStore) -> int:
    """Return how many digests are known. A cached response may lack digests that became known later."""
    return own_chunks(opened).facts.known if opened.root is not None else 0


async def planned(opened: OpenStore, plan: str | None = None) -> StoreChunks:
    """Return the chunks of the store's own plan, or, if `plan` is `policy`, the chunks of a plan made from chunk sizes.

    The two plans differ only if the root is a chunked proto. Raise `InvalidInput` for any other value of `plan`.
    """
    check_plan(plan)
    own = own_chunks(opened)
    if not plan or not own.plan.kept:
        return own

    async def made() -> tuple[StoreChunks, int]:
        document, sizes = opened.known_root().document, (opened.manifest.min_chunk, opened.manifest.max_chunk)
        found = await opened.reads.with_saved_reads(lambda: document.plan(*sizes))
        return StoreChunks(opened, found, by_policy=True), (_PLAN_WEIGHT + _FACTS_WEIGHT) * len(found)

    return await opened.results.get((opened.row, "chunks by policy"), made)


def own_chunks(opened: OpenStore) -> StoreChunks:
    """Return the chunks of the store's own plan, without reading the storage."""
    key = (opened.row, "chunks")
    found: StoreChunks | None = opened.results.find(key)
    if found is None:
        found = StoreChunks(opened, opened.known_root().plan)
        opened.results.put(key, found, _FACTS_WEIGHT * len(found.plan))
    return found


class StoreChunks:
    """The chunks of a store's root under one plan."""

    def __init__(self, opened: OpenStore, plan: _core.Plan, *, by_policy: bool = False) -> None:
        """Set up the chunks of `plan`.

        If `by_policy` is set, saved facts and entity tags include the planner's version, because later versions may
        plan differently.
        """
        self.plan = plan
        self.facts = ChunkFacts(opened.derived, opened.worker, f"-policy-{_core.Plan.VERSION}" if by_policy else "")
        self._opened = opened
        self._sources = opened.known_root().sources
        self._worker = opened.worker
        self._versioned = by_policy

    def one(self, n: int) -> Representation:
        """Return chunk number `n` of the plan, without reading the storage.

        Raise `NotFound` when the plan has no such chunk.
        """
        if not 0 <= n < len(self.plan):
            raise NotFound(f"The store has no chunk {n}: it has {len(self.plan)} chunks")
        kind, type_name, _, rope = self.plan.chunk(n)
        return Representation(
            rope,
            self._sources,
            self._etag("chunk", n),
            f"chunk-{n}.{'pb' if kind == 'message' else 'bin'}",
            kind=kind,
            sha256=self.facts.known_digest(n),
            message_type=type_name,
            media_type="application/protobuf" if kind == "message" else "application/octet-stream",
            versioned=self._versioned,
        )

    def _etag(self, *view: object) -> str:
        return self._opened.etag(*(("policy", _core.Plan.VERSION) if self._versioned else ()), *view)

    async def page(self, *, limit: int, cursor: str | None, digests: bool) -> ResultPage[ChunkEntry]:
        """Return a page of the chunks. If `digests` is set, chunks with unknown digests are read to compute them."""
        first = first_item(cursor)
        items, room = list[ChunkEntry](), PageBudget(limit)
        for n in range(first, len(self.plan)):
            kind, type_name, path, rope = self.plan.chunk(n)
            if not room.takes(item_bytes(path, type_name)):
                break
            digest = (await self.facts.digest(n, self.one(n))).hex() if digests else None
            items.append(ChunkEntry(n, kind, type_name, path, rope.size, digest, size_problem(path, rope.size)))
        await self.facts.save()
        last = first + len(items)
        return ResultPage(items, str(last) if last < len(self.plan) else None)

    async def metadata(self) -> Representation:
        """Return the serialized `ChunkMetadata` of the chunked proto."""
        data = await self._worker.run(self.plan.metadata)
        return Representation(
            _core.Rope([data]),
            [],
            self._etag("metadata"),
            "metadata.pb",
            kind="message",
            sha256=hashlib.sha256(data).digest(),
            message_type=METADATA,
            media_type="application/protobuf",
            versioned=self._versioned,
        )

    async def cpb(self, name: str) -> Representation:
        """Return the chunked proto under the file name `name`.

        The first call reads every chunk to compute record hashes.
        """
        hashes = await self.facts.hashes(self._hashes)
        rope = await self._worker.run(lambda: self.plan.cpb(hashes))
        return Representation(
            rope,
            self._sources,
            self._etag("cpb", CPB),
            name,
            media_type="application/x-riegeli",
            versioned=self._versioned,
        )

    def _hashes(self, first: int) -> Iterator[list[int]]:
        """Yield the hashes of the chunks from number `first` on, as one list after each slice of work.

        A list may be empty, because a long chunk takes several slices.
        """
        done, read = list[int](), 0
        for n in range(first, len(self.plan)):
            rope = Rope(self.plan.chunk(n)[3], self._sources)
            hasher = _core.ChunkHasher(rope.size)
            for at in range(0, rope.size, SLICE):
                part = rope.part(at, at + SLICE)
                hasher.update(part)
                read += part.size
                if read >= SLICE:
                    yield done
                    done, read = [], 0
            done.append(hasher.finish())
            read += _LEAST_READ
        yield done


class ChunkFacts:
    """The digests and hashes of one store's chunks; they are computed when first needed and saved as derived facts."""

    def __init__(self, derived: DerivedFacts, worker: Worker, plan: str = "") -> None:
        self._derived = derived
        self._plan = plan
        """A suffix for the names of the saved facts: empty for the store's own plan, not empty for any other plan."""
        self._worker = worker
        self._groups: dict[int, bytearray] = {}
        """The digests of each group of consecutive chunks; an unknown digest is all zeros."""
        self._known = 0
        self._unsaved: set[int] = set()
        """The groups with digests that are not saved yet."""
        self._loading: SingleFlight[int, None] = SingleFlight()
        self._hashes: list[int] | None = None
        self._begun: list[int] = []
        """The hashes of the first chunks, kept from a computation that was cancelled."""
        self._digesting: SingleFlight[int, bytes] = SingleFlight()
        self._hashing: SingleFlight[str, list[int]] = SingleFlight()

    @property
    def known(self) -> int:
        """The number of digests in memory."""
        return self._known

    def known_digest(self, n: int) -> bytes | None:
        """Return the SHA-256 of chunk `n`, or None when it is not in memory."""
        group, at = _place(n)
        digest = bytes(self._groups.get(group, b"")[at : at + _DIGEST_SIZE]) or _UNKNOWN
        return None if digest == _UNKNOWN else digest

    async def digest(self, n: int, chunk: Representation) -> bytes:
        """Return the SHA-256 of chunk `n`, either a saved one or one that is computed from the bytes of `chunk`.

        Concurrent callers share the work.
        """
        group, _ = _place(n)
        if group not in self._groups:
            await self._loading.get(group, lambda: self._load_group(group))
        found = self.known_digest(n)
        if found is not None:
            return found
        return await self._digesting.get(n, lambda: self._digest(n, chunk), cancellable=True)

    async def hashes(self, compute: Callable[[int], Iterator[list[int]]]) -> list[int]:
        """Return the hash of each chunk. Writing a chunked proto requires these hashes.

        `compute(first)` yields the hashes of the chunks from number `first` on, one list per slice of work. The work
        stops when the last caller leaves, and the next caller resumes it.
        """
        if self._hashes is not None:
            return self._hashes
        return await self._hashing.get(_HASHES, lambda: self._hash(compute), cancellable=True)

    async def _load_group(self, group: int) -> None:
        kept = await self._derived.load(f"{_DIGESTS}{self._plan}-{group}") or b""
        digests = bytearray(kept.ljust(_GROUP * _DIGEST_SIZE, b"\0"))
        self._known += sum(digest != _UNKNOWN for (digest,) in _ROWS.iter_unpack(digests))
        self._groups[group] = digests

    async def _digest(self, n: int, chunk: Representation) -> bytes:
        digest = await sha256_of(chunk, self._worker)
        group, at = _place(n)
        self._groups[group][at : at + _DIGEST_SIZE] = digest
        self._unsaved.add(group)
        self._known += 1
        return digest

    async def _hash(self, compute: Callable[[int], Iterator[list[int]]]) -> list[int]:
        kept = await self._load(_HASHES)
        if kept:
            self._hashes = list(kept["hashes"])
            return self._hashes
        async for hashes in self._worker.iterate(compute(len(self._begun))):
            self._begun += hashes
        self._hashes, self._begun = self._begun, []
        await self._save(_HASHES, {"hashes": self._hashes})
        return self._hashes

    async def save(self) -> None:
        """Save the groups that have new digests."""
        while self._unsaved:
            group = self._unsaved.pop()
            digests = bytes(self._groups[group]).rstrip(b"\0")  # most stores have too few chunks to fill a group
            await self._derived.save(f"{_DIGESTS}{self._plan}-{group}", digests)

    async def _load(self, name: str) -> dict[str, Any] | None:
        kept = await self._derived.load(name + self._plan)
        loaded: dict[str, Any] | None = None if kept is None else json.loads(kept)
        return loaded

    async def _save(self, name: str, facts: object) -> None:
        await self._derived.save(name + self._plan, json.dumps(facts, separators=(",", ":")).encode())


def _place(n: int) -> tuple[int, int]:
    """Return the group of chunk `n`, and the byte offset of its digest in the group."""
    return n // _GROUP, n % _GROUP * _DIGEST_SIZE
