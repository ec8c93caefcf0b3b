"""The flat table and the canonical form of a type and all types it reaches.

Values that a closed enum does not declare are shown as numbers, in the order of paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from google.protobuf import descriptor_pb2, json_format, text_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.json_format import Parse as FromJson
from google.protobuf.json_format import ParseError as JsonError
from google.protobuf.message import DecodeError, Message
from google.protobuf.text_format import Parse, ParseError
from hypothesis import given
from hypothesis import strategies as st
from tests.support.protos import ROOT, Case, cases, descriptor_of

from protoslice._core import Schema
from protoslice.schema import bundled, from_descriptor_set
from protoslice.schema.rendering import MAX_UNDECLARED, render

F = descriptor_pb2.FieldDescriptorProto
File = descriptor_pb2.FileDescriptorProto
Set = descriptor_pb2.FileDescriptorSet

DECLARED = """
name: "shop.proto" package: "shop" syntax: "proto2"
message_type {
  name: "Root"
  field { name: "id" number: 1 label: LABEL_OPTIONAL type: TYPE_INT64 }
  field { name: "name" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "marks" number: 3 label: LABEL_REPEATED type: TYPE_UINT32 }
  field { name: "item" number: 4 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".shop.Root.Item" }
  field { name: "color" number: 5 label: LABEL_OPTIONAL type: TYPE_ENUM type_name: ".shop.Color" }
  field { name: "counts" number: 6 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".shop.Root.CountsEntry" }
  field { name: "one" number: 7 label: LABEL_OPTIONAL type: TYPE_INT32 oneof_index: 0 }
  field { name: "other" number: 8 label: LABEL_OPTIONAL type: TYPE_INT32 oneof_index: 0 }
  nested_type {
    name: "Item"
    field { name: "price" number: 1 label: LABEL_OPTIONAL type: TYPE_DOUBLE }
    field { name: "parent" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".shop.Root" }
  }
  nested_type {
    name: "CountsEntry"
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_INT32 }
    options { map_entry: true }
  }
  extension_range { start: 100 end: 200 }
  oneof_decl { name: "choice" }
}
message_type { name: "Apart" field { name: "x" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 } }
enum_type {
  name: "Color"
  value { name: "RED" number: 0 } value { name: "GREEN" number: 1 } value { name: "LIME" number: 1 }
  options { allow_alias: true }
}
extension { name: "note" number: 100 label: LABEL_OPTIONAL type: TYPE_STRING extendee: ".shop.Root" }
"""

Change = Callable[[Any], object]


def declared() -> File:
    return text_format.Parse(DECLARED, File())


def fingerprint(*files: File) -> str:
    return from_descriptor_set(Set(file=files)).schema("shop.Root").fingerprint


def _swapped(file: Any) -> None:
    fields = file.message_type[0].field
    fields[0].name, fields[1].name = fields[1].name, fields[0].name


def _reversed(repeated: Any) -> object:
    items = list(repeated)
    del repeated[:]
    return repeated.extend(reversed(items))


CHANGES: dict[str, Change] = {
    "a field's name": lambda file: setattr(file.message_type[0].field[0], "name", "key"),
    "two names swapped": _swapped,
    "a field's number": lambda file: setattr(file.message_type[0].field[0], "number", 9),
    "a field's type": lambda file: setattr(file.message_type[0].field[0], "type", F.TYPE_SINT64),
    "a field less": lambda file: file.message_type[0].field.pop(0),
    "a field more": lambda file: file.message_type[0].field.add(name="y", number=9, label=1, type=F.TYPE_BOOL),
    "repeated": lambda file: setattr(file.message_type[0].field[0], "label", F.LABEL_REPEATED),
    "required": lambda file: setattr(file.message_type[0].field[0], "label", F.LABEL_REQUIRED),
    "packed": lambda file: setattr(file.message_type[0].field[2].options, "packed", True),
    "a group": lambda file: setattr(file.message_type[0].field[3], "type", F.TYPE_GROUP),
    "no map": lambda file: file.message_type[0].nested_type[1].ClearField("options"),
    "another value in a map": lambda file: setattr(file.message_type[0].nested_type[1].field[1], "type", F.TYPE_BOOL),
    "out of its oneof": lambda file: file.message_type[0].field[7].ClearField("oneof_index"),
    "into a oneof": lambda file: setattr(file.message_type[0].field[0], "oneof_index", 0),
    "an enum's name": lambda file: setattr(file.enum_type[0].value[0], "name", "BLACK"),
    "an enum's number": lambda file: setattr(file.enum_type[0].value[1], "number", 2),
    "the first name of a number": lambda file: _reversed(file.enum_type[0].value),
    "an enum's value less": lambda file: file.enum_type[0].value.pop(2),
    "an extension's name": lambda file: setattr(file.extension[0], "name", "remark"),
    "an extension's number": lambda file: setattr(file.extension[0], "number", 101),
    "an extension less": lambda file: file.ClearField("extension"),
    "a nested type's field": lambda file: setattr(file.message_type[0].nested_type[0].field[0], "name", "cost"),
    "a field's name in JSON": lambda file: setattr(file.message_type[0].field[0], "json_name", "ID"),
    "a message set": lambda file: setattr(file.message_type[0].options, "message_set_wire_format", True),
}


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_changes_a_view_changes_the_fingerprint(what: str) -> None:
    file = declared()
    CHANGES[what](file)
    assert fingerprint(file) != fingerprint(declared())


def _editions(**features: int) -> File:
    """A type of edition 2023 whose file has these features."""
    file = File(name="x.proto", package="shop", syntax="editions", edition=descriptor_pb2.EDITION_2023)
    for name, value in features.items():
        setattr(file.options.features, name, value)
    root = file.message_type.add(name="Root")
    root.field.add(name="text", number=1, label=1, type=F.TYPE_STRING)
    root.field.add(name="marks", number=2, label=3, type=F.TYPE_INT32)
    root.field.add(name="below", number=3, label=1, type=F.TYPE_MESSAGE, type_name="Root")
    root.field.add(name="color", number=4, label=1, type=F.TYPE_ENUM, type_name="Color")
    file.enum_type.add(name="Color").value.add(name="RED", number=0)
    return file


def test_each_feature_of_an_edition_changes_the_fingerprint() -> None:
    features = [
        {}, {"field_presence": 2}, {"field_presence": 3}, {"enum_type": 2}, {"repeated_field_encoding": 2},
        {"utf8_validation": 3}, {"message_encoding": 2},
    ]  # fmt: skip
    assert len({fingerprint(_editions(**each)) for each in features}) == len(features)
    assert fingerprint(_editions(json_format=2)) == fingerprint(_editions()), "our JSON does not depend on it"


def test_features_are_inherited_from_what_is_around() -> None:
    none, verify = descriptor_pb2.FeatureSet.NONE, descriptor_pb2.FeatureSet.VERIFY
    inner, field = _editions(), _editions()
    inner.message_type[0].options.features.utf8_validation = none
    field.message_type[0].field[0].options.features.utf8_validation = none
    assert fingerprint(inner) == fingerprint(field) == fingerprint(_editions(utf8_validation=none))
    assert fingerprint(inner) != fingerprint(_editions())
    inner.message_type[0].field[0].options.features.utf8_validation = verify
    assert fingerprint(inner) == fingerprint(_editions()), "the innermost counts"


def _split_up(file: Any) -> list[File]:
    """Return the same types in two files, which import each other."""
    other = File(name="colors.proto", package="shop", syntax="proto2", dependency=["shop.proto"])
    other.enum_type.extend(file.enum_type)
    other.extension.extend(file.extension)
    file.ClearField("enum_type")
    file.ClearField("extension")
    file.dependency.append("colors.proto")
    return [file, other]


def _shortened(file: Any) -> None:
    """Return names as protoc's parser has them before it resolves them, without types where a name is enough."""
    for message in (file.message_type[0], *file.message_type[0].nested_type):
        for each in message.field:
            if each.type_name:
                each.type_name = each.type_name.removeprefix(".shop.").removeprefix("Root.") or "Root"
                each.ClearField("type")


