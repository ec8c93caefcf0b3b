"""Chunks of an opened store by one plan: chunk table, single chunks, metadata, chunked file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from protoslice import _core
from protoslice.concurrency.executor import SLICE, Worker
from protoslice.errors import NotFound
from protoslice.facts import ChunkEntry
from protoslice.identity import CPB
from protoslice.library.chunk_sizes import size_problem
from protoslice.stores.objects.representation import Representation
from protoslice.stores.objects.stored import StoredFile
from protoslice.stores.paging import PageBudget, ResultPage, first_item
from protoslice.stores.reading.chunk_facts import ChunkFacts

METADATA: Final = "tensorflow.proto_splitter.ChunkMetadata"
_LEAST_READ: Final = 4096
"""Bytes that a chunk adds to a slice of work beside its own."""
_CHUNK_WEIGHT: Final = 160
"""Bytes of JSON per chunk beside its texts, about."""


class StoreChunks:
    """Chunks of a store's root by `plan`, whose bytes lie in `sources`."""

    def __init__(
        self,
        plan: _core.Plan,
        sources: Sequence[StoredFile],
        *,
        facts: ChunkFacts,
        worker: Worker,
        etag: Callable[..., str],
        versioned: bool = False,
    ) -> None:
        self.plan = plan
        self.facts = facts
        self._sources = sources
        self._worker = worker
        self._etag = etag
        self._versioned = versioned
        """True when a later program may plan otherwise; the entity tags of `etag` name its version."""

    def one(self, n: int) -> Representation:
        """Chunk number `n`, from the plan alone, without reading storage; `NotFound` when there is none."""
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

    async def page(self, *, limit: int, cursor: str | None, digests: bool) -> ResultPage[ChunkEntry]:
        """A page of the chunks. With `digests`, chunks of unknown digest are read whole to compute it."""
        first = first_item(cursor)
        items, room = list[ChunkEntry](), PageBudget(limit)
        for n in range(first, len(self.plan)):
            kind, type_name, path, rope = self.plan.chunk(n)
            if not room.takes(_CHUNK_WEIGHT + len(path) + len(type_name or "")):
                break
            digest = (await self.facts.digest(n, self.one(n))).hex() if digests else None
            items.append(ChunkEntry(n, kind, type_name, path, rope.size, digest, size_problem(path, rope.size)))
        await self.facts.save()
        last = first + len(items)
        return ResultPage(items, str(last) if last < len(self.plan) else None)

    async def metadata(self) -> Representation:
        """The serialized `ChunkMetadata` of the chunked file."""
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
        """The chunked file, called `name`; the first call reads every chunk for the hashes of its records."""
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
        """Yields hashes of the chunks from `first` on after each slice of work.

        A slice may yield an empty list.
        """
        done, read = list[int](), 0
        for n in range(first, len(self.plan)):
            rope = self.plan.chunk(n)[3]
            hasher = _core.ChunkHasher(rope.size)
            for at in range(0, rope.size, SLICE):
                part = rope.slice(at, at + SLICE)
                hasher.update(part, self._sources)
                read += part.size
                if read >= SLICE:
                    yield done
                    done, read = [], 0
            done.append(hasher.finish())
            read += _LEAST_READ
        yield done
