"""Message types from a `FileDescriptorSet` of unknown origin."""

from __future__ import annotations

from google.protobuf.message import Message

from protoslice._core import Descriptors
from protoslice.errors import LimitExceeded
from protoslice.schema.registry import MAX_FILES, MAX_PARTS, MessageTypes, bundled_bytes

MAX_BYTES = 32 * 1024 * 1024
"""Default limit in bytes of a serialized set."""


def from_descriptor_set(data: bytes | Message, *, max_bytes: int = MAX_BYTES, one_pool: bool = False) -> MessageTypes:
    """The types of a `FileDescriptorSet`, read without the GIL.

    Files may be in any order, and imports of `google/protobuf/…` may be absent. `InvalidInput` for a malformed set,
    `LimitExceeded` for a large one. With `one_pool`, the protobuf runtime gets all types of the set in one pool; then
    each file must come after its imports.
    """
    serialized = data if isinstance(data, bytes) else data.SerializeToString()
    if len(serialized) > max_bytes:
        raise LimitExceeded(f"The descriptor set has {len(serialized)} bytes; at most {max_bytes} are allowed")
    types = Descriptors(serialized, bundled_bytes(), max_files=MAX_FILES, max_parts=MAX_PARTS)
    return MessageTypes(types, (lambda: serialized) if one_pool else None)
