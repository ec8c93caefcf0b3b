"""Sets of message types: schemas, descriptors and runtime classes by full name."""

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
"""Messages, fields, enum values, imports and the like in one set."""


def message_class_of(descriptor_set: bytes, name: str) -> type[Message]:
    """Return the runtime class of the type `name`, in a new pool of just the files in `descriptor_set`."""
    return message_factory.GetMessageClass(pool_of(descriptor_set).FindMessageTypeByName(name))


@dataclass(frozen=True, slots=True)
class TypeSchema:
    """The schema of one type: the engine's table, the canonical descriptor set and its fingerprint."""

    name: str
    flat: Schema
    canonical: bytes
    """Descriptor set of the type and all types it reaches; equal declarations give equal bytes."""
    fingerprint: str
    """SHA-256 of `canonical` in hexadecimal."""

    def message_class(self) -> type[Message]:
        """Return a new runtime class, in a pool of just the types that this type reaches."""
        return message_class_of(self.canonical, self.name)

    @property
    def weight(self) -> int:
        """Approximate bytes of memory."""
        return self.flat.weight + len(self.canonical)


# The second one too: a file that was just serialized can fail to parse for no other reason.
_NO_MEMORY: Final = ("out of memory", "parse file content", "serialize proto")
"""Parts of the runtime's errors that mean exhausted memory."""


