"""Options of the stores of a storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from protoslice.catalog.spaces import NO_QUOTA, Quota
from protoslice.defaults import MAX_UPLOAD_BYTES, OPEN_STORES, OPEN_STORES_BYTES, SPACE_WATERMARK_BYTES, WORKER_THREADS
from protoslice.storage.wrappers.metered import LATE_CALLS
from protoslice.stores.cache import CacheOptions
from protoslice.stores.ingest.root.rules import RulesByType
from protoslice.stores.uploads import UploadOptions


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
    """Rules of splits kept by type, for roots that come without."""
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