SAME: dict[str, Change] = {
    "the file's name": lambda file: setattr(file, "name", "else.proto"),
    "the order of fields": lambda file: _reversed(file.message_type[0].field),
    "the order of types": lambda file: [
        _reversed(each) for each in (file.message_type[0].nested_type, file.message_type)
    ],
    "a type it does not reach": lambda file: file.message_type[1].field.add(
        name="z", number=2, label=1, type=F.TYPE_BOOL
    ),
    "an enum it does not reach": lambda file: file.enum_type.add(name="Size").value.add(name="BIG", number=0),
    "a service": lambda file: file.service.add(name="Shop"),
    "comments": lambda file: file.source_code_info.location.add(path=[4, 0], leading_comments="the root"),
    "options": lambda file: setattr(file.options, "java_package", "org.shop"),
    "a field's options": lambda file: setattr(file.message_type[0].field[0].options, "deprecated", True),
    "the usual name in JSON": lambda file: setattr(file.message_type[0].field[0], "json_name", "id"),
    "a name that JSON cannot have": lambda file: setattr(file.message_type[0].field[0], "json_name", "[id]"),
    "the name of another field in JSON": lambda file: setattr(file.message_type[0].field[0], "json_name", "marks"),
    "an extension's name in JSON": lambda file: setattr(file.extension[0], "json_name", "remark"),
    "a default": lambda file: setattr(file.message_type[0].field[0], "default_value", "7"),
    "reserved numbers": lambda file: file.message_type[0].reserved_range.add(start=50, end=60),
    "more extension numbers": lambda file: file.message_type[0].extension_range.add(start=300, end=400),
    "a oneof's name": lambda file: setattr(file.message_type[0].oneof_decl[0], "name", "alternative"),
    "what is said anyway": lambda file: setattr(file.message_type[0].field[2].options, "packed", False),
    "the order of enum values": lambda file: file.enum_type[0].value.insert(0, file.enum_type[0].value.pop(1)),
    "relative names": _shortened,
    "no syntax": lambda file: file.ClearField("syntax"),
}