class MessageTypes:
    """The message types of one descriptor set, read by the engine.

    Types enter a pool of the protobuf runtime only on request.
    """

    def __init__(self, types: Descriptors, whole: Callable[[], bytes] | None = None, *, keep_any: bool = True) -> None:
        """Take `whole`, which returns a set, sorted by imports, for one pool of all types.

        Without `whole`, each type gets its own pool. With `keep_any`, schemas of types that reach `google.protobuf.Any`
        have all types of the set.
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
        """Approximate bytes of memory of the set, without the schemas of single types."""
        return self._types.weight

    def names(self) -> list[str]:
        """Return the full names of all message types, nested ones included and map entries excluded, sorted."""
        return self._types.names()

    def schema(self, full_name: str) -> TypeSchema:
        """Return a new schema of `full_name`; raise `Unsupported` if the set has no such type."""
        canonical = self.canonical(full_name)
        flat = self._types.schema(full_name)
        return TypeSchema(full_name, flat, canonical, hashlib.sha256(canonical).hexdigest())

    def kept(self, full_name: str) -> TypeSchema:
        """Return the schema of `full_name`, cached; raise `Unsupported` if the set has no such type."""
        found = self._schemas.get(full_name)
        if found is None:
            found = self._schemas[full_name] = self.schema(full_name)
        return found

    def flat(self, full_name: str) -> Schema:
        """Return the engine's table for `full_name`, cached; its type number there is 0.

        Raise `Unsupported` if the set has no such type.
        """
        flat = self._flats.get(full_name)
        if flat is None:
            self._check(full_name)
            flat = self._flats[full_name] = self._types.schema(full_name)
        return flat

    def canonical(self, full_name: str) -> bytes:
        """Return the canonical descriptor set of `full_name` and all types it reaches.

        An `Any` reaches every type of an uploaded set, if all of them fit. Raise `Unsupported` if the set has no such
        type; `LimitExceeded` above 1 MiB of declarations.
        """
        self._check(full_name)
        # A bundled type means the same in every set, and so has one form.
        keep_any = self._keep_any and full_name not in bundled()
        return (self._types.canonical_with_any if keep_any else self._types.canonical)(full_name)

    def declarations(self) -> Declarations:
        """Return the declarations of the set, for `differing` of other sets."""
        return self._types.declarations()

    def differing(self, others: Declarations) -> str | None:
        """Return the first type by name that `others` declare differently; None if they agree on all shared types."""
        # The engine skips types of `google.protobuf`: sets bring those of the compiler that made them.
        return self._types.differing(others)

    def descriptor(self, full_name: str) -> Descriptor:
        """Return the descriptor of `full_name`; raise `Unsupported` if the set has no such type."""
        self._check(full_name)
        if self._whole is None:
            return pool_of(self._types.canonical(full_name)).FindMessageTypeByName(full_name)
        self._pool = self._pool or pool_of(self._whole())
        return self._pool.FindMessageTypeByName(full_name)

    def whole(self) -> bytes:
        """Return the descriptor set of the one pool of all types."""
        assert self._whole is not None
        return self._whole()

    def message_class(self, full_name: str) -> type[Message]:
        """Return a runtime class of `full_name`, independent of generated classes of that name."""
        return message_factory.GetMessageClass(self.descriptor(full_name))

    def _check(self, full_name: str) -> None:
        if full_name not in self._types:
            raise Unsupported(unknown_type(full_name, self.names()))


def pool_of(descriptor_set: bytes) -> DescriptorPool:
    """Return a pool of the files in `descriptor_set`, which come after their imports.

    Raise `InvalidInput` if refused.
    """
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file:
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except Exception as error:  # TypeError in today's runtime, undocumented; its text may be long
            if isinstance(error, MemoryError) or any(each in str(error) for each in _NO_MEMORY):
                raise MemoryError from error
            reason = str(error).rpartition("pool: ")[2].strip() or type(error).__name__
            raise InvalidInput(f"The protobuf runtime does not accept this type: {reason[:300]}") from error
    return pool


@cache
def bundled() -> MessageTypes:
    """Return the types that come with the package, listed in `docs/reference/message-types.md`."""
    types = Descriptors(bundled_bytes(), b"", max_files=MAX_FILES, max_parts=MAX_PARTS)
    # Not all bundled types for each that reaches `Any`: they are known to every program that reads the store.
    return MessageTypes(types, whole=bundled_bytes, keep_any=False)


@cache
def bundled_bytes() -> bytes:
    """Return the descriptor set behind `bundled`, in which each file comes after its imports."""
    return resources.files("protoslice.schema").joinpath("bundled", "types.binpb").read_bytes()


def find(type_name: str, extra: Iterable[MessageTypes] = ()) -> MessageTypes:
    """Return the set that declares `type_name`: the first in `extra`, else the bundled set.

    Raise `Unsupported` if no set declares it.
    """
    sets = [*extra, bundled()]
    for types in sets:
        if type_name in types:
            return types
    raise Unsupported(unknown_type(type_name, [name for types in sets for name in types.names()]))


def unknown_type(full_name: str, names: Iterable[str]) -> str:
    """Return an error message for `full_name`, which is not among `names`, with similar names as a hint."""
    shown = full_name if len(full_name) <= 200 else full_name[:200] + "…"
    last = shown.rpartition(".")[2]
    same = [name for name in names if name.rpartition(".")[2] == last][:3]
    near = same or difflib.get_close_matches(shown, names, 3)
    hint = f"did you mean {' or '.join(near)}?" if near else "upload or pass a descriptor set that declares it"
    return f"Unknown message type {shown!r}; {hint}"


MAX_BYTES = 32 * 1024 * 1024
"""Default limit in bytes of a serialized set."""


def from_descriptor_set(data: bytes | Message, *, max_bytes: int = MAX_BYTES, one_pool: bool = False) -> MessageTypes:
    """Return the types of a `FileDescriptorSet`, read without the GIL.

    Files may be in any order, and imports of `google/protobuf/…` may be absent. Raise `InvalidInput` for a malformed
    set, `LimitExceeded` for a large one. With `one_pool`, the protobuf runtime gets all types of the set in one pool;
    then each file must come after its imports.
    """
    serialized = data if isinstance(data, bytes) else data.SerializeToString()
    if len(serialized) > max_bytes:
        raise LimitExceeded(f"The descriptor set has {len(serialized)} bytes; at most {max_bytes} are allowed")
    types = Descriptors(serialized, bundled_bytes(), max_files=MAX_FILES, max_parts=MAX_PARTS)
    return MessageTypes(types, (lambda: serialized) if one_pool else None)
