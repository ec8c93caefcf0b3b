"""Oddities of the wire, each in its smallest form. What went wrong once stays here."""

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.text_format import Parse

import protoslice
from protoslice.errors import NotFound
from protoslice.schema import from_descriptor_set

_FILE = """
name: "odd.proto" package: "odd" syntax: "proto3"
message_type {
  name: "M"
  field { name: "number" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "data" number: 2 type: TYPE_BYTES label: LABEL_OPTIONAL }
  field { name: "child" number: 3 type: TYPE_MESSAGE type_name: ".odd.M" label: LABEL_OPTIONAL }
  field { name: "list" number: 4 type: TYPE_MESSAGE type_name: ".odd.M" label: LABEL_REPEATED }
  field { name: "map" number: 5 type: TYPE_MESSAGE type_name: ".odd.M.MapEntry" label: LABEL_REPEATED }
  field { name: "a" number: 6 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "b" number: 7 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "c" number: 8 type: TYPE_MESSAGE type_name: ".odd.M" label: LABEL_OPTIONAL oneof_index: 0 }
  nested_type {
    name: "MapEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_BYTES label: LABEL_OPTIONAL }
  }
  oneof_decl { name: "one" }
}
"""
TYPES = from_descriptor_set(FileDescriptorSet(file=[Parse(_FILE, FileDescriptorProto())]))
FLOORS = pytest.mark.parametrize("floor", [1, 16384])


def opened(text: str, floor: int) -> protoslice.Proto:
    return protoslice.open(bytes.fromhex(text), "odd.M", types=TYPES, floor=floor)


@FLOORS
def test_a_condition_does_not_see_what_a_oneof_has_replaced(floor: int) -> None:
    proto = opened("22063201783a01792203320178", floor)  # list: {a: x, b: y}, {a: x}
    assert proto.merge('list[a="x"]').read().hex() == "320178"
    assert proto.merge('list[b="y"]').read().hex() == "3201783a0179"
    assert proto.merge('list[a=""]').read().hex() == "3201783a0179"


@FLOORS
def test_the_tree_does_not_show_what_a_oneof_has_replaced(floor: int) -> None:
    proto = opened("42020801320178", floor)  # c: {number: 1}, a: x
    assert [node.name for node in proto.tree()] == ["a"]
    assert proto.count() == 1
    with pytest.raises(NotFound):
        proto.merge("c")


@FLOORS
def test_a_field_that_is_given_twice_has_the_size_of_what_it_amounts_to(floor: int) -> None:
    proto = opened("120261621201631a0208011a020802", floor)  # data: ab, data: c, child twice
    assert [(node.name, node.size) for node in proto.tree()] == [("data", 1), ("child", 4)]
    assert proto.merge("data").read() == b"c"
    assert proto.merge("child").read().hex() == "08010802"


@FLOORS
def test_numbers_are_never_omitted(floor: int) -> None:
    proto = opened("08ac021203616263", floor)  # number: 300, data: abc
    assert proto.merge(omit_larger_than=1).read().hex() == "08ac02"
    assert proto.merge(omit_larger_than=0).read().hex() == "08ac02"


@FLOORS
def test_an_entry_with_unknown_fields_is_an_entry(floor: int) -> None:
    """As in C++ and Java. Python's runtime takes the whole entry for an unknown field."""
    proto = opened("2a080a016b1801120176", floor)  # map: {key: k, 3: 1, value: v}
    assert proto.merge('map["k"]').read() == b"v"


@FLOORS
def test_a_message_of_a_oneof_that_comes_back_begins_anew(floor: int) -> None:
    proto = opened("42020801320178420208024203120161", floor)
    assert proto.merge("c").read().hex() == "0802120161"


@FLOORS
def test_an_empty_proto_has_nothing(floor: int) -> None:
    proto = opened("", floor)
    assert (proto.size, proto.rope.read(), proto.tree(), len(proto.split())) == (0, b"", [], 1)
    with pytest.raises(NotFound, match="data is not set"):
        proto.merge("data")