@pytest.mark.parametrize("what", SAME)
def test_whatever_changes_no_view_does_not(what: str) -> None:
    file = declared()
    SAME[what](file)
    assert file != declared()
    assert fingerprint(file) == fingerprint(declared())


def test_it_is_no_matter_which_files_things_are_declared_in() -> None:
    assert fingerprint(*_split_up(declared())) == fingerprint(declared())


def test_an_optional_of_proto3_is_what_any_field_of_proto2_is() -> None:
    two, three = (File(name="x", package="shop", syntax=syntax) for syntax in ("proto2", "proto3"))
    for file in (two, three):
        file.message_type.add(name="Root").field.add(name="x", number=1, label=1, type=F.TYPE_INT32)
    assert fingerprint(two) != fingerprint(three)
    (field,) = three.message_type[0].field
    field.proto3_optional, field.oneof_index = True, 0
    three.message_type[0].oneof_decl.add(name="_x")
    assert fingerprint(two) == fingerprint(three)


def test_the_name_of_no_oneof_is_that_of_a_field() -> None:
    file = declared()
    for number, name in enumerate(("oneof_1", "oneof__1"), 20):
        file.message_type[0].field.add(name=name, number=number, label=1, type=F.TYPE_BOOL)
    types = from_descriptor_set(Set(file=[file]))
    (oneof,) = types.descriptor("shop.Root").oneofs
    assert [field.name for field in oneof.fields] == ["one", "other"]


def test_every_bundled_type_is_its_own_canonical_form() -> None:
    """Our reader and the protobuf runtime read the stored form like its source."""
    for name in bundled().names():
        again = from_descriptor_set(bundled().canonical(name))
        assert again.canonical(name) == bundled().canonical(name), name
        assert again.flat(name).messages == bundled().flat(name).messages, name


@pytest.mark.parametrize(
    "name", ["onnx.ModelProto", "tensorflow.SavedModel", "caffe.NetParameter", "google.protobuf.FileDescriptorSet"]
)
def test_the_runtime_sees_in_it_what_was_declared(name: str) -> None:
    ours, theirs = (
        _facts(types.descriptor(name)) for types in (from_descriptor_set(bundled().canonical(name)), bundled())
    )
    assert len(ours) > 50
    assert ours == theirs


