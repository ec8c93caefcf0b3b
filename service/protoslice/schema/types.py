"""Sets of message types, and their schemas, descriptors and runtime classes by full name."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from protoslice._core import Declarations, Descriptors, Schema
from protoslice.errors import InvalidInput, LimitExceeded, Unsupported

MAX_FILES: Final = 10_000
MAX_PARTS: Final = 250_000
"""Largest number of messages, fields, enum values, imports and similar parts of one set."""


def message_class_of(descriptor_set: bytes, name: str) -> type[Message]:
    """Return a runtime class for the type `name`, in a new pool with only the files in `descriptor_set`."""
    return message_factory.GetMessageClass(pool_of(descriptor_set).FindMessageTypeByName(name))


@dataclass(frozen=True, slots=True)
class TypeSchema:
    """The schema of one type: the engine's table, the canonical descriptor set, and the set's fingerprint."""

    name: str
    flat: Schema
    canonical: bytes
    """The descriptor set of the type and all types that it reaches. Equal declarations have equal bytes."""
    fingerprint: str
    """The SHA-256 of `canonical` in hexadecimal."""

    def message_class(self) -> type[Message]:
        """Return a new runtime class, in a pool with only the types that this type reaches."""
        return message_class_of(self.canonical, self.name)

    @property
    def weight(self) -> int:
        """The approximate memory of the schema in bytes."""
        return self.flat.weight + len(self.canonical)


# "parse file content" is included, because a file that was just serialized fails to parse for no other reason.
_NO_MEMORY: Final = ("out of memory", "parse file content", "serialize proto")
"""Parts of the runtime's error messages that mean exhausted memory."""


class MessageTypes:
    """The message types of one descriptor set, which the engine reads.

    Types are added to a pool of the protobuf runtime only on request.
    """

    def __init__(self, types: Descriptors, whole: Callable[[], bytes] | None = None, *, keep_any: bool = True) -> None:
        """Take the `types` that the engine read.

        `whole` returns a descriptor set, sorted by imports, from which one pool of all types is made. If it is None,
        each type gets a separate pool. If `keep_any` is set, the schema of a type that reaches `google.protobuf.Any`
        contains all types of the set.
        """
        self._types = types
        self._whole = whole
        self._keep_any = keep_any
        self._pool: DescriptorPool | None = None
        self._flats: dict[str, Schema] = {}
        self._schemas: dict[str, TypeSchema] = {}

    def __contains__(self, full_name: object) -> bool:
        return isinstance(full_name, str) and full_name in self._types

    def __len__(self) -> int:
        return len(self._types)

    @property
    def weight(self) -> int:
        """The approximate memory of the set in bytes, without the schemas of single types."""
        return self._types.weight

    def names(self) -> list[str]:
        """Return the sorted full names of all message types, including nested types but not map entries."""
        return self._types.names()

    def schema(self, full_name: str) -> TypeSchema:
        """Return a new schema of `full_name`; raise `Unsupported` if the set has no such type."""
        canonical = self.canonical(full_name)
        flat = self._types.schema(full_name)
        return TypeSchema(full_name, flat, canonical, hashlib.sha256(canonical).hexdigest())

    def kept(self, full_name: str) -> TypeSchema:
        """Return the cached schema of `full_name`; raise `Unsupported` if the set has no such type."""
        found = self._schemas.get(full_name)
        if found is None:
            found = self._schemas[full_name] = self.schema(full_name)
        return found

    def flat(self, full_name: str) -> Schema:
        """Return the engine's cached table for `full_name`. The type has the number 0 in this table.

        Raise `Unsupported` if the set has no such type.
        """
        flat = self._flats.get(full_name)
        if flat is None:
            self._check(full_name)
            flat = self._flats[full_name] = self._types.schema(full_name)
        return flat

    def canonical(self, full_name: str) -> bytes:
        """Return the canonical descriptor set of `full_name` and all types that it reaches.

        An `Any` reaches every type of an uploaded set, if all types together fit into the limit. Raise `Unsupported` if
        the set has no such type, and `LimitExceeded` for more than 1 MiB of declarations.
        """
        self._check(full_name)
        # A bundled type has the same canonical set everywhere, regardless of the uploaded set.
        keep_any = self._keep_any and full_name not in bundled()
        return (self._types.canonical_with_any if keep_any else self._types.canonical)(full_name)

    def declarations(self) -> Declarations:
        """Return the declarations of the set, which can be passed to `differing` of another set."""
        return self._types.declarations()

    def differing(self, others: Declarations) -> str | None:
        """Return the first type, by name, that `others` declare differently; None if all shared types are equal."""
        # The engine skips types of `google.protobuf`, because they depend on the compiler that made a set.
        return self._types.differing(others)

    def descriptor(self, full_name: str) -> Descriptor:
        """Return the descriptor of `full_name`; raise `Unsupported` if the set has no such type."""
        self._check(full_name)
        if self._whole is None:
            return pool_of(self._types.canonical(full_name)).FindMessageTypeByName(full_name)
        self._pool = self._pool or pool_of(self._whole())
        return self._pool.FindMessageTypeByName(full_name)

    def whole(self) -> bytes:
        """Return the descriptor set from which the pool of all types is made."""
        assert self._whole is not None
        return self._whole()

    def message_class(self, full_name: str) -> type[Message]:
        """Return a runtime class for `full_name`, which is independent of generated classes with this name."""
        return message_factory.GetMessageClass(self.descriptor(full_name))

    def _check(self, full_name: str) -> None:
        if full_name not in self._types:
            raise Unsupported(unknown_type(full_name, self.names()))


