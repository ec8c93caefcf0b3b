"""The tree of a proto equals the protobuf runtime's; wire oddities are tested in their smallest form."""

from collections.abc import Iterator
from itertools import islice

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import Message
from google.protobuf.text_format import Parse
from hypothesis import given
from tests.support.protos import ROOT, Case, cases

import protoslice
from protoslice.errors import InvalidInput, NotFound
from protoslice.schema import from_descriptor_set

_MOST_NODES = 400


def opened(case: Case) -> protoslice.Proto:
    return protoslice.open(case.data, ROOT, types=from_descriptor_set(case.schema), floor=case.floor)


def walk(proto: protoslice.Proto, path: str = "", depth: int = 0) -> Iterator[protoslice.Node]:
    # Of a map's entries with the same key, a path leads to the last one.
    for node in {node.path: node for node in proto.tree(path, limit=30)}.values():
        yield node
        if node.deeper and depth < 8 and len(node.path) < 4000:
            yield from walk(proto, node.path, depth + 1)


@given(cases())
def test_every_field_that_is_set_is_in_the_tree(case: Case) -> None:
    nodes = {node.name: node for node in opened(case).tree() if node.name}
    for field, value in case.message().ListFields():
        node = nodes[field.name]
        assert (node.number, node.path) == (field.number, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            assert node.kind == "map"
            assert node.count is not None
            assert node.count >= len(value)
        elif field.is_repeated and node.count is not None:
            assert node.count == len(value)
        elif not field.is_repeated:
            assert node.count is None


@given(cases(odd=False))
def test_sizes_are_those_of_what_a_path_gives(case: Case) -> None:
    proto = opened(case)
    for node in islice(walk(proto), _MOST_NODES):
        assert node.size >= 0
        if node.kind not in ("message", "bytes", "string", "group") or node.count is not None or node.name is None:
            continue
        if len(node.path) < 4000:
            assert _size_at(proto, node.path) in (node.size, None), node


def _size_at(proto: protoslice.Proto, path: str) -> int | None:
    try:
        return proto.merge(path).size
    except NotFound:
        return None  # a member of a oneof that another member has replaced


@given(cases())
def test_a_message_in_the_tree_has_the_type_the_descriptor_gives(case: Case) -> None:
    proto, message = opened(case), case.message()
    for node in proto.tree():
        field = message.DESCRIPTOR.fields_by_name.get(node.name or "")
        if field is None:
            assert node.kind is None
            continue
        if node.kind in ("message", "group"):
            assert field.message_type is not None
            assert node.type == field.message_type.full_name
            assert node.deeper
        else:
            assert node.type is None


@given(cases())
def test_pages_make_up_the_whole(case: Case) -> None:
    proto = opened(case)
    for path in ["", *[node.path for node in proto.tree() if node.deeper][:5]]:
        whole = proto.tree(path)
        pages = [proto.tree(path, start=at, limit=3) for at in range(0, len(whole), 3)]
        assert [node for page in pages for node in page] == whole
        assert proto.count(path) == len(whole)
        assert proto.tree(path, start=len(whole)) == []


@given(cases())
def test_a_short_text_is_shown(case: Case) -> None:
    message = case.message()
    for node in opened(case).tree():
        value = _singular(message, node.name)
        if isinstance(value, str) and node.size <= 100 and '"' not in value and node.count is None:
            assert node.text is not None


def _singular(message: Message, name: str | None) -> object:
    field = message.DESCRIPTOR.fields_by_name.get(name or "")
    return None if field is None or field.is_repeated else getattr(message, field.name)


def test_a_path_is_as_long_as_its_bytes() -> None:
    proto = protoslice.open(b"\x0a\x01a", type="onnx.ModelProto")
    with proto, pytest.raises(InvalidInput, match="a path has 6000 bytes in UTF-8, but at most 4096 are allowed"):
        proto.merge("\u00e9" * 3000)


# Oddities of the wire, each in its smallest form; each one was once handled wrongly.

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


def odd_message(text: str, floor: int) -> protoslice.Proto:
    return protoslice.open(bytes.fromhex(text), "odd.M", types=TYPES, floor=floor)


@FLOORS
def test_a_condition_does_not_see_what_a_oneof_has_replaced(floor: int) -> None:
    proto = odd_message("22063201783a01792203320178", floor)  # list: {a: x, b: y}, {a: x}
    assert proto.merge('list[a="x"]').read().hex() == "320178"
    assert proto.merge('list[b="y"]').read().hex() == "3201783a0179"
    assert proto.merge('list[a=""]').read().hex() == "3201783a0179"


@FLOORS
def test_the_tree_does_not_show_what_a_oneof_has_replaced(floor: int) -> None:
    proto = odd_message("42020801320178", floor)  # c: {number: 1}, a: x
    assert [node.name for node in proto.tree()] == ["a"]
    assert proto.count() == 1
    with pytest.raises(NotFound):
        proto.merge("c")


@FLOORS
def test_a_field_that_is_given_twice_has_the_size_of_what_it_amounts_to(floor: int) -> None:
    proto = odd_message("120261621201631a0208011a020802", floor)  # data: ab, data: c, child twice
    assert [(node.name, node.size) for node in proto.tree()] == [("data", 1), ("child", 4)]
    assert proto.merge("data").read() == b"c"
    assert proto.merge("child").read().hex() == "08010802"


@FLOORS
def test_numbers_are_never_omitted(floor: int) -> None:
    proto = odd_message("08ac021203616263", floor)  # number: 300, data: abc
    assert proto.merge(omit_larger_than=1).read().hex() == "08ac02"
    assert proto.merge(omit_larger_than=0).read().hex() == "08ac02"


@FLOORS
def test_an_entry_with_unknown_fields_is_an_entry(floor: int) -> None:
    """C++ and Java do the same. Python's runtime takes the whole entry for an unknown field."""
    proto = odd_message("2a080a016b1801120176", floor)  # map: {key: k, 3: 1, value: v}
    assert proto.merge('map["k"]').read() == b"v"


@FLOORS
def test_a_message_of_a_oneof_that_comes_back_begins_anew(floor: int) -> None:
    proto = odd_message("42020801320178420208024203120161", floor)
    assert proto.merge("c").read().hex() == "0802120161"


@FLOORS
def test_an_empty_proto_has_nothing(floor: int) -> None:
    proto = odd_message("", floor)
    assert (proto.size, proto.rope.read(), proto.tree(), len(proto.split())) == (0, b"", [], 1)
    with pytest.raises(NotFound, match="data is not set"):
        proto.merge("data")
