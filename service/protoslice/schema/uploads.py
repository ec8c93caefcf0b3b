"""Message types out of a `FileDescriptorSet` that somebody else made."""

from __future__ import annotations

from google.protobuf.message import Message

from protoslice._core import Descriptors
from protoslice.errors import LimitExceeded
from protoslice.schema.registry import MAX_FILES, MAX_PARTS, MessageTypes, bundled_bytes

MAX_BYTES = 32 * 1024 * 1024
"""The largest serialized set that is taken unless asked otherwise."""


def from_descriptor_set(data: bytes | Message, *, max_bytes: int = MAX_BYTES, one_pool: bool = False) -> MessageTypes:
    """The types of a `FileDescriptorSet`. The interpreter's lock is not held while the set is read.

    Files may stand in any order. Imports of `google/protobuf/…` may be left out. `InvalidInput` says what is wrong with
    a set that can't be used, `LimitExceeded` that it is too large. With `one_pool` the protobuf runtime sees all
    types of the set in one pool, for which each file has to stand behind those it imports.
    """
    serialized = data if isinstance(data, bytes) else data.SerializeToString()
    if len(serialized) > max_bytes:
        raise LimitExceeded(f"the descriptor set has {len(serialized)} bytes; at most {max_bytes} are taken")
    types = Descriptors(serialized, bundled_bytes(), max_files=MAX_FILES, max_parts=MAX_PARTS)
    return MessageTypes(types, (lambda: serialized) if one_pool else None)
