"""Well-known types with a stored schema: they are rendered and parsed as by the protobuf runtime."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from google.protobuf import (
    any_pb2,
    api_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    json_format,
    source_context_pb2,
    struct_pb2,
    text_format,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.text_format import Parse

from protoslice.schema import from_descriptor_set, serialized
from protoslice.schema.rendering import render

MODULES: Final = (
    any_pb2,
    source_context_pb2,
    type_pb2,
    api_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
KINDS: Final = sorted(
    message.full_name for module in MODULES for message in module.DESCRIPTOR.message_types_by_name.values()
)
"""Every message type of the files that the runtime brings."""
WRAPPERS: Final = {message.full_name for message in wrappers_pb2.DESCRIPTOR.message_types_by_name.values()}
_IMPORTS: Final = "".join(f'dependency: "{module.DESCRIPTOR.name}" ' for module in MODULES)
_FIELDS: Final = "".join(
    f'field {{ name: "f{number}" number: {number} type: TYPE_MESSAGE type_name: ".{kind}" label: LABEL_{label} }} '
    for number, (kind, label) in enumerate([(kind, label) for kind in KINDS for label in ("OPTIONAL", "REPEATED")], 1)
)
_OWN: Final = f"""
name: "own.proto" package: "own" syntax: "proto3" {_IMPORTS}
message_type {{ name: "All" {_FIELDS} }}
message_type {{
  name: "Apart" field {{ name: "label" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }}
  field {{ name: "value" number: 2 type: TYPE_MESSAGE type_name: ".google.protobuf.Value" label: LABEL_OPTIONAL }}
}}
"""


def _files(*more: FileDescriptorProto) -> FileDescriptorSet:
    files = []
    for module in MODULES:
        module.DESCRIPTOR.CopyToProto(file := FileDescriptorProto())
        files.append(file)
    return FileDescriptorSet(file=[*files, *more])


SET: Final = _files(Parse(_OWN, FileDescriptorProto()))
TYPES: Final = from_descriptor_set(SET)
POOL: Final = DescriptorPool()
for each in SET.file:
    POOL.AddSerializedFile(each.SerializeToString())


def by_the_runtime(data: bytes, form: str) -> str:
    message = GetMessageClass(POOL.FindMessageTypeByName("own.All")).FromString(data)
    if form == "text":
        return text_format.MessageToString(message, as_utf8=True, descriptor_pool=POOL)
    return json_format.MessageToJson(message, preserving_proto_field_name=True, descriptor_pool=POOL)


def rendered_by_the_runtime(data: bytes) -> Any:
    return json.loads(by_the_runtime(data, "json"))


def rendered(data: bytes, form: str) -> str:
    return render("own.All", form, TYPES.schema("own.All").canonical, data).decode()


def _value(kind: str) -> Any:
    """Return a message of the type `kind` with a few values."""
    message: Any = GetMessageClass(POOL.FindMessageTypeByName(kind))()
    samples = {
        "google.protobuf.Any": '[type.googleapis.com/own.Apart] { label: "in" value { bool_value: true } }',
        "google.protobuf.Struct": 'fields { key: "a" value { list_value { values { null_value: NULL_VALUE } } } }',
        "google.protobuf.ListValue": "values { number_value: 1.5 } values { struct_value { } }",
        "google.protobuf.Value": 'struct_value { fields { key: "b" value { bool_value: false } } }',
        "google.protobuf.Timestamp": "seconds: 1700000000 nanos: 5000000",
        "google.protobuf.Duration": "seconds: -3 nanos: -500000000",
        "google.protobuf.FieldMask": 'paths: "a_b.c" paths: "d"',
        "google.protobuf.StringValue": 'value: "t"',
        "google.protobuf.BytesValue": 'value: "\\001\\377"',
    }
    if kind in samples:
        text_format.Parse(samples[kind], message, descriptor_pool=POOL)
    elif kind in WRAPPERS:
        message.value = 1
    return message


def message_of(kind: str) -> bytes:
    message: Any = GetMessageClass(POOL.FindMessageTypeByName("own.All"))()
    number = 1 + 2 * KINDS.index(kind)
    getattr(message, f"f{number}").CopyFrom(_value(kind))
    getattr(message, f"f{number + 1}").add().CopyFrom(_value(kind))
    data: bytes = message.SerializeToString()
    return data


@pytest.mark.parametrize("kind", KINDS)
def test_json_of_a_well_known_type_is_that_of_the_runtime(kind: str) -> None:
    data = message_of(kind)
    assert json.loads(rendered(data, "json")) == json.loads(by_the_runtime(data, "json"))


@pytest.mark.parametrize("kind", KINDS)
def test_text_of_a_well_known_type_is_that_of_the_runtime_and_parses(kind: str) -> None:
    data = message_of(kind)
    text = rendered(data, "text")
    assert text == by_the_runtime(data, "text")
    assert serialized(text.encode(), TYPES.schema("own.All")) == data


@pytest.mark.parametrize("kind", KINDS)
def test_an_any_of_a_well_known_type_is_shown(kind: str) -> None:
    message: Any = GetMessageClass(POOL.FindMessageTypeByName("own.All"))()
    held = getattr(message, f"f{1 + 2 * KINDS.index('google.protobuf.Any')}")
    held.type_url, held.value = f"type.googleapis.com/{kind}", _value(kind).SerializeToString()
    data = message.SerializeToString()
    for form in ("json", "text"):
        got, expected = rendered(data, form), by_the_runtime(data, form)
        assert (json.loads(got) == json.loads(expected)) if form == "json" else got == expected


def _nested(package: str, content: str) -> FileDescriptorProto:
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    file.dependency.extend(["google/protobuf/struct.proto", "google/protobuf/wrappers.proto"])
    return Parse(content, file)


def test_types_of_other_packages_of_google_are_rendered_too() -> None:
    status = _nested(
        "google.rpc",
        """message_type { name: "Status"
          field {
            name: "code" number: 1 type: TYPE_MESSAGE type_name: ".google.protobuf.Int32Value" label: LABEL_OPTIONAL
          }
          field { name: "why" number: 2 type: TYPE_MESSAGE type_name: ".google.protobuf.Struct" label: LABEL_OPTIONAL }
        }""",
    )
    types = from_descriptor_set(_files(status))
    data = b"\x0a\x02\x08\x05\x12\x09\x0a\x07\x0a\x01a\x12\x02\x20\x01"
    shown = render("google.rpc.Status", "json", types.schema("google.rpc.Status").canonical, data)
    assert json.loads(shown) == {"code": 5, "why": {"a": True}}


def test_packages_that_depend_on_each_other_are_rendered_from_one_file() -> None:
    both = _nested(
        "google",
        """message_type { name: "A"
          field { name: "inner" number: 1 type: TYPE_MESSAGE type_name: ".google.protobuf.Own" label: LABEL_OPTIONAL }
          field { name: "why" number: 2 type: TYPE_MESSAGE type_name: ".google.protobuf.Struct" label: LABEL_OPTIONAL }
        }""",
    )
    own = _nested(
        "google.protobuf",
        """message_type { name: "Own"
          field { name: "outer" number: 1 type: TYPE_MESSAGE type_name: ".google.B" label: LABEL_OPTIONAL }
        }""",
    )
    own.name, other = "own_protobuf.proto", _nested("google", 'message_type { name: "B" }')
    other.name = "b.proto"
    own.dependency.append("b.proto")
    both.dependency.append("own_protobuf.proto")
    types = from_descriptor_set(_files(other, own, both))
    data = b"\x0a\x02\x0a\x00\x12\x09\x0a\x07\x0a\x01a\x12\x02\x20\x01"
    shown = render("google.A", "json", types.schema("google.A").canonical, data)
    assert json.loads(shown) == {"inner": {"outer": {}}, "why": {"a": True}}


def test_another_type_under_a_well_known_name_is_rendered_as_declared() -> None:
    file = Parse(
        """name: "v.proto" package: "google.protobuf" syntax: "proto3"
        message_type { name: "Int32Value" field { name: "other" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL } }
        """,
        FileDescriptorProto(),
    )
    types = from_descriptor_set(FileDescriptorSet(file=[file]))
    name = "google.protobuf.Int32Value"
    assert json.loads(render(name, "json", types.schema(name).canonical, b"\x08\x05")) == {"other": 5}
