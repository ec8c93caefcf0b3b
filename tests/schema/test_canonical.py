"""Canonical form of a type and all it reaches: its fingerprint changes exactly when a view would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, json_format, text_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st
from tests.support.protos import ROOT, Case, cases

from protoslice.schema import bundled, from_descriptor_set

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
    """The same types in two files, which import each other."""
    other = File(name="colors.proto", package="shop", syntax="proto2", dependency=["shop.proto"])
    other.enum_type.extend(file.enum_type)
    other.extension.extend(file.extension)
    file.ClearField("enum_type")
    file.ClearField("extension")
    file.dependency.append("colors.proto")
    return [file, other]


def _shortened(file: Any) -> None:
    """Names as protoc's parser has them before it resolves them, without types where names tell."""
    for message in (file.message_type[0], *file.message_type[0].nested_type):
        for field in message.field:
            if field.type_name:
                field.type_name = field.type_name.removeprefix(".shop.").removeprefix("Root.") or "Root"
                field.ClearField("type")


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
    """The stored form reads as its source does, by our reader and by the protobuf runtime."""
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
    """All that the runtime makes a difference by, of every field and enum that is reached."""
    found: dict[str, object] = {}
    pending = [root]
    while pending:
        message = pending.pop()
        for field in message.fields:
            key = f"{message.full_name}.{field.name}"
            if key in found:
                continue
            target = field.message_type or field.enum_type
            found[key] = (
                (field.number, field.type, field.is_repeated, field.is_required, field.is_packed),
                field.has_presence,
                target.full_name if target else None,
            )
            if field.message_type:
                pending.append(field.message_type)
            if field.enum_type:
                values = field.enum_type.values_by_number
                names = {number: value.name for number, value in values.items()}
                found[field.enum_type.full_name] = (field.enum_type.is_closed, names)
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
