"""The tree of a proto counts and measures what the protobuf runtime parses."""

from collections.abc import Iterator
from itertools import islice

import pytest
from google.protobuf.message import Message
from hypothesis import given
from tests.support.protos import ROOT, Case, cases

import protoslice
from protoslice.errors import InvalidInput, NotFound
from protoslice.schema import from_descriptor_set

_MOST_NODES = 400


def opened(case: Case) -> protoslice.Proto:
    return protoslice.open(case.data, ROOT, types=from_descriptor_set(case.schema), floor=case.floor)


def walk(proto: protoslice.Proto, path: str = "", depth: int = 0) -> Iterator[protoslice.Node]:
    for node in proto.tree(path, limit=30):
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
    # Of a map's entries with the same key the last is the one a path leads to.
    nodes = {node.path: node for node in islice(walk(proto), _MOST_NODES)}
    for node in nodes.values():
        assert node.size >= 0
        if node.kind not in ("message", "bytes", "string", "group") or node.count is not None or node.name is None:
            continue
        if len(node.path) < 4000:
            assert _size_at(proto, node.path) in (node.size, None), node


def _size_at(proto: protoslice.Proto, path: str) -> int | None:
    try:
        return proto.merge(path).size
    except NotFound:
        return None  # a member of a oneof that another has replaced


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
