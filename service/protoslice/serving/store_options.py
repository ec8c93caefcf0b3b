"""The options of the stores in a storage."""

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
"""A map from the full name of a root's type to split rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadOptions:
    """The limits and lifetimes of uploads."""

    max_bytes: int = MAX_UPLOAD_BYTES
    max_open: int = MAX_OPEN_UPLOADS
    max_open_per_client: int = 0
    """Largest number of open uploads of one client; 0 means no limit."""
    begin_seconds: float = UPLOAD_BEGIN_SECONDS
    """The number of seconds for which an upload without any bytes is kept."""
    lifetime_seconds: float = UPLOAD_LIFETIME_SECONDS
    """The number of seconds for which an idle upload is kept. The result of a finished upload is kept as long."""
    part_bytes: int = UPLOAD_PART_BYTES
    """The size of a part. If the process is killed, at most this many unacknowledged bytes are lost."""

    def kept_seconds(self, *, begun: bool) -> float:
        """Return how many seconds an upload is kept after its last change; `begun` is False while it has no bytes."""
        return self.lifetime_seconds if begun else min(self.begin_seconds, self.lifetime_seconds)

    def check_size(self, size: int) -> None:
        """Raise `LimitExceeded` when `size` is above the limit."""
        if size > self.max_bytes:
            raise LimitExceeded(f"The upload is too large: at most {self.max_bytes} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """The options of `Stores`."""

    max_upload_bytes: int = MAX_UPLOAD_BYTES
    verify_reads: bool = True
    threads: int = WORKER_THREADS
    open_stores: int = OPEN_STORES
    open_stores_bytes: int = OPEN_STORES_BYTES
    register_prefixes: tuple[str, ...] = ()
    register_networks: tuple[str, ...] = ()
    register_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The options of external objects' storages, by URI scheme."""
    late_calls: int = LATE_CALLS
    """Largest number of late calls of one storage of external objects.

    If more calls are late, new calls are refused.
    """
    rules: RulesByType = field(default_factory=dict)
    """The default split rules by type; they apply to roots whose request has no rules."""
    space_watermark_bytes: int = SPACE_WATERMARK_BYTES
    cache: CacheOptions = field(default_factory=CacheOptions)
    uploads: UploadOptions = field(default_factory=UploadOptions)
    quota: Quota = NO_QUOTA
    """The default quota of a space."""
    entries: int = 0
    """Largest number of tags, commits and similar entries in one space; 0 means no limit."""
    trust_seconds: float = 0
    """The number of seconds for which readers of bytes use a cached tag or an opened store without asking the database.

    If this process moves a tag or removes a store, readers see the change immediately.
    """