def _facts(root: Descriptor) -> dict[str, object]:
    """Return all properties by which the runtime distinguishes fields and enums, for every reached field and enum."""
    found: dict[str, object] = {}
    pending = [root]
    while pending:
        message = pending.pop()
        for each in message.fields:
            key = f"{message.full_name}.{each.name}"
            if key in found:
                continue
            target = each.message_type or each.enum_type
            found[key] = (
                (each.number, each.type, each.is_repeated, each.is_required, each.is_packed),
                each.has_presence,
                target.full_name if target else None,
            )
            if each.message_type:
                pending.append(each.message_type)
            if each.enum_type:
                values = each.enum_type.values_by_number
                names = {number: value.name for number, value in values.items()}
                found[each.enum_type.full_name] = (each.enum_type.is_closed, names)
    return found


@given(cases())
def test_messages_are_shown_the_same_by_it(case: Case) -> None:
    canonical = from_descriptor_set(from_descriptor_set(case.schema).canonical(ROOT)).message_class(ROOT)
    assert _shown(canonical, case.data) == _shown(case.root, case.data)


def _shown(kind: type[Message], data: bytes) -> list[object]:
    try:
        message = kind.FromString(data)
    except DecodeError as error:
        return [type(error)]
    found: list[object] = [message.SerializePartialToString(deterministic=True), text_format.MessageToString(message)]
    try:
        found.append(json_format.MessageToJson(message, preserving_proto_field_name=True))
    except (json_format.Error, TypeError, ValueError) as error:
        found.append(type(error))
    return found


@given(cases(), st.randoms(use_true_random=False))
def test_random_types_have_one_form_however_they_are_declared(case: Case, random: Any) -> None:
    file = File.FromString(case.file.SerializeToString())
    file.name = "other.proto"
    lists: list[Any] = [file.message_type, file.enum_type, file.extension]
    for repeated in lists + [each.field for each in file.message_type]:
        items = list(repeated)
        random.shuffle(items)
        del repeated[:]
        repeated.extend(items)
    types, shuffled = (from_descriptor_set(Set(file=[each])) for each in (case.file, file))
    assert types.canonical(ROOT) == shuffled.canonical(ROOT)


# The flat table of a type and all types it reaches.

FieldRow = tuple[int, str, int, bool, int, int]
MessageRow = tuple[str, bool, list[FieldRow]]
Table = tuple[list[MessageRow], list[dict[str, int]]]


def flatten(root: Descriptor) -> Table:
    """Build the table of `root` and all reached types with the protobuf runtime, to compare it with the engine's."""
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
    """Return the fields of `descriptor` by number, with the extensions that its pool knows."""
    fields = list(descriptor.fields)
    if descriptor.is_extendable:
        pool: Any = descriptor.file.pool
        fields += pool.FindAllExtensions(descriptor)
    return sorted(fields, key=_number)


def _number(each: FieldDescriptor) -> int:
    return each.number


def _oneof(each: FieldDescriptor) -> int:
    """Return the oneof of a field; 0 for none, and for the one-member oneof that represents proto3's `optional`."""
    oneof = each.containing_oneof
    if oneof is None or (oneof.name == f"_{each.name}" and len(oneof.fields) == 1):
        return 0
    return 1 + min(member.number for member in oneof.fields)


def same(table: Schema, oracle: Table) -> bool:
    """Return True if the tables are equal, except for the numbers of oneofs, which only need to be distinct."""
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


_ENUM: Final = 'field {{ name: "{}" number: {} type: TYPE_ENUM label: LABEL_{} type_name: ".p.E" }} '
_MESSAGE: Final = 'field {{ name: "{}" number: {} type: TYPE_MESSAGE label: LABEL_{} type_name: "{}" }} '
_FILE: Final = f"""
name: "p.proto" package: "p" syntax: "proto2" dependency: "google/protobuf/any.proto"
enum_type {{ name: "E" value {{ name: "NONE" number: 0 }} value {{ name: "ONE" number: 1 }} }}
message_type {{
  name: "M"
  {_ENUM.format("c", 1, "OPTIONAL")} {_ENUM.format("rc", 2, "REPEATED")}
  {_MESSAGE.format("codes", 3, "REPEATED", ".p.M.CodesEntry")} {_MESSAGE.format("m", 4, "OPTIONAL", ".p.M")}
  {_MESSAGE.format("any", 5, "OPTIONAL", ".google.protobuf.Any")}
  field {{ name: "s" number: 6 type: TYPE_STRING label: LABEL_OPTIONAL }}
  field {{ name: "other" number: 7 type: TYPE_ENUM label: LABEL_OPTIONAL type_name: ".p.M.E" }}
  extension_range {{ start: 100 end: 200 }}
  enum_type {{ name: "E" value {{ name: "FIRST" number: 3 }} }}
  nested_type {{
    name: "CodesEntry" options {{ map_entry: true }}
    field {{ name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }} {_ENUM.format("value", 2, "OPTIONAL")}
  }}
}}
extension {{ name: "x" extendee: ".p.M" number: 100 type: TYPE_ENUM label: LABEL_OPTIONAL type_name: ".p.E" }}
"""
_SET: Final = FileDescriptorSet(file=[Parse(_FILE, FileDescriptorProto())]).SerializeToString()
_TYPES: Final = from_descriptor_set(_SET)
_MAP: Final = b"\x1a\x05\x0a\x01a\x10\x09"
_MINUS: Final = b"\xf9" + b"\xff" * 8 + b"\x01"
_ANY: Final = b"\x2a\x0a\x0a\x04/p.M\x12\x02\x08\x07"


