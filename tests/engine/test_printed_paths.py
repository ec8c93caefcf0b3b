"""Every printed path is accepted as a path parameter and leads to the same bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.text_format import Parse
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.canonical import Canonical, delimited

import protoslice
from protoslice.comparing.equality import Equality
from protoslice.comparing.parts import parts_that_differ
from protoslice.errors import NotFound, Unsupported
from protoslice.facts import Node
from protoslice.library.proto import Proto, node_at
from protoslice.schema import from_descriptor_set
from protoslice.tensors.model import RootProto

_KEYS: Final = ("STRING", "BOOL", "INT32", "INT64", "UINT64", "SINT32", "FIXED64")


def _map(number: int, key: str) -> str:
    entry = f"By{key.title()}Entry"
    return f"""
    field {{
      name: "by_{key.lower()}" number: {number} type: TYPE_MESSAGE type_name: ".x.M.{entry}" label: LABEL_REPEATED
    }}
    nested_type {{
      name: "{entry}" options {{ map_entry: true }}
      field {{ name: "key" number: 1 type: TYPE_{key} label: LABEL_OPTIONAL }}
      field {{ name: "value" number: 2 type: TYPE_MESSAGE type_name: ".x.M" label: LABEL_OPTIONAL }}
    }}"""


_FILE: Final = f"""
name: "x.proto" package: "x"
message_type {{
  name: "M"
  field {{ name: "bytes" number: 1 type: TYPE_BYTES label: LABEL_OPTIONAL }}
  field {{ name: "name" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }}
  field {{ name: "i32" number: 3 type: TYPE_INT32 label: LABEL_OPTIONAL }}
  field {{ name: "floats" number: 4 type: TYPE_FLOAT label: LABEL_REPEATED options {{ packed: true }} }}
  field {{ name: "sub" number: 5 type: TYPE_MESSAGE type_name: ".x.M" label: LABEL_OPTIONAL }}
  field {{ name: "subs" number: 6 type: TYPE_MESSAGE type_name: ".x.M" label: LABEL_REPEATED }}
  field {{ name: "texts" number: 7 type: TYPE_STRING label: LABEL_REPEATED }}
  field {{ name: "g" number: 8 type: TYPE_GROUP type_name: ".x.M.G" label: LABEL_OPTIONAL }}
  field {{ name: "h" number: 9 type: TYPE_GROUP type_name: ".x.M.H" label: LABEL_REPEATED }}
  {"".join(_map(number, key) for number, key in enumerate(_KEYS, 10))}
  nested_type {{ name: "G" field {{ name: "m" number: 1 type: TYPE_MESSAGE type_name: ".x.M" label: LABEL_OPTIONAL }} }}
  nested_type {{ name: "H" field {{ name: "b" number: 1 type: TYPE_BYTES label: LABEL_OPTIONAL }} }}
  extension {{ name: "inner" number: 100 extendee: ".x.M" type: TYPE_MESSAGE type_name: ".x.M" label: LABEL_OPTIONAL }}
  extension_range {{ start: 100 end: 200 }}
}}
extension {{ name: "ext" number: 101 extendee: ".x.M" type: TYPE_MESSAGE type_name: ".x.M" label: LABEL_OPTIONAL }}
extension {{ name: "exts" number: 102 extendee: ".x.M" type: TYPE_MESSAGE type_name: ".x.M" label: LABEL_REPEATED }}
extension {{ name: "true" number: 103 extendee: ".x.M" type: TYPE_BYTES label: LABEL_OPTIONAL }}
extension {{ name: "ints" number: 104 extendee: ".x.M" type: TYPE_INT64 label: LABEL_REPEATED }}
"""
RUN: Final = re.compile(r"(.*)\[[0-9]+:[0-9]+\]", re.DOTALL)
"""Path of a chunk that holds a run of elements."""
NUMBERS: Final = ("floats", "[x.ints]")
REPEATED: Final = ("s", "s]", "h", *(f"by_{key.lower()}" for key in _KEYS), "40", "50")
"""Endings of paths of repeated fields."""
SET: Final = FileDescriptorSet(file=[Parse(_FILE, FileDescriptorProto())])
TYPES: Final = from_descriptor_set(SET)


def opened(data: bytes, floor: int = 16) -> Proto:
    return protoslice.open(data, "x.M", types=TYPES, floor=floor)


def nodes(proto: Proto, path: str = "") -> Iterator[Node]:
    """Every node that `tree` prints, at any depth."""
    for node in proto.tree(path):
        yield node
        if node.deeper:
            yield from nodes(proto, node.path)


def cells(proto: Proto, path: str = "") -> Iterator[tuple[Node, int]]:
    """Every node that a treemap is made of, and its size there."""
    for row in proto.document.heaviest(path, 1000, 0)[0]:
        node = node_at(path, row)
        yield node, node.size
        if node.deeper:
            yield from cells(proto, node.path)


def accepted(proto: Proto, path: str) -> bytes:
    """The bytes at `path`, which every parameter takes: of merge, masks, tree and treemap."""
    proto.tree(path)
    proto.document.heaviest(path, 10, 0)
    masked = proto.merge(fields=[path]).read()
    assert len(masked) <= proto.size
    try:
        return proto.merge(path).read()
    except Unsupported:  # a repeated field, which masks alone select as a whole
        assert path.endswith(tuple(REPEATED)), path
        return masked


def check(proto: Proto) -> int:
    """Check all printed paths; returns their number."""
    printed = 0
    for node in [*nodes(proto), *(node for node, _ in cells(proto))]:
        data = accepted(proto, node.path)
        if node.count is None and (node.deeper or node.kind in ("bytes", "string")):
            assert len(data) == node.size, node.path
        printed += 1
    for large in proto.largest(1000):
        data = accepted(proto, large.path)
        head = 2 * 10  # small fields count with their tag and length
        assert large.count is not None or len(data) + head >= large.size, large.path
    for found in proto.document.find(["x.M"]):
        assert found.path == "" or proto.merge(found.path).kind == "message"
        accepted(proto, found.path) if found.path else None
    for least in (1, 30):
        split = proto.split(min_chunk=least, max_chunk=1 << 20)
        for chunk in split:
            run = RUN.fullmatch(chunk.path)
            if run is None and chunk.path:
                assert len(accepted(proto, chunk.path)) >= chunk.size, chunk.path
            elif run is not None and not run[1].endswith(NUMBERS):  # masks do not cut packed numbers
                assert proto.merge(fields=[chunk.path]).size > 0, chunk.path
    return printed


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1 << 32), st.sampled_from([1, 16, 1000]))
def test_every_printed_path_is_accepted_and_leads_to_its_bytes(seed: int, floor: int) -> None:
    data = Canonical(seed, distinct_keys=True).message(TYPES.descriptor("x.M"), 3)
    assert check(opened(data, floor)) or not data


def test_extensions_are_printed_by_their_full_names_in_brackets() -> None:
    leaf = delimited(1, b"y" * 20)
    data = delimited(100, leaf) + delimited(101, delimited(101, leaf)) + delimited(102, leaf) * 2 + delimited(103, b"z")
    proto = opened(data)
    assert [node.path for node in nodes(proto)] == [
        "[x.M.inner]",
        "[x.M.inner].bytes",
        "[x.ext]",
        "[x.ext].[x.ext]",
        "[x.ext].[x.ext].bytes",
        "[x.exts]",
        "[x.exts][0]",
        "[x.exts][0].bytes",
        "[x.exts][1]",
        "[x.exts][1].bytes",
        "[x.true]",
    ]
    check(proto)
    assert proto.merge("[x.ext].[x.ext].bytes").read() == b"y" * 20
    assert proto.merge("102[1]").read() == leaf
    with pytest.raises(NotFound, match=r"has no field \"\[x\.other\]\""):
        proto.merge("[x.other]")


def test_unknown_fields_are_printed_by_number_and_position() -> None:
    group = b"\x93\x03\x0a\x14" + bytes(20) + b"\x94\x03"  # field 50
    data = delimited(40, bytes(30)) * 2 + delimited(41, b"x") + group * 2
    proto = opened(data, floor=1)
    check(proto)
    assert {large.path for large in proto.largest()} >= {"40[0]", "40[1]", "41", "50[0].1", "50[1].1"}


@pytest.mark.parametrize("key", [True, -5, (1 << 63) + 7])
def test_keys_are_printed_as_they_are_asked_for(key: Any) -> None:
    message: Any = TYPES.message_class("x.M")()
    name = {bool: "by_bool", int: "by_int64" if key < 0 else "by_uint64"}[type(key)]
    getattr(message, name)[key].bytes = bytes(40)
    getattr(message, name)[type(key)()].bytes = bytes(50)
    proto = opened(message.SerializeToString(), floor=1)
    check(proto)
    shown = str(key).lower() if isinstance(key, bool) else str(key)
    assert proto.merge(f"{name}[{shown}].bytes").size == 40


def test_a_key_that_is_too_long_for_a_path_is_never_printed_as_another_key() -> None:
    message: Any = TYPES.message_class("x.M")()
    message.by_string["k" * 5000].bytes = bytes(60)
    proto = opened(message.SerializeToString(), floor=1)
    assert {large.path for large in proto.largest()} == {"by_string", "by_string[…].bytes"}


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1 << 32), st.integers(0, 1 << 32))
def test_differences_are_named_by_paths_that_lead_there(one: int, other: int) -> None:
    types = TYPES.descriptor("x.M")
    before, after = (opened(Canonical(seed, distinct_keys=True).message(types, 3)) for seed in (one, other))
    equality = Equality(lambda here, there, size: [(0, size)], lambda _: None, local=True, stored=1 << 30)
    old, new = (RootProto(proto.document, proto.sources) for proto in (before, after))
    for found in parts_that_differ(old, new, equality, set()):
        if found is None:
            continue
        if found.change != "removed":
            accepted(after, found.path)
        if found.change != "added":
            accepted(before, found.was)