def pool_of(descriptor_set: bytes) -> DescriptorPool:
    """Return a pool with the files in `descriptor_set`, where each file must come after its imports.

    Raise `InvalidInput` if the protobuf runtime refuses a file, and `MemoryError` if memory is exhausted.
    """
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file:
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except Exception as error:  # an undocumented TypeError in the current runtime, whose text may be long
            if isinstance(error, MemoryError) or any(each in str(error) for each in _NO_MEMORY):
                raise MemoryError from error
            reason = str(error).rpartition("pool: ")[2].strip() or type(error).__name__
            raise InvalidInput(f"The protobuf runtime does not accept this type: {reason[:300]}") from error
    return pool


@cache
def bundled() -> MessageTypes:
    """Return the types that come with the package, listed in `docs/reference/message-types.md`."""
    types = Descriptors(bundled_bytes(), b"", max_files=MAX_FILES, max_parts=MAX_PARTS)
    # A schema with an `Any` need not contain all bundled types, because every program that reads the store knows them.
    return MessageTypes(types, whole=bundled_bytes, keep_any=False)


@cache
def bundled_bytes() -> bytes:
    """Return the descriptor set of the bundled types. In this set, each file comes after its imports."""
    return resources.files("protoslice.schema").joinpath("bundled", "types.binpb").read_bytes()


def find(type_name: str, extra: Iterable[MessageTypes] = ()) -> MessageTypes:
    """Return the first set in `extra` that declares `type_name`, or else the bundled set if it declares the type.

    Raise `Unsupported` if no set declares the type.
    """
    sets = [*extra, bundled()]
    for types in sets:
        if type_name in types:
            return types
    raise Unsupported(unknown_type(type_name, [name for types in sets for name in types.names()]))


def unknown_type(full_name: str, names: Iterable[str]) -> str:
    """Return the error message for the unknown type `full_name`. It suggests similar names among `names`."""
    shown = full_name if len(full_name) <= 200 else full_name[:200] + "…"
    last = shown.rpartition(".")[2]
    same = [name for name in names if name.rpartition(".")[2] == last][:3]
    near = same or difflib.get_close_matches(shown, names, 3)
    hint = f"did you mean {' or '.join(near)}?" if near else "upload or pass a descriptor set that declares it"
    return f"Unknown message type {shown!r}; {hint}"


MAX_BYTES = 32 * 1024 * 1024
"""The default byte limit of a serialized descriptor set."""


def from_descriptor_set(data: bytes | Message, *, max_bytes: int = MAX_BYTES, one_pool: bool = False) -> MessageTypes:
    """Read the types of a `FileDescriptorSet` without holding the GIL.

    Files may be in any order, and imports of `google/protobuf/…` may be absent. If `one_pool` is set, the protobuf
    runtime gets all types in one pool, and each file must come after its imports. Raise `InvalidInput` for a malformed
    set, and `LimitExceeded` for a set that is too large.
    """
    serialized = data if isinstance(data, bytes) else data.SerializeToString()
    if len(serialized) > max_bytes:
        raise LimitExceeded(f"The descriptor set has {len(serialized)} bytes; at most {max_bytes} are allowed")
    types = Descriptors(serialized, bundled_bytes(), max_files=MAX_FILES, max_parts=MAX_PARTS)
    return MessageTypes(types, (lambda: serialized) if one_pool else None)
