"""The flat table of a type and all it reaches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from hypothesis import given
from tests.support.protos import ROOT, Case, cases, descriptor_of

from protoslice._core import Schema
from protoslice.schema import bundled, from_descriptor_set

F = descriptor_pb2.FieldDescriptorProto
FieldRow = tuple[int, str, int, bool, int, int]
MessageRow = tuple[str, bool, list[FieldRow]]
Table = tuple[list[MessageRow], list[dict[str, int]]]


def flatten(root: Descriptor) -> Table:
    """Table of `root` and all it reaches, built with the protobuf runtime, to compare the engine's with."""
    builder = _Builder()
    builder.message(root)
    messages = [builder.row(descriptor) for descriptor in builder.queue]
    return messages, builder.enums


@dataclass(slots=True)
class _Builder:
    queue: list[Descriptor] = field(default_factory=list)
    enums: list[dict[str, int]] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def message(self, descriptor: Descriptor) -> int:
        number = self.numbers.get(descriptor.full_name)
        if number is None:
            number = self.numbers[descriptor.full_name] = len(self.queue)
            self.queue.append(descriptor)
        return number

    def enum(self, descriptor: EnumDescriptor) -> int:
        number = self.numbers.get(descriptor.full_name)
        if number is None:
            number = self.numbers[descriptor.full_name] = len(self.enums)
            self.enums.append({value.name: value.number for value in descriptor.values})
        return number

    def row(self, descriptor: Descriptor) -> MessageRow:
        map_entry = descriptor.has_options and descriptor.GetOptions().map_entry
        return descriptor.full_name, map_entry, [self.field(each) for each in fields_of(descriptor)]

    def field(self, each: FieldDescriptor) -> FieldRow:
        target = 0
        if each.message_type is not None:
            target = self.message(each.message_type)
        elif each.enum_type is not None:
            target = self.enum(each.enum_type)
        name = f"[{each.full_name}]" if each.is_extension else each.name
        return each.number, name, each.type, each.is_repeated, _oneof(each), target


def fields_of(descriptor: Descriptor) -> list[FieldDescriptor]:
    """The fields of `descriptor` by number, with the extensions its pool knows."""
    fields = list(descriptor.fields)
    if descriptor.is_extendable:
        pool: Any = descriptor.file.pool
        fields += pool.FindAllExtensions(descriptor)
    return sorted(fields, key=_number)


def _number(each: FieldDescriptor) -> int:
    return each.number


def _oneof(each: FieldDescriptor) -> int:
    """The oneof of a field; 0 for none, and for the one-member oneof that stands for proto3's `optional`."""
    oneof = each.containing_oneof
    if oneof is None or (oneof.name == f"_{each.name}" and len(oneof.fields) == 1):
        return 0
    return 1 + min(member.number for member in oneof.fields)


def same(table: Schema, oracle: Table) -> bool:
    """True if the tables are equal, except for the numbers of oneofs, which only need to be distinct."""
    return (_renumbered(table.messages), table.enums) == (_renumbered(oracle[0]), oracle[1])


def _renumbered(messages: list[MessageRow]) -> list[MessageRow]:
    found = []
    for name, map_entry, rows in messages:
        numbers: dict[int, int] = {0: 0}
        fields = [(*row[:4], numbers.setdefault(row[4], len(numbers)), row[5]) for row in rows]
        found.append((name, map_entry, fields))
    return found


def test_the_bundled_types_are_what_the_runtime_makes_of_them() -> None:
    names = bundled().names()
    assert len(names) > 700
    assert [name for name in names if not same(bundled().flat(name), flatten(bundled().descriptor(name)))] == []


@given(cases())
def test_random_types_are_what_the_runtime_makes_of_them(case: Case) -> None:
    assert same(from_descriptor_set(case.schema).flat(ROOT), flatten(descriptor_of(case.root)))


def test_the_root_comes_first_and_the_rest_breadth_first() -> None:
    table = bundled().flat("tensorflow.SavedModel")
    names = [name for name, _, _ in table.messages]
    assert names[:3] == ["tensorflow.SavedModel", "tensorflow.MetaGraphDef", "tensorflow.MetaGraphDef.MetaInfoDef"]
    assert len(names) == len(set(names))


def test_maps_enums_and_oneofs() -> None:
    table = bundled().flat("tensorflow.NodeDef")
    messages = {name: (entry, {row[1]: row for row in rows}) for name, entry, rows in table.messages}
    _, node = messages["tensorflow.NodeDef"]
    number, _, kind, repeated, oneof, target = node["attr"]
    assert (number, kind, repeated, oneof) == (5, F.TYPE_MESSAGE, True, 0)
    assert table.messages[target][0] == "tensorflow.NodeDef.AttrEntry"
    assert messages["tensorflow.NodeDef.AttrEntry"][0]
    _, value = messages["tensorflow.AttrValue"]
    assert {row[4] for row in value.values()} == {1}
    assert table.enums[value["type"][5]]["DT_FLOAT"] == 1


def test_an_optional_of_proto3_is_no_oneof() -> None:
    table = bundled().flat("tensorflow.proto_splitter.ChunkMetadata")
    rows = {name: rows for name, _, rows in table.messages}
    assert rows["tensorflow.proto_splitter.ChunkedMessage"][0][:5] == (1, "chunk_index", F.TYPE_UINT64, False, 0)
    assert [row[4] for row in rows["tensorflow.proto_splitter.FieldIndex"]] == [1, 1, 1]


def test_a_real_oneof_of_one_member_counts() -> None:
    rows = dict((row[1], row) for row in bundled().flat("tensorflow.TensorSliceProto").messages[1][2])
    assert rows["length"][4] == 1


def test_groups_and_extensions_are_fields() -> None:
    table = from_descriptor_set(_proto2()).flat("x.Root")
    rows = table.messages[0][2]
    assert [row[:4] for row in rows] == [
        (1, "pair", F.TYPE_GROUP, True),
        (1000, "[x.note]", F.TYPE_STRING, False),
        (1001, "[x.also]", F.TYPE_MESSAGE, False),
    ]
    assert table.messages[rows[2][5]][0] == "x.Root"


def _proto2() -> descriptor_pb2.FileDescriptorSet:
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", package="x")
    root = file.message_type.add(name="Root")
    root.nested_type.add(name="Pair").field.add(name="a", number=1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    root.field.add(name="pair", number=1, type=F.TYPE_GROUP, label=F.LABEL_REPEATED, type_name=".x.Root.Pair")
    root.extension_range.add(start=1000, end=2000)
    file.extension.add(name="also", number=1001, type=F.TYPE_MESSAGE, type_name=".x.Root", extendee=".x.Root", label=1)
    file.extension.add(name="note", number=1000, type=F.TYPE_STRING, extendee=".x.Root", label=F.LABEL_OPTIONAL)
    return descriptor_pb2.FileDescriptorSet(file=[file])
