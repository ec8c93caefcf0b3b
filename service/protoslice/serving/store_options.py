"""Options of the stores of a storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from protoslice.catalog.spaces import NO_QUOTA, Quota
from protoslice.defaults import (
    MAX_OPEN_UPLOADS,
    MAX_UPLOAD_BYTES,
    OPEN_STORES,
    OPEN_STORES_BYTES,
    SPACE_WATERMARK_BYTES,
    UPLOAD_BEGIN_SECONDS,
    UPLOAD_LIFETIME_SECONDS,
    UPLOAD_PART_BYTES,
    WORKER_THREADS,
)
from protoslice.errors import LimitExceeded
from protoslice.serving.cache import CacheOptions
from protoslice.storage.wrappers import LATE_CALLS

RulesByType = Mapping[str, Sequence[str]]
"""Rules by full name of the root's type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadOptions:
    """Limits and lifetimes of uploads."""

    max_bytes: int = MAX_UPLOAD_BYTES
    max_open: int = MAX_OPEN_UPLOADS
    max_open_per_client: int = 0
    """Open uploads of one client, at most; 0 is no limit."""
    begin_seconds: float = UPLOAD_BEGIN_SECONDS
    """Seconds that an upload without bytes is kept."""
    lifetime_seconds: float = UPLOAD_LIFETIME_SECONDS
    """Seconds that an idle upload, or the result of a finished one, is kept."""
    part_bytes: int = UPLOAD_PART_BYTES
    """Size of a part, and so the most that a killed process loses of unacknowledged bytes."""

    def kept_seconds(self, *, begun: bool) -> float:
        """Return how many seconds an upload is kept after a change; an empty one for the shorter lifetime."""
        return self.lifetime_seconds if begun else min(self.begin_seconds, self.lifetime_seconds)

    def check_size(self, size: int) -> None:
        """Raise `LimitExceeded` when `size` is beyond the limit."""
        if size > self.max_bytes:
            raise LimitExceeded(f"The upload is too large: at most {self.max_bytes} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Options of `Stores`."""

    max_upload_bytes: int = MAX_UPLOAD_BYTES
    verify_reads: bool = True
    threads: int = WORKER_THREADS
    open_stores: int = OPEN_STORES
    open_stores_bytes: int = OPEN_STORES_BYTES
    register_prefixes: tuple[str, ...] = ()
    register_networks: tuple[str, ...] = ()
    register_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Options of the storages of registered objects, by URI scheme."""
    late_calls: int = LATE_CALLS
    """Late calls of the storage of registered objects above which further calls are refused."""
    rules: RulesByType = field(default_factory=dict)
    """Default split rules by type, for roots without rules in the request."""
    space_watermark_bytes: int = SPACE_WATERMARK_BYTES
    cache: CacheOptions = field(default_factory=CacheOptions)
    uploads: UploadOptions = field(default_factory=UploadOptions)
    quota: Quota = NO_QUOTA
    """Quota of a space that does not set one."""
    entries: int = 0
    """Limit of tags, commits and the like in one space; 0 is no limit."""
    trust_seconds: float = 0
    """Seconds for which a tag that was read and an opened store are believed by readers of bytes.

    Tags moved and stores removed by this process are seen at once.
    """
