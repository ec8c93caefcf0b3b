"""Limits on open uploads, in all and per client."""

from __future__ import annotations

from protoslice.errors import ClientLimit, TooMany
from protoslice.stores.options import UploadOptions
from protoslice.stores.quotas import SpaceRoom
from protoslice.stores.uploads.records import UploadRecords


async def check_open_uploads(records: UploadRecords, options: UploadOptions, room: SpaceRoom, client: str) -> None:
    """Raise `TooMany`, `ClientLimit` or `SpaceLimit` if `client` may begin no upload.

    Requests at the same moment may each take the last place.
    """
    found = await records.open_by_client()
    most, each = options.max_open, options.max_open_per_client
    if sum(found.values()) >= most:
        raise TooMany(f"Too many open uploads ({most}): finish some, or wait until they expire")
    if each and client and found.get(client, 0) >= each:
        raise ClientLimit(f"Too many open uploads of this client ({each}): finish some, or wait until they expire")
    room.check_open_uploads(sum(found.values()))
