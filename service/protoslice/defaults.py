"""Defaults that several packages share."""

from __future__ import annotations

from typing import Final

MIN_CHUNK: Final = 1 << 20
"""Size in bytes from which on a field becomes a separate chunk."""
MAX_CHUNK: Final = 1 << 30
"""Bytes at which runs of repeated elements are cut into chunks."""

MAX_FILES: Final = 10_000
"""Files of a store: far beyond any model's directory, and the memory that each takes stays bounded."""
MAX_UPLOAD_BYTES: Final = 1 << 40
"""Bytes of the largest upload, all its files together."""
MAX_OPEN_UPLOADS: Final = 1000
"""Resumable uploads that are open at the same time."""
UPLOAD_BEGIN_SECONDS: Final = 600
"""Time for the first byte of a resumable upload to arrive."""
UPLOAD_LIFETIME_SECONDS: Final = 86400
"""Time that a resumable upload is kept without progress."""
UPLOAD_PART_BYTES: Final = 64 << 20
"""Bytes of a resumable upload between two durable states."""

WORKER_THREADS: Final = 4
"""Threads for work that computes."""
OPEN_STORES: Final = 256
"""Opened stores kept in memory."""
OPEN_STORES_BYTES: Final = 256 << 20
"""Bytes of opened stores and of what was computed of them in memory, about."""
SPACE_WATERMARK_BYTES: Final = 1 << 30
"""Free bytes of storage below which a service is not ready."""

CACHE_BYTES: Final = 10 << 30
"""Bytes of the cache of distant objects in its directory."""
CACHE_MEMORY_BYTES: Final = 64 << 20
"""Bytes of the cache of distant objects in memory, where there is no directory."""

CONNECTIONS: Final = 4
"""Connections of a client's large download."""

LARGEST_MESSAGE: Final = (1 << 31) - 1
"""Bytes in the largest message, string or bytes field that protobuf runtimes read."""

DELETION_DELAY_SECONDS: Final = 600.0
"""Seconds between the end of the last reference to an object and the deletion of its bytes."""
