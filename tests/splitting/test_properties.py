"""Any message of any schema is split and merged to an equal one; limits of sizes and keys; warnings for readers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protoslice import schema
from protoslice.errors import InvalidInput
from protoslice.merging import Merger
from protoslice.splitting import AutoSplitter, ComposableSplitter, SplitPolicy, tensorflow_readable
from protoslice.splitting.fields import descriptor_of, message_size, present
from protoslice.splitting.paths import chunk_metadata, chunked_message
from protoslice.splitting.planner import Entry

F = descriptor_pb2.FieldDescriptorProto
SCALARS = [kind for kind in range(1, 19) if kind not in (F.TYPE_GROUP, F.TYPE_MESSAGE, F.TYPE_ENUM)]
KEYS = [kind for kind in SCALARS if kind not in (F.TYPE_DOUBLE, F.TYPE_FLOAT, F.TYPE_BYTES)]
MESSAGES = 3


@st.composite
def message_types(draw: st.DrawFn) -> type[Message]:
    """Return a class for the first of a few random message types that refer to each other."""
    syntax = draw(st.sampled_from(["proto2", "proto3"]))
    file = descriptor_pb2.FileDescriptorProto(name="random.proto", package="random", syntax=syntax)
    enum = file.enum_type.add(name="E")
    for number, name in enumerate(("ZERO", "ONE", "TWO")):
        enum.value.add(name=name, number=number)
    for number in range(MESSAGES):
        _fields(draw, file.message_type.add(name=f"M{number}"), syntax)
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("random.M0"))


def _fields(draw: st.DrawFn, message: descriptor_pb2.DescriptorProto, syntax: str) -> None:
    numbers = draw(
        st.lists(st.sampled_from([*range(1, 20), 200, 5000, (1 << 29) - 1]), min_size=2, max_size=7, unique=True)
    )
    kinds = st.sampled_from(["scalar", "text", "enum", "message", "map", "group", "oneof"])
    # The members of a oneof must be next to each other, or C++ refuses the file.
    for number, how in sorted(((number, draw(kinds)) for number in numbers), key=lambda each: each[1] == "oneof"):
        label = draw(st.sampled_from([F.LABEL_OPTIONAL, F.LABEL_REPEATED]))
        field = message.field.add(name=f"f{number}", number=number, label=label)
        if how == "map":
            _map(draw, message, field)
        elif how == "group" and syntax == "proto2":
            field.name, field.type, field.type_name = f"g{number}", F.TYPE_GROUP, f".random.{message.name}.G{number}"
            group = message.nested_type.add(name=f"G{number}")
            group.field.add(name="text", number=1, label=F.LABEL_OPTIONAL, type=F.TYPE_BYTES)
            group.field.add(name="more", number=2, label=F.LABEL_REPEATED, type=F.TYPE_MESSAGE, type_name=".random.M1")
        else:
            _kind(draw, field, how)
        if how == "oneof":
            if not message.oneof_decl:
                message.oneof_decl.add(name="choice")
            field.label, field.oneof_index = F.LABEL_OPTIONAL, 0


def _kind(draw: st.DrawFn, field: F, how: str) -> None:
    choices: dict[str, list[Any]] = {
        "text": [F.TYPE_STRING, F.TYPE_BYTES],
        "enum": [F.TYPE_ENUM],
        "message": [F.TYPE_MESSAGE],
    }
    field.type = draw(st.sampled_from(choices.get(how, [*SCALARS, F.TYPE_MESSAGE])))
    if field.type == F.TYPE_MESSAGE:
        field.type_name = f".random.M{draw(st.integers(0, MESSAGES - 1))}"
    elif field.type == F.TYPE_ENUM:
        field.type_name = ".random.E"


def _map(draw: st.DrawFn, message: descriptor_pb2.DescriptorProto, field: F) -> None:
    entry = message.nested_type.add(name=f"F{field.number}Entry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=F.LABEL_OPTIONAL, type=draw(st.sampled_from(KEYS)))
    value = entry.field.add(name="value", number=2, label=F.LABEL_OPTIONAL)
    _kind(draw, value, draw(st.sampled_from(["scalar", "text", "message"])))
    field.label, field.type, field.type_name = F.LABEL_REPEATED, F.TYPE_MESSAGE, f".random.{message.name}.{entry.name}"


_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, (1 << 64) - 1),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_ENUM: st.integers(0, 2),
    FieldDescriptor.CPPTYPE_FLOAT: st.floats(width=32),
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(),
}
_UNKNOWN = st.sampled_from([b"\xf8\x3f\x05", b"\xfa\x3f\x03abc", b"\xfb\x3f\xf8\x3f\x01\xfc\x3f", b"\xfd\x3f1234"])


def _scalar(draw: st.DrawFn, field: FieldDescriptor) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return draw(st.text("aé…", max_size=3)) * draw(st.sampled_from([1, 1, 8, 40]))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return draw(st.binary(max_size=3)) * draw(st.sampled_from([1, 1, 8, 40]))
    return draw(_INTEGERS[field.cpp_type])


def _fill(draw: st.DrawFn, message: Any, depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
        inside = field.message_type
        if not draw(st.booleans()) or (inside is not None and depth == 0):
            continue
        count = draw(st.integers(1, 6)) if field.is_repeated else 1
        for _ in range(count):
            _set(draw, message, field, depth)
    if draw(st.integers(0, 5)) == 0:
        message.MergeFromString(draw(_UNKNOWN))


def _set(draw: st.DrawFn, message: Any, field: FieldDescriptor, depth: int) -> None:
    value = getattr(message, field.name)
    inside = field.message_type
    if inside is not None and inside.GetOptions().map_entry:
        key, of = _scalar(draw, inside.fields_by_name["key"]), inside.fields_by_name["value"]
        if of.message_type is None:
            value[key] = _scalar(draw, of)
        else:
            _fill(draw, value[key], depth - 1)
    elif inside is not None:
        target = value.add() if field.is_repeated else value
        if not field.is_repeated:
            target.SetInParent()
        _fill(draw, target, depth - 1)
    elif field.is_repeated:
        value.append(_scalar(draw, field))
    else:
        setattr(message, field.name, _scalar(draw, field))


@st.composite
def messages(draw: st.DrawFn) -> Message:
    message = draw(message_types())()
    _fill(draw, message, 2)
    return message


@st.composite
def policies(draw: st.DrawFn) -> SplitPolicy:
    smallest = draw(st.integers(1, 100))
    return SplitPolicy(smallest, draw(st.integers(smallest, 300)))


def wire(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


relaxed = settings(max_examples=50, suppress_health_check=list(HealthCheck))


@given(messages(), policies())
@relaxed
def test_merging_gives_the_message_back_and_splitting_left_it_alone(message: Message, policy: SplitPolicy) -> None:
    before = wire(message)
    chunks, chunked = AutoSplitter(message, policy=policy).split()
    merged = type(message)()
    Merger.merge(chunks, chunked, merged)
    assert wire(merged) == before
    assert wire(message) == before
    assert tensorflow_readable(chunked, descriptor_of(message)) == []


@given(messages())
@relaxed
def test_sizes_are_those_of_the_runtime(message: Message) -> None:
    assert message_size(message) == message.ByteSize()


@given(messages(), policies())
@relaxed
def test_chunks_have_the_sizes_of_the_plan_and_only_what_cannot_be_cut_is_too_large(
    message: Message, policy: SplitPolicy
) -> None:
    splitter = AutoSplitter(message, policy=policy)
    chunks, _ = splitter.split()
    plan = splitter.plan()
    planned = [plan.size, *_sizes(plan.entries)]
    sizes = [len(chunk) if isinstance(chunk, bytes) else chunk.ByteSize() for chunk in chunks]
    assert sorted(sizes) == sorted(planned)
    for chunk, size in zip(chunks, sizes, strict=True):
        if isinstance(chunk, Message) and size > policy.max_chunk:
            assert all(_indivisible(each, value) for each, value in present(chunk)), chunk


def _sizes(entries: tuple[Entry, ...]) -> list[int]:
    return [size for entry in entries for size in (entry.size, *_sizes(entry.inside))]


def _indivisible(each: Any, value: Any) -> bool:
    """Return True for a field that cannot be split, such as a number, or a list of a single element."""
    if each.type == F.TYPE_GROUP and not each.repeated:
        return True
    return len(value) <= 1 if each.repeated else not each.message and (not each.text or len(value) <= 1)


@given(messages(), policies())
@relaxed
def test_an_edited_copy_takes_the_same_cuts(message: Message, policy: SplitPolicy) -> None:
    """A splitter whose copy was requested cuts that copy up instead of listing omissions."""
    plain, edited = AutoSplitter(message, policy=policy), AutoSplitter(message, policy=policy)
    assert wire(edited._proto) == wire(message)
    expected, _ = plain.split()
    merged = type(message)()
    chunks, chunked = edited.split()
    assert len(chunks) == len(expected)
    Merger.merge(chunks, chunked, merged)
    assert wire(merged) == wire(message)


# Edges of splits: the exact sizes at which a message is too large, and a key too far.

EDGES_KEYS: dict[str, tuple[Any, int, int]] = {
    "int32": (F.TYPE_INT32, -(1 << 31), (1 << 31) - 1),
    "sint64": (F.TYPE_SINT64, -(1 << 63), (1 << 63) - 1),
    "fixed32": (F.TYPE_FIXED32, 0, (1 << 32) - 1),
    "uint64": (F.TYPE_UINT64, 0, (1 << 64) - 1),
}


def _graph() -> Any:
    graph: Any = schema.bundled().message_class("tensorflow.GraphDef")()
    for number in range(10):
        graph.node.add(name=f"node {number}", op="Const")
    return graph


def _chunks(max_chunk: int) -> int:
    policy = SplitPolicy(min_chunk=min(1000, max_chunk), max_chunk=max_chunk)
    return len(AutoSplitter(_graph(), policy=policy).split()[0])


def test_what_has_just_the_size_allowed_stays_whole() -> None:
    size = _graph().ByteSize()
    assert _chunks(size) == 1
    assert _chunks(size - 1) > 1


class Failing(ComposableSplitter):
    """A splitter that adds a chunk, and fails the first time."""

    fails = True

    def build_chunks(self) -> None:
        self.add_chunk(b"x", ["node", 0, "op"])
        if self.fails:
            self.fails = False
            raise OSError("away")


def test_chunks_are_not_added_twice_after_an_error(tmp_path: Path) -> None:
    splitter = Failing(_graph())
    with pytest.raises(OSError, match="away"):
        splitter.split()
    for again in (splitter.split, lambda: splitter.write(tmp_path / "graph")):
        with pytest.raises(InvalidInput, match="with a new splitter"):
            again()
    assert not list(tmp_path.iterdir())
    splitter = Failing(_graph())
    splitter.fails = False
    assert len(splitter.split()[0]) == len(splitter.split()[0]) == 2


class Meeting(ComposableSplitter):
    """A splitter that adds a chunk at the same time as another thread."""

    barrier = threading.Barrier(2)

    def build_chunks(self) -> None:
        self.add_chunk(bytes(1 << 20), ["node", 0, "op"])
        self.barrier.wait(60)


def test_threads_that_write_one_prefix_do_not_share_a_file(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: Meeting(_graph()).write(tmp_path / "graph"), range(2)))
    assert [each.name for each in tmp_path.iterdir()] == ["graph.cpb"]


def _mapped(kind: Any) -> Any:
    """Return a new message with a map `m` from keys of that kind to strings."""
    file = descriptor_pb2.FileDescriptorProto(name="k.proto", package="k", syntax="proto3")
    message = file.message_type.add(name="M")
    entry = message.nested_type.add(name="MEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=F.LABEL_OPTIONAL, type=kind)
    entry.field.add(name="value", number=2, label=F.LABEL_OPTIONAL, type=F.TYPE_STRING)
    message.field.add(name="m", number=1, label=F.LABEL_REPEATED, type=F.TYPE_MESSAGE, type_name=".k.M.MEntry")
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("k.M"))()


@pytest.mark.parametrize("name", EDGES_KEYS)
def test_keys_have_the_range_of_their_type(name: str) -> None:
    kind, least, most = EDGES_KEYS[name]
    for key in (least, most):
        ComposableSplitter(_mapped(kind)).add_chunk(b"", ["m", key])
    for key in (least - 1, most + 1):
        with pytest.raises(InvalidInput, match="not a key of this map"):
            ComposableSplitter(_mapped(kind)).add_chunk(b"", ["m", key])


# Warnings about chunks that TensorFlow's Merger could not read.

GRAPH = schema.bundled().descriptor("tensorflow.GraphDef")
FUNCTION = schema.bundled().descriptor("tensorflow.FunctionDef")
OP = schema.bundled().descriptor("paddle.framework.proto.OpDesc")


def field(tags: list[Any], chunk: int | None = 0, below: list[Any] | None = None) -> Any:
    message = chunked_message()
    added = message.chunked_fields.add()
    for tag in tags:
        index = added.field_tag.add()
        if isinstance(tag, int):
            index.field = tag
        elif tag[0] == "index":
            index.index = tag[1]
        else:
            setattr(index.map_key, *tag)
    if chunk is not None:
        added.message.chunk_index = chunk
    if below is not None:
        added.message.chunked_fields.add().field_tag.add().field = below[0]
    return message


NODE: list[Any] = [1, ("index", 0)]
CASES: list[tuple[Any, list[Any], str]] = [
    (GRAPH, [99], "the message: the field tags do not match any field"),
    (GRAPH, [*NODE, ("index", 0)], "node[0]: the field tags do not match any field"),
    (GRAPH, [1], "node: TensorFlow crashes on a repeated message field whose tags have no index"),
    (GRAPH, [2, ("index", 0)], "library: TensorFlow crashes on an index or key of a singular field"),
    (GRAPH, [*NODE, 5], "node[0].attr: TensorFlow crashes on a map field whose tags have no key"),
    (GRAPH, [*NODE, 5, ("i64", 1)], "node[0].attr[1]: the key's type is not that of the map"),
    (GRAPH, [*NODE, 3], "node[0].input: TensorFlow crashes on repeated elements that are not messages"),
    (GRAPH, [3], "version: TensorFlow reads the chunk of a number as text, and crashes if the number is out of range"),
    (FUNCTION, [4, ("s", "r")], 'ret["r"]: TensorFlow crashes on a map value that is not a message'),
    (OP, [3], "type: TensorFlow does not parse a chunk that lacks a required field"),
    (OP, [], "the message: TensorFlow cannot parse a part of a message type with required fields"),
]


@pytest.mark.parametrize(("descriptor", "tags", "reason"), CASES, ids=[case[2] for case in CASES])
def test_reasons(descriptor: Any, tags: list[Any], reason: str) -> None:
    assert tensorflow_readable(field(tags), descriptor) == [reason]


def test_chunks_have_to_be_there() -> None:
    metadata = chunk_metadata()
    metadata.version.join_version = 1
    metadata.chunks.add(size=1 << 31)
    metadata.message.MergeFrom(field([2], 1))
    assert tensorflow_readable(metadata, GRAPH) == [
        "join_version is 1, where TensorFlow writes 0",
        "chunk 0 has 2147483648 bytes, over 2147483647",
        "library: chunk 1 does not exist",
    ]


def test_parts_without_chunks() -> None:
    assert tensorflow_readable(field([], None), GRAPH) == [
        "the message: this part names no chunk, so TensorFlow would read chunk 0"
    ]
    assert tensorflow_readable(field([], 0, [2]), GRAPH) == [
        "the message: TensorFlow ignores chunks nested in a part that has no field tag"
    ]
    text = field([*NODE, 1], None)
    assert tensorflow_readable(text, GRAPH) == [
        "node[0].name: this value names no chunk, so TensorFlow would read chunk 0"
    ]


def test_order_below_map_keys_is_not_certain() -> None:
    value = [*NODE, 5, ("s", "value")]
    both = field(value)
    both.MergeFrom(field([*value, 8], 1))
    assert tensorflow_readable(both, GRAPH) == [
        'node[0].attr["value"].tensor: this chunk is below a map key, and TensorFlow may merge it before the chunk '
        "that contains it"
    ]
