"""Sessions of Xet: xorbs, which hold the chunks of files, until a shard says what files they make up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from protoslice.concurrency.lru import LruCache
from protoslice.errors import Conflict, IntegrityError, InvalidInput, LimitExceeded, NotFound
from protoslice.storage import ObjectKey, Storage
from protoslice.stores import Stores
from protoslice.stores.envelope import seal, unseal
from protoslice.stores.layout import keys
from protoslice.stores.uploads import NewUpload, Upload

_MOST: Final = 10_000
"""Xorbs of a session."""
_ROOM: Final = 16 << 20
"""Bytes of memory for the chunk ends of xorbs that one request reads."""


@dataclass(frozen=True, slots=True)
class StagedXorb:
    """Chunks of a xorb, one behind the other in an upload."""

    upload: str
    ends: Sequence[int]
    """End of each chunk in the upload."""

    def extent(self, first: int, end: int, size: int) -> tuple[str, int, int]:
        """Upload of chunks, their start and end; `InvalidInput` unless they are there and have `size` bytes."""
        if not 0 <= first < end <= len(self.ends):
            raise InvalidInput(f"the shard names the chunks {first} to {end} of a xorb, which has {len(self.ends)}")
        start, stop = (self.ends[first - 1] if first else 0), self.ends[end - 1]
        if stop - start != size:
            raise InvalidInput(f"the shard gives the chunks {first} to {end} of a xorb {size} bytes: {stop - start}")
        return self.upload, start, stop


class XorbSession:
    """Xorbs of one session by their hashes; their records are objects of the upload that the session is."""

    def __init__(self, storage: Storage, stores: Stores, upload: Upload) -> None:
        self._storage = storage
        self._stores = stores
        self._upload = upload
        self._read: LruCache[str, StagedXorb] = LruCache(most=_MOST, room=_ROOM)

    async def has(self, name: str) -> bool:
        """True when a xorb is there; `LimitExceeded` when the session takes no more."""
        found = [each async for each in self._storage.iterate(keys.OBJECTS / self._upload.id)]
        names = [each.key.segments[-1].split("-") for each in found]
        sizes = {each[1]: int(each[2]) for each in names if each[0] == "xorb"}
        if name in sizes:
            return True
        if len(sizes) >= _MOST:
            raise LimitExceeded(f"a session has at most {_MOST} xorbs: ask for another token")
        self._stores.uploads.options.check_size(sum(sizes.values()) + 1)
        return False

    async def begin(self) -> Upload:
        """A new upload for the chunks of a xorb."""
        return await self._stores.uploads.create(NewUpload(partial=True, client=self._upload.client))

    async def keep(self, name: str, upload: Upload, ends: Sequence[int]) -> None:
        """Let shards name a xorb whose upload is complete."""
        record = json.dumps({"upload": upload.id, "ends": list(ends)}).encode()
        with suppress(Conflict):  # a xorb that came twice at once: either will do
            await self._storage.put_if_absent(self._key(name, upload.offset), seal(record))
        await self._stores.uploads.set_aside(upload.id)

    async def xorb(self, name: str) -> StagedXorb:
        """A xorb that has come, read once while there is room to keep it; `InvalidInput` when it has not."""
        found = self._read.get(name)
        if found is None:
            found = await self._read_xorb(name)
            self._read.put(name, found, 200 + 40 * len(found.ends))
        return found

    async def _read_xorb(self, name: str) -> StagedXorb:
        page = await self._storage.list(keys.OBJECTS / self._upload.id, after=self._key(name, None), limit=1)
        if not page.items or not page.items[0].key.segments[-1].startswith(f"xorb-{name}-"):
            raise InvalidInput(f"the shard names the xorb {name}, which has not come: send it before")
        data = (await self._storage.get(page.items[0].key)).data
        try:
            raw = json.loads(unseal(data, "the record of a xorb"))
            return StagedXorb(raw["upload"], raw["ends"])
        except (ValueError, TypeError, KeyError) as error:
            raise IntegrityError("the record of a xorb does not parse") from error

    def _key(self, name: str, size: int | None) -> ObjectKey:
        """Key of a record, in which the size of the xorb stands; without a size a key right before it."""
        return keys.OBJECTS / self._upload.id / (f"xorb-{name}-{size}" if size is not None else f"xorb-{name}-")


class XorbSessions:
    """Sessions of one history: each is an upload of no bytes, which expires as any other."""

    def __init__(self, storage: Storage, history: str, stores: Stores) -> None:
        self._storage = storage
        self._mark = f"xet {history}"
        self._stores = stores

    async def begin(self, client: str) -> str:
        """Id of a new session of a client."""
        new = NewUpload(length=0, partial=True, client=client, client_metadata=self._mark)
        upload = await self._stores.uploads.create(new)
        await self._stores.uploads.set_aside(upload.id)
        return upload.id

    async def open(self, session: str, client: str) -> XorbSession:
        """A session that the client has begun in this history; `NotFound` for any other, and an expired one."""
        upload = await self._stores.uploads.get(session)
        if (upload.client_metadata, upload.client, upload.state) != (self._mark, client, "complete"):
            raise NotFound("there is no such session: ask for another token")
        return XorbSession(self._storage, self._stores, upload)
