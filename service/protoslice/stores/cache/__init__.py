"""Cache of distant objects: verified blocks and small records, in memory or on the local disk."""

from protoslice.stores.cache.cache import BlockCache, CacheOptions, Counts

__all__ = ["BlockCache", "CacheOptions", "Counts"]
