"""Sets of message types: descriptors, classes and flat tables by full name."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from importlib import resources

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from protoslice._core import Schema
from protoslice.errors import Unsupported
from protoslice.schema.table import Table, flatten


class MessageTypes:
    """The message types of some files in one descriptor pool of their own."""

    def __init__(self, pool: DescriptorPool, files: Iterable[str]) -> None:
        """Takes the types that `files` of `pool` declare; the pool must not change afterwards."""
        self._pool = pool
        found = (name for file in files for name in _declared(pool.FindFileByName(file)))
        self._names = dict.fromkeys(sorted(found))
        self._tables: dict[str, Table] = {}
        self._schemas: dict[str, Schema] = {}

    def __contains__(self, full_name: object) -> bool:
        return full_name in self._names

    def __len__(self) -> int:
        return len(self._names)

    def names(self) -> list[str]:
        """The full names of all message types, nested ones too, sorted; map entries are no types of their own."""
        return list(self._names)

    def descriptor(self, full_name: str) -> Descriptor:
        """The descriptor of `full_name`; `Unsupported` when there is no such type."""
        if full_name not in self._names:
            raise Unsupported(_unknown(full_name, self._names))
        return self._pool.FindMessageTypeByName(full_name)

    def message_class(self, full_name: str) -> type[Message]:
        """A class of the protobuf runtime for `full_name`, apart from any generated class of that name."""
        return message_factory.GetMessageClass(self.descriptor(full_name))

    def table(self, full_name: str) -> Table:
        """The rows of `flat`, for Python."""
        table = self._tables.get(full_name)
        if table is None:
            table = self._tables[full_name] = flatten(self.descriptor(full_name))
        return table

    def flat(self, full_name: str) -> Schema:
        """What the engine needs to read a `full_name`, whose type number in it is 0; made once."""
        schema = self._schemas.get(full_name)
        if schema is None:
            schema = self._schemas[full_name] = self.table(full_name).schema()
        return schema

    def fingerprint(self, full_name: str) -> str:
        """The SHA-256 of the table that a `full_name` is read by, in hexadecimal."""
        table = self.table(full_name)
        enums = [sorted(values.items()) for values in table.enums]
        return hashlib.sha256(json.dumps([table.messages, enums]).encode()).hexdigest()


@cache
def bundled() -> MessageTypes:
    """The types that come with the package: see `docs/schemas.md`."""
    pool = DescriptorPool()
    files = bundled_files()
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return MessageTypes(pool, [file.name for file in files])


@cache
def bundled_files() -> tuple[descriptor_pb2.FileDescriptorProto, ...]:
    """The files behind `bundled`, each after those it imports."""
    data = resources.files("protoslice.schema").joinpath("bundled", "types.binpb").read_bytes()
    return tuple(descriptor_pb2.FileDescriptorSet.FromString(data).file)


def find(type_name: str, extra: Iterable[MessageTypes] = ()) -> MessageTypes:
    """The set that declares `type_name`: the first of `extra` that does, else the bundled one."""
    sets = [*extra, bundled()]
    for types in sets:
        if type_name in types:
            return types
    raise Unsupported(_unknown(type_name, [name for types in sets for name in types.names()]))


def _declared(file: FileDescriptor) -> Iterable[str]:
    pending = list(file.message_types_by_name.values())
    while pending:
        descriptor = pending.pop()
        if not descriptor.GetOptions().map_entry:
            yield descriptor.full_name
            pending += descriptor.nested_types


def _unknown(full_name: str, names: Iterable[str]) -> str:
    shown = full_name if len(full_name) <= 200 else full_name[:200] + "…"
    last = shown.rpartition(".")[2]
    same = [name for name in names if name.rpartition(".")[2] == last][:3]
    near = same or difflib.get_close_matches(shown, names, 3)
    hint = f"did you mean {' or '.join(near)}?" if near else "give a descriptor set that declares it"
    return f"there is no message type {shown!r}; {hint}"