def _rendered(form: str, data: bytes) -> str:
    return render("p.M", form, _TYPES.schema("p.M").canonical, data).decode()


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"\x08\x01", {"c": "ONE"}),
        (b"\x08\x07", {"c": 7}),
        (b"\x08" + _MINUS, {"c": -7}),
        (b"\x10\x07\x10\x01\x10\x09", {"rc": [7, "ONE", 9]}),
        (b"\x12\x03\x07\x01\x09", {"rc": [7, "ONE", 9]}),
        (_MAP, {"codes": {"a": 9}}),
        (b"\x22\x04\x22\x02\x08\x07", {"m": {"m": {"c": 7}}}),
        (_ANY, {"any": {"@type": "/p.M", "c": 7}}),
        (b"\xa0\x06\x07", {"[p.x]": 7}),
        (b"\x08\x07\x38\x07", {"c": 7, "other": 7}),
        (b"\x38\x03\x08\x03", {"c": 3, "other": "FIRST"}),
        (b"\x08\x07\x32\x01\xff", {"c": 7, "s": "\\xff"}),
        (b"\x08\x07\x90\x03\x05", {"c": 7}),
    ],
)
def test_undeclared_values_are_numbers(data: bytes, shown: Any) -> None:
    assert json.loads(_rendered("json", data)) == shown


def test_a_message_that_lacks_required_fields_is_shown() -> None:
    lacking = b"\x0a\x00"  # a block of a program without its required numbers
    assert render("paddle.framework.proto.ProgramDesc", "text", b"", lacking) == b"blocks {\n}\n"


def test_texts_and_streams_show_numbers() -> None:
    assert _rendered("text", b"\x10\x07\x10\x01") == "rc: 7\nrc: ONE\n"
    stream = b"\x02\x08\x07\x02\x08\x01\x02\x08\x09"
    assert _rendered("jsonl", stream) == '{"c": 7}\n{"c": "ONE"}\n{"c": 9}\n'
    assert _rendered("texts", stream) == "c: 7\n\nc: ONE\n\nc: 9\n"


def test_the_runtime_reads_undeclared_values_in_binary_form_only() -> None:
    kind, data = _TYPES.message_class("p.M"), b"\x08\x07"
    assert kind.FromString(data).SerializeToString() == data
    for text in (_rendered("text", data), "1: 7"):
        with pytest.raises(ParseError):
            Parse(text, kind(), allow_field_number=True)
    with pytest.raises(JsonError):
        FromJson(_rendered("json", data), kind())


def test_a_text_like_a_placeholder_stays() -> None:
    text = b"UNDECLARED_000000000000000000000000_0_7"
    shown = json.loads(_rendered("json", b"\x08\x07\x32" + bytes([len(text)]) + text))
    assert shown == {"c": 7, "s": text.decode()}


def test_many_undeclared_values_are_refused() -> None:
    packed = b"".join(bytes([each & 0x7F | 0x80, each >> 7]) for each in range(2, MAX_UNDECLARED + 3))
    head = b"\x12" + bytes([len(packed) & 0x7F | 0x80, len(packed) >> 7])
    with pytest.raises(ValueError, match=re.escape(f"more than {MAX_UNDECLARED} enum values")):
        _rendered("json", head + packed)
