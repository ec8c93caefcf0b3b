"""Finding messages by type: the same messages as in the parsed proto, with the positions of their fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from tests.support.protos import ROOT, Case, cases
from tests.support.protos.wire import Field, fields
from tests.support.protos.writer import is_map

import protoslice
from protoslice import _core, schema
from protoslice.errors import LimitExceeded
from protoslice.schema import MessageTypes, from_descriptor_set
from protoslice.sources.files import BytesSource
from protoslice.sources.ropes import Rope

SMALL = 40
_LONGEST_KEY = 4096


class Recording:
    """Bytes that record how they are read."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self.reads: list[tuple[int, int]] = []
        self._data = data

    def read(self, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        return self._data[offset : offset + length]


def opened(case: Case) -> protoslice.Proto:
    return protoslice.open(case.data, ROOT, types=from_descriptor_set(case.schema), floor=case.floor)


def content(proto: protoslice.Proto, start: int, end: int) -> bytes:
    return Rope(proto.document.at(start, end), proto.sources).read()


def messages(case: Case) -> Iterator[tuple[str, Message]]:
    """Return every message of the parsed proto by its path, including the root."""
    yield from below(case.message(), "")


def below(message: Message, path: str) -> Iterator[tuple[str, Message]]:
    yield path, message
    for field, value in message.ListFields():
        here = f"{path}.{field.name}" if path else field.name
        if field.message_type is None:
            continue
        if not field.is_repeated:
            yield from below(value, here)
        elif not is_map(field):
            for at, element in enumerate(value):
                yield from below(element, f"{here}[{at}]")
        elif field.message_type.fields_by_name["value"].message_type is not None:
            for key in value:
                yield from below(value[key], f"{here}[{label(key)}]")


def label(key: Any) -> str:
    """Return a map's key as the engine writes it."""
    if not isinstance(key, str):
        return str(key).lower()
    known = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
    plain = (known.get(c, c if c >= " " and c != "\x7f" else f"\\x{ord(c):02x}") for c in key)
    return f'"{"".join(plain)}"'


def expected(case: Case, names: set[str]) -> set[tuple[str, str]]:
    return {(path, each.DESCRIPTOR.full_name) for path, each in messages(case) if each.DESCRIPTOR.full_name in names}


def nothing_on_the_wire(case: Case) -> set[tuple[str, str]]:
    """Return the messages that may be missing on the wire: values of map entries that have only a key."""
    empty = ((path, each) for path, each in messages(case) if path.endswith("]") and not each.ByteSize())
    return {(path, each.DESCRIPTOR.full_name) for path, each in empty}


@given(cases(), st.data())
def test_the_messages_of_a_type_are_those_that_the_runtime_has(case: Case, data: st.DataObject) -> None:
    proto, types = opened(case), from_descriptor_set(case.schema)
    wanted = data.draw(st.lists(st.sampled_from(types.names()), unique=True, min_size=1))
    found = [(each.path, each.type) for each in proto.document.find(wanted, small=SMALL)]
    assert len(found) == len(set(found))
    due = expected(case, set(wanted))
    assert set(found) <= due
    assert due - set(found) <= nothing_on_the_wire(case)


@given(cases())
def test_no_types_are_no_messages_and_all_types_all(case: Case) -> None:
    proto = opened(case)
    assert not len(proto.document.find([]))
    assert not len(proto.document.find(["no.Such"]))
    every = {each.path for each in proto.document.find(from_descriptor_set(case.schema).names())}
    assert every <= {each.path for each in proto.document.find(None)}


@given(cases())
def test_fields_are_found_where_they_lie(case: Case) -> None:
    check_fields(opened(case), from_descriptor_set(case.schema))


def check_fields(proto: protoslice.Proto, types: MessageTypes) -> None:
    for found in proto.document.find(types.names(), small=SMALL):
        if len(found.path) > _LONGEST_KEY:
            continue
        due = list(fields(proto.merge(found.path).read()))
        known = [field for field in due if not misfit(field, types, found.type)]
        assert at_places(proto, found.places) == [(field.number, field.wire, field.content) for field in known]
        assert skeleton_agrees(found.skeleton, due)


def misfit(field: Field, types: MessageTypes, name: str) -> bool:
    descriptor = types.descriptor(name)
    return field.number in descriptor.fields_by_number and field.known(descriptor) is None


def at_places(proto: protoslice.Proto, found: Sequence[tuple[int, int, int, int, int]]) -> list[tuple[int, int, bytes]]:
    """Return the fields at `found`, with runs split into elements."""
    out: list[tuple[int, int, bytes]] = []
    for number, wire, start, end, count in found:
        bytes_ = content(proto, start, end)
        if count == 1:
            out.append((number, wire, bytes_))
            continue
        run = list(fields(bytes_))
        assert len(run) == count
        out += [(field.number, field.wire, field.content) for field in run]
    return out


def skeleton_agrees(skeleton: bytes, whole: list[Field]) -> bool:
    """Return True if `skeleton` is `whole` without large fields; runs of scalars may be partly left out."""
    kept = [field.whole for field in fields(skeleton)]
    told = {0}
    for number, field in enumerate(whole):
        may_go = len(field.whole) > SMALL or in_run(whole, number)
        told = {at + 1 for at in told if kept[at : at + 1] == [field.whole]} | (told if may_go else set())
    return len(kept) in told


def in_run(whole: list[Field], number: int) -> bool:
    neighbours = whole[max(number - 1, 0) : number + 2]
    return sum((each.number, each.wire) == (whole[number].number, whole[number].wire) for each in neighbours) > 1


@given(cases())
def test_a_chunked_proto_has_the_same_messages(case: Case) -> None:
    proto, types = opened(case), from_descriptor_set(case.schema)
    with protoslice.open(proto.split(min_chunk=64, max_chunk=4096).cpb().read(), ROOT, types=types) as chunked:
        assert chunked.form == "chunked"
        here, there = ([(each.path, each.type) for each in model.document.find(None)] for model in (proto, chunked))
        assert sorted(here) == sorted(there)
        check_fields(chunked, types)


@given(cases(), st.integers(1, 300))
def test_messages_below_a_size_are_passed_over(case: Case, least: int) -> None:
    proto = opened(case)
    every = {each.path: each for each in proto.document.find(None) if len(each.path) <= _LONGEST_KEY}
    large = {each.path: each for each in proto.document.find(None, small=0, least=least)}
    sizes = {path: sum(end - start for _, _, start, end, _ in each.places) for path, each in every.items()}
    assert {path for path, size in sizes.items() if size >= least} <= set(large) | {"…"}
    assert set(large) <= {*every, *(each.path for each in proto.document.find(None))}
    assert all(not each.skeleton for each in large.values())


def named_graph() -> Any:
    graph: Any = schema.bundled().message_class("tensorflow.GraphDef")()
    node = graph.node.add(name="n", op="Const")
    node.attr["value"].tensor.dtype = 1
    node.attr["value"].tensor.tensor_content = b"x" * 8
    return graph


def test_what_encloses_a_message_is_named() -> None:
    for floor in (1, 1 << 14):
        proto = protoslice.open(named_graph().SerializeToString(), "tensorflow.GraphDef", floor=floor)
        (found,) = proto.document.find(["tensorflow.TensorProto"])
        assert found.path == 'node[0].attr["value"].tensor'
        assert found.names == [("tensorflow.NodeDef", b"n"), ("tensorflow.NodeDef.AttrEntry", b"value")]


def test_of_entries_with_one_key_the_last_counts_and_of_a_oneof_the_last_member() -> None:
    graph, again, other = named_graph(), named_graph(), named_graph()
    again.node[0].attr["value"].tensor.tensor_content = b"y"
    other.node[0].attr["value"].list.s.append(b"no tensor")
    for floor in (1, 1 << 14):
        node = graph.node[0].SerializeToString() + again.node[0].SerializeToString()
        (found,) = opened_node(node, floor).document.find(["tensorflow.TensorProto"])
        assert b"y" in found.skeleton
        assert b"x" not in found.skeleton
        value = graph.node[0].attr["value"].SerializeToString() + other.node[0].attr["value"].SerializeToString()
        proto = protoslice.open(value, "tensorflow.AttrValue", floor=floor)
        assert not len(proto.document.find(["tensorflow.TensorProto"]))
        proto = protoslice.open(
            value + graph.node[0].attr["value"].SerializeToString(), "tensorflow.AttrValue", floor=floor
        )
        assert [each.path for each in proto.document.find(["tensorflow.TensorProto"])] == ["tensor"]


def opened_node(node: bytes, floor: int) -> protoslice.Proto:
    return protoslice.open(node, "tensorflow.NodeDef", floor=floor)


def large_graph() -> bytes:
    graph: Any = schema.bundled().message_class("tensorflow.GraphDef")()
    for number in range(4000):
        node = graph.node.add(name=f"layer/{number}", op="Const", input=["a", "b"])
        tensor = node.attr["value"].tensor
        tensor.dtype = 1
        tensor.tensor_content = bytes(100_000 if number % 200 == 0 else 16)
    return bytes(graph.SerializeToString())


def found_in(data: bytes, root: str, wanted: str) -> tuple[Any, list[tuple[int, int]]]:
    """Return the places found in an indexed message, and the reads that the search takes."""
    index = protoslice.open(data, root).index_bytes
    source = Recording(data)
    proto = protoslice.open(source, root, index=index)
    source.reads.clear()
    return proto.document.find([wanted]), source.reads


def test_neighbours_are_read_together_and_large_payloads_not_at_all() -> None:
    data = large_graph()
    found, reads = found_in(data, "tensorflow.GraphDef", "tensorflow.TensorProto")
    assert len(found) == 4000
    assert sum(length for _, length in reads) < len(data) - 20 * 100_000 + 1000
    assert len(reads) <= 3 * 20


def test_the_front_of_a_message_and_its_name_are_read_together() -> None:
    """A tensor's name comes after its shape, so two reads over a network would be two round trips."""
    model: Any = schema.bundled().message_class("onnx.ModelProto")()
    for number in range(20):
        model.graph.initializer.add(name=f"w{number}", data_type=1, dims=[25_000], raw_data=bytes(100_000))
    data = bytes(model.SerializeToString())
    found, reads = found_in(data, "onnx.ModelProto", "onnx.TensorProto")
    assert len(found) == 20
    assert len(reads) == 20


def test_depth_is_bounded() -> None:
    literal: Any = schema.bundled().message_class("xla.LiteralProto")()
    inner = literal
    for _ in range(60):
        inner = inner.tuple_literals.add()
    data = literal.SerializeToString()
    for floor in (1, 1 << 14):
        deep = protoslice.open(data, "xla.LiteralProto", floor=floor)
        assert len(deep.document.find(["xla.LiteralProto"])) == 61
        limits = _core.Limits(depth=30)
        index = _core.Index(deep.index_bytes)
        flat = schema.bundled().flat("xla.LiteralProto")
        shallow = _core.Document(index, flat, [BytesSource(data)], limits=limits)
        with pytest.raises(LimitExceeded, match="30"):
            shallow.find(["xla.LiteralProto"])


@pytest.mark.parametrize("floor", [1, 1 << 14])
def test_memory_for_findings_is_bounded_by_the_proto(floor: int) -> None:
    """Each finding may take eight bytes; elements and fields of two bytes take more."""
    flat, limits = schema.bundled().flat("onnx.GraphProto"), _core.Limits(found=10_000)
    graph: Any = schema.bundled().message_class("onnx.GraphProto")()
    for _ in range(100):
        graph.initializer.add()
    few = graph.SerializeToString()
    one = b"\x2a\x90\x4e" + b"\x08\x01\x10\x01" * 2500  # dims and data_type alternate
    for data, kept in ((few, True), (few * 10, False), (one, False)):
        index = _core.Index(protoslice.open(data, "onnx.GraphProto", floor=floor).index_bytes)
        document = _core.Document(index, flat, [BytesSource(data)], limits=limits)
        if kept:
            assert len(document.find(["onnx.TensorProto"])) == 100
        else:
            with pytest.raises(LimitExceeded, match="the messages found"):
                document.find(["onnx.TensorProto"])


def test_a_span_of_the_document_is_where_it_lies() -> None:
    proto = protoslice.open(b"\x0a\x03abc\x0a\x02de")
    assert content(proto, 2, 5) == b"abc"
    assert proto.document.at(2, 5).pieces() == [(0, 2, 3)]
    assert content(proto, 5, 5) == b""
