"""The defaults and limits that several packages share."""

from __future__ import annotations

from typing import Final

MIN_CHUNK: Final = 1 << 20
"""Size in bytes from which a field becomes a separate chunk."""
MAX_CHUNK: Final = 1 << 30
"""Size in bytes at which runs of repeated elements are cut into chunks."""

MAX_FILES: Final = 10_000
"""Maximum number of files in a store. The limit bounds memory, and is far above the number of files of any model."""
MAX_UPLOAD_BYTES: Final = 1 << 40
"""Maximum number of bytes in all files of an upload together."""
MAX_OPEN_UPLOADS: Final = 1000
"""Maximum number of resumable uploads that are open at the same time."""
UPLOAD_BEGIN_SECONDS: Final = 600
"""Seconds within which the first byte of a resumable upload has to arrive."""
UPLOAD_LIFETIME_SECONDS: Final = 86400
"""Seconds for which a resumable upload is kept without progress."""
UPLOAD_PART_BYTES: Final = 64 << 20
"""Number of bytes of a resumable upload after which the received bytes are saved durably."""

WORKER_THREADS: Final = 4
"""Number of threads for computations."""
OPEN_STORES: Final = 256
"""Maximum number of opened stores in memory."""
OPEN_STORES_BYTES: Final = 256 << 20
"""Approximate maximum number of bytes in memory for opened stores and for data computed from them."""
SPACE_WATERMARK_BYTES: Final = 1 << 30
"""Number of free bytes in the storage below which a service reports that it is not ready."""

CACHE_BYTES: Final = 10 << 30
"""Maximum number of bytes in the cache directory, which holds objects of a distant storage."""
CACHE_MEMORY_BYTES: Final = 64 << 20
"""Maximum number of bytes in the memory cache of distant objects, which is used without a cache directory."""

CONNECTIONS: Final = 4
"""Number of connections that a client uses for a large download."""

LARGEST_MESSAGE: Final = (1 << 31) - 1
"""Maximum number of bytes in a message, string or bytes field that protobuf runtimes can read."""

DELETION_DELAY_SECONDS: Final = 600.0
"""Seconds between the removal of the last reference to an object and the deletion of the object's bytes."""
