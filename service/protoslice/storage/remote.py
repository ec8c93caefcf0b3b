"""Base class for storages behind a network: batches and streams of bounded, pinned requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import ClassVar, Final

from protoslice.errors import Unsupported
from protoslice.storage.interface import Buffer, ObjectStat, Span, Storage, Writer
from protoslice.storage.keys import ObjectKey
from protoslice.storage.spans import check_inside, check_span, coalesce, read_ahead, read_groups

READ_BYTES: Final = 4 << 20
GAP_BYTES: Final = 256 << 10
WINDOW: Final = 8
AHEAD: Final = 3


class RemoteStorage(Storage):
    """Implements `get_ranges` and `stream` by `stat` and `get_range`.

    A stream is a sequence of bounded requests, a few of them under way, so that a slow reader never exceeds the timeout
    of one response. All requests are pinned to the entity tag of the first `stat`.
    """

    async def get_ranges(self, key: ObjectKey, spans: Sequence[Span], *, if_etag: str | None = None) -> Sequence[bytes]:
        groups = coalesce(spans, gap=GAP_BYTES, largest=READ_BYTES)
        if not groups:
            return []
        etag = (await self.stat(key)).etag if if_etag is None and len(groups) > 1 else if_etag
        return await read_groups(
            groups, spans, lambda start, end: self.get_range(key, start, end, if_etag=etag), window=WINDOW
        )

    async def stream(
        self, key: ObjectKey, start: int = 0, end: int | None = None, *, if_etag: str | None = None
    ) -> AsyncGenerator[Buffer, None]:
        check_span(start, start if end is None else end)
        found = await self.pin(key, if_etag)
        stop = max(start, found.size) if end is None else end
        check_inside(key, stop, found.size)

        async def read(low: int, high: int) -> bytes:
            return await self.get_range(key, low, high, if_etag=found.etag)

        async with aclosing(read_ahead(read, start, stop, step=READ_BYTES, ahead=AHEAD)) as pieces:
            async for piece in pieces:
                yield piece

    async def pin(self, key: ObjectKey, etag: str | None) -> ObjectStat:
        """`stat` of the object; `Conflict` when `etag` is given and differs."""
        found = await self.stat(key)
        found.check_etag(etag)  # some servers ignore `If-Match`
        return found


class ReadOnlyRemoteStorage(RemoteStorage):
    """Remote storage that is read and nothing else."""

    refusal: ClassVar[str]
    """Sentence with which writing is refused."""

    async def put(self, key: ObjectKey, data: Buffer) -> str:
        """Raise `Unsupported`."""
        raise Unsupported(self.refusal)

    async def writer(self, key: ObjectKey) -> Writer:
        """Raise `Unsupported`."""
        raise Unsupported(self.refusal)

    async def delete(self, key: ObjectKey) -> None:
        """Raise `Unsupported`."""
        raise Unsupported(self.refusal)
