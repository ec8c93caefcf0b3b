"""The Merger case by case: where TensorFlow's works, the result is equal, else an error names the place.

The tests also cover files that TensorFlow wrote, and files that contradict their metadata.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from tests.support.golden import CHUNKED

from protoslice import schema
from protoslice.errors import CorruptModel, InconsistentChunks, LimitExceeded, ProtosliceError, Unsupported
from protoslice.merging import Merger, merge_order, open_chunks
from protoslice.riegeli import RecordWriter
from protoslice.splitting import AutoSplitter, GraphDefSplitter, SavedModelSplitter, SplitPolicy, tensorflow_readable
from protoslice.splitting.paths import chunk_metadata, chunked_message

F = descriptor_pb2.FieldDescriptorProto
TYPES: dict[str, Any] = {
    "bytes": F.TYPE_BYTES, "str": F.TYPE_STRING, "i32": F.TYPE_INT32, "i64": F.TYPE_INT64, "u32": F.TYPE_UINT32,
    "u64": F.TYPE_UINT64, "flt": F.TYPE_FLOAT, "dbl": F.TYPE_DOUBLE, "bool": F.TYPE_BOOL, "enum": F.TYPE_ENUM,
    "sub": F.TYPE_MESSAGE,
}  # fmt: skip
NUMBERS = {name: number for number, name in enumerate(TYPES, 1)}
SUBS, STRS, INTS = 20, 21, 22
MAPS: dict[str, Any] = {"s": F.TYPE_STRING, "boolean": F.TYPE_BOOL, "ui32": F.TYPE_UINT32, "ui64": F.TYPE_UINT64} | {
    "i32": F.TYPE_INT32,
    "i64": F.TYPE_INT64,
}
MAP_NUMBERS = {kind: number for number, kind in enumerate(MAPS, 30)}
FLOATS, BLOBS, FLAGS = 40, 41, 42


def _typed(field: F, kind: Any) -> None:
    field.type = kind
    if kind == F.TYPE_ENUM:
        field.type_name = ".t.Color"
    elif kind == F.TYPE_MESSAGE:
        field.type_name = ".t.M"


def _map(message: descriptor_pb2.DescriptorProto, name: str, number: int, key: Any, value: Any) -> None:
    camel = "".join(part.title() for part in name.split("_"))
    entry = message.nested_type.add(name=f"{camel}Entry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=F.LABEL_OPTIONAL, type=key)
    _typed(entry.field.add(name="value", number=2, label=F.LABEL_OPTIONAL), value)
    type_name = f".t.M.{camel}Entry"
    message.field.add(name=name, number=number, label=F.LABEL_REPEATED, type=F.TYPE_MESSAGE, type_name=type_name)


def _make() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
    color = file.enum_type.add(name="Color")
    color.value.add(name="RED", number=0)
    color.value.add(name="GREEN", number=1)
    message = file.message_type.add(name="M")
    for name, kind in TYPES.items():
        _typed(message.field.add(name=name, number=NUMBERS[name], label=F.LABEL_OPTIONAL), kind)
    for name, number, kind in (
        ("subs", SUBS, F.TYPE_MESSAGE),
        ("strs", STRS, F.TYPE_STRING),
        ("ints", INTS, F.TYPE_INT32),
    ):
        _typed(message.field.add(name=name, number=number, label=F.LABEL_REPEATED), kind)
    for kind, key in MAPS.items():
        _map(message, f"by_{kind}", MAP_NUMBERS[kind], key, F.TYPE_MESSAGE)
    _map(message, "floats", FLOATS, F.TYPE_STRING, F.TYPE_FLOAT)
    _map(message, "blobs", BLOBS, F.TYPE_STRING, F.TYPE_BYTES)
    _map(message, "flags", FLAGS, F.TYPE_STRING, F.TYPE_BOOL)
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.M"))


M = _make()
Tag = int | tuple[str, Any]


def fill(message: Any, chunk: int | None, fields: Any = ()) -> Any:
    """Fill `message`; `fields` are (tags, chunk) or (tags, chunk, fields).

    A tag is a field number, ("index", i), or a map key as (kind, key).
    """
    if chunk is not None:
        message.chunk_index = chunk
    for tags, number, *below in fields:
        added = message.chunked_fields.add()
        for tag in tags:
            index = added.field_tag.add()
            if isinstance(tag, int):
                index.field = tag
            elif tag[0] == "index":
                index.index = tag[1]
            elif tag[0] == "nothing":
                index.SetInParent()
            else:
                setattr(index.map_key, *tag)
        fill(added.message, number, *below)
    return message


def merged(chunks: list[Any], chunk: int | None, *fields: Any, into: Any = None) -> Any:
    target = M() if into is None else into
    Merger.merge(chunks, fill(chunked_message(), chunk, fields), target)
    return target


def one(name: str, text: bytes) -> Any:
    return merged([text], None, ([NUMBERS[name]], 0))


def at(index: int) -> tuple[str, int]:
    return ("index", index)


def test_a_part_of_the_message_itself_is_appended() -> None:
    assert list(merged([M(ints=[1]), M(ints=[2, 3]).SerializeToString()], 0, ([], 1)).ints) == [1, 2, 3]


def test_singular_messages_are_merged_and_their_parents_made() -> None:
    assert merged([M(sub=M(i32=1)), M(i64=2)], 0, ([11], 1)).sub == M(i32=1, i64=2)
    assert merged([M(i64=2)], None, ([11, 11, 11], 0)) == M(sub=M(sub=M(sub=M(i64=2))))


def test_a_message_without_a_chunk_is_there_all_the_same() -> None:
    assert merged([], None, ([11], None)).HasField("sub")
    assert merged([b"x"], None, ([11], None, [([1], 0)])).sub.bytes == b"x"


def test_bytes_and_strings_are_set_and_not_appended() -> None:
    assert merged([b"one", b"two"], None, ([1], 0), ([1], 1)).bytes == b"two"
    assert one("str", "é".encode()).str == "é"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("i32", b"-12", -12), ("i32", b" 12abc", 12), ("u32", b"4294967295", 4294967295),
        ("i64", b"-9223372036854775808", -(1 << 63)),
        ("u64", b"18446744073709551615", (1 << 64) - 1), ("flt", b"1.5", 1.5), ("dbl", b"\t-2e3x", -2000.0),
        ("dbl", b"0x1p-1", 0.5),
        ("dbl", b"inf", float("inf")), ("bool", b"true", True), ("bool", b"false", False), ("enum", b"GREEN", 1),
    ],
)  # fmt: skip
def test_numbers_are_text(name: str, text: bytes, value: object) -> None:
    assert getattr(one(name, text), name) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("i32", b""), ("i32", b"\x01\x00\x00\x00"), ("i32", b"4294967296"), ("u32", b"-1"), ("i64", b"x"),
        ("flt", b"."), ("flt", b"1e39"),
        ("dbl", b"1e400"), ("bool", b"1"), ("bool", b"True"), ("enum", b"1"), ("enum", b"BLUE"),
        ("str", b"\xff"), ("i32", b"1" * 5000),
    ],
)  # fmt: skip
def test_what_is_no_value_is_an_error_with_chunk_and_place(name: str, text: bytes) -> None:
    with pytest.raises(InconsistentChunks, match="Chunk 0 does not hold the field's value") as caught:
        one(name, text)
    assert caught.value.path == name


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("i32", -(1 << 31), (1 << 31) - 1),
        ("i64", -(1 << 63), (1 << 63) - 1),
        ("u32", 0, (1 << 32) - 1),
        ("u64", 0, (1 << 64) - 1),
    ],
)
def test_whole_numbers_have_the_range_of_their_type(name: str, least: int, most: int) -> None:
    for number in (least, most):
        assert getattr(one(name, b"%d" % number), name) == number
    for number in (least - 1, most + 1):
        with pytest.raises(InconsistentChunks, match="out of range"):
            one(name, b"%d" % number)


def test_elements_are_merged_into_or_added_at_the_end() -> None:
    base = M(subs=[M(i32=1)])
    done = merged([base, M(i64=2), M(i64=3)], 0, ([SUBS, at(0)], 1), ([SUBS, at(1)], 2))
    assert list(done.subs) == [M(i32=1, i64=2), M(i64=3)]


def test_elements_that_are_no_messages_are_set_or_added() -> None:
    done = merged([b"a", b"b", b"7"], None, ([STRS], 0), ([STRS, at(1)], 1), ([STRS, at(0)], 1), ([INTS], 2))
    assert (list(done.strs), list(done.ints)) == (["b", "b"], [7])


KEYS = [
    ("s", "k"),
    ("boolean", True),
    ("ui32", (1 << 32) - 1),
    ("ui64", (1 << 64) - 1),
    ("i32", -5),
    ("i64", -(1 << 63)),
]


@pytest.mark.parametrize("key", KEYS, ids=[kind for kind, _ in KEYS])
def test_map_values_that_are_messages_are_merged_or_added(key: tuple[str, Any]) -> None:
    field = MAP_NUMBERS[key[0]]
    done = merged([M(i32=1), M(i64=2)], None, ([field, key], 0), ([field, key], 1))
    assert dict(getattr(done, f"by_{key[0]}")) == {key[1]: M(i32=1, i64=2)}


@pytest.mark.parametrize(
    ("kind", "key", "becomes"),
    [("s", ("i64", 5), "5"), ("ui32", ("s", "12"), 12), ("i32", ("boolean", True), 1), ("boolean", ("i32", 3), True)],
)
def test_map_keys_of_another_kind_are_converted(kind: str, key: tuple[str, Any], becomes: object) -> None:
    assert list(getattr(merged([M()], None, ([MAP_NUMBERS[kind], key], 0)), f"by_{kind}")) == [becomes]


def test_map_values_that_are_no_messages_are_set() -> None:
    fields = [([FLOATS, ("s", "lr")], 0), ([BLOBS, ("s", "b")], 1), ([FLAGS, ("s", "on")], 2)]
    done = merged([b"0.25", b"\xff\x00", b"True"], None, *fields)
    assert done == M(floats={"lr": 0.25}, blobs={"b": b"\xff\x00"}, flags={"on": True})


BROKEN: list[tuple[list[Tag], int | None, str, str]] = [
    ([SUBS, at(1)], 0, "but the list has only", "subs[1]"),
    ([SUBS, at(1 << 63)], 0, "but the list has only", "subs[9223372036854775808]"),
    ([SUBS], 0, "chunk metadata gives no index", "subs"),
    ([SUBS, ("s", "k")], 0, "chunk metadata gives no index", "subs"),
    ([STRS, at(2)], 0, "but the list has only", "strs[2]"),
    ([MAP_NUMBERS["s"]], 0, "chunk metadata gives no key", "by_s"),
    ([MAP_NUMBERS["s"], at(0)], 0, "chunk metadata gives no key", "by_s"),
    ([MAP_NUMBERS["ui32"], ("s", "abc")], 0, "not a key of this map", "by_ui32"),
    ([MAP_NUMBERS["ui32"], ("i32", -1)], 0, "out of range", "by_ui32"),
    ([11, at(0)], 0, "neither repeated nor a map", "sub"),
    ([11, 99], 0, "t.M has no field 99", "sub"),
    ([at(0)], 0, "where a field is expected", "the root message"),
    ([("s", "k")], 0, "where a field is expected", "the root message"),
    ([("nothing", None)], 0, "where a field is expected", "the root message"),
    ([1, 1], 0, "no fields to merge into", "bytes"),
    ([3, at(0)], 0, "neither repeated nor a map", "i32"),
    ([1], None, "o chunk has the field's value", "bytes"),
    ([], None, "neither a chunk nor chunked fields", "the root message"),
    ([11], 1, "has only 1 chunks", "sub"),
    ([11], (1 << 64) - 1, "has only 1 chunks", "sub"),
    ([MAP_NUMBERS["s"], ("s", 'a"b'), 11], 0, "Chunk 0 is not a t.M", 'by_s["a\\"b"].sub'),
    ([], 0, "Chunk 0 is not a t.M", "the root message"),
]


@pytest.mark.parametrize(("tags", "chunk", "message", "path"), BROKEN, ids=[f"{case[3]}: {case[2]}" for case in BROKEN])
def test_where_tensorflow_stops_the_process_there_is_an_error(
    tags: list[Tag], chunk: int | None, message: str, path: str
) -> None:
    into = M(i32=5, ints=[1])
    with pytest.raises(InconsistentChunks) as caught:
        merged([b"\xff\xff"], None, (tags, chunk), into=into)
    assert message in caught.value.message
    assert caught.value.path == path
    assert into == M(i32=5, ints=[1])


def test_after_an_error_the_message_is_as_it_was() -> None:
    into = M()
    with pytest.raises(InconsistentChunks):
        merged([M(i32=1), b"\xff"], 0, ([], 1), into=into)
    assert into == M()
    into.i32 = 7
    with pytest.raises(InconsistentChunks):
        merged([M(i32=1), b"\xff"], 0, ([], 1), into=into)
    assert into == M(i32=7)


def test_a_chunk_of_another_type_is_an_error() -> None:
    with pytest.raises(InconsistentChunks, match=r"is a .* instead of a t\.M"):
        merged([descriptor_pb2.FileDescriptorProto()], 0)
    with pytest.raises(InconsistentChunks, match="Chunk 0 is a message"):
        merged([M()], None, ([1], 0))


def test_a_message_of_the_same_type_from_another_pool_will_do() -> None:
    assert merged([_make()(i32=3)], 0) == M(i32=3)


def test_one_chunk_may_be_used_many_times() -> None:
    assert merged([M(ints=[1])], 0, ([], 0), ([11], 0)) == M(ints=[1, 1], sub=M(ints=[1]))


def nested(levels: int) -> Any:
    message: Any = chunked_message()
    top = message
    for _ in range(levels):
        field = message.chunked_fields.add()
        field.field_tag.add().field = 11
        message = field.message
    message.chunk_index = 0
    return top


def test_nesting_is_limited() -> None:
    with pytest.raises(LimitExceeded, match="more than 20 levels deep"):
        Merger.merge([M()], nested(21), M(), depth=20)
    deep = chunked_message()
    fill(deep, None, [([11] * 5000, 0)])
    with pytest.raises(LimitExceeded, match="more than 100 levels deep"):
        Merger.merge([M()], deep, M())


def order(*fields: Any) -> list[int]:
    return [each.message.chunk_index for each in merge_order(fill(chunked_message(), None, fields).chunked_fields)]


def test_files_are_merged_in_a_total_order() -> None:
    key = ("s", "k")
    assert order(([2], 0), ([1], 1), ([], 3), ([], 2)) == [2, 3, 1, 0]
    assert order(([SUBS, at(10)], 0), ([SUBS, at(9)], 1), ([SUBS, at(9), 1], 2)) == [1, 2, 0]
    assert order(([30, key, 11], 0), ([30, ("s", "a"), 3], 1), ([30, key], 2)) == [1, 2, 0]
    assert order(([1], 5), ([1], 4), ([1], 5)) == [4, 5, 5]
    with pytest.raises(InconsistentChunks, match="tags of different kinds"):
        order(([1, at(0)], 0), ([1, key], 1))


def test_what_is_in_memory_is_merged_as_listed() -> None:
    assert list(merged([M(ints=[1]), M(ints=[2])], None, ([], 1), ([], 0)).ints) == [2, 1]


def graph() -> Any:
    return schema.bundled().message_class("tensorflow.GraphDef")()


def metadata(size: int, offset: int) -> Any:
    found = chunk_metadata()
    found.chunks.add(size=size, offset=offset)
    found.message.chunk_index = 0
    return found


def write(folder: Path, *records: bytes) -> Path:
    with RecordWriter(folder / "x.cpb", options="uncompressed") as writer:
        writer.write_records(records)
    return folder / "x"


@pytest.mark.parametrize(
    ("size", "offset", "reason"),
    [
        (6, 64, "should have 6 bytes, but its record has 5"),
        (5, 63, "no record starts there"),
        (5, 1 << 40, "no record starts there"),
        (5, (1 << 64) - 1, "no record starts there"),
    ],
)
def test_chunks_that_are_not_where_they_should_be(size: int, offset: int, reason: str, tmp_path: Path) -> None:
    prefix, message = write(tmp_path, b"\x0a\x03\x0a\x01x", metadata(size, offset).SerializeToString()), graph()
    with pytest.raises(InconsistentChunks, match=reason) as caught:
        Merger.read(prefix, message)
    assert caught.value.path == "the root message"
    assert message == graph()


@pytest.mark.parametrize("size", [0, 5])
def test_a_size_may_be_left_out(size: int, tmp_path: Path) -> None:
    message = graph()
    Merger.read(write(tmp_path, b"\x0a\x03\x0a\x01x", metadata(size, 64).SerializeToString()), message)
    assert message.node[0].name == "x"


def test_files_without_metadata(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="without records"):
        Merger.read(write(tmp_path), graph())
    with pytest.raises(Unsupported, match=r"the last record is not a ChunkMetadata"):
        Merger.read(write(tmp_path, b"\xff"), graph())
    (tmp_path / "y.pb").write_bytes(b"\xff")
    with pytest.raises(CorruptModel, match=r"y\.pb is not a tensorflow\.GraphDef"):
        Merger.read(tmp_path / "y", graph())


def test_damaged_files_give_errors_and_leave_the_message_alone(tmp_path: Path) -> None:
    data = (CHUNKED / "graph_many_nodes.max20000.cpb").read_bytes()
    rng = random.Random(7)
    failed = 0
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        (tmp_path / "x.cpb").write_bytes(damaged[: rng.randrange(len(data))] if rng.random() < 0.2 else damaged)
        message = graph()
        try:
            Merger.read(tmp_path / "x", message)
        except ProtosliceError:
            failed += 1
            assert message == graph()
    assert failed > 100


def test_damaged_metadata_gives_errors_and_leaves_the_message_alone() -> None:
    chunks = [graph(), b"text", graph()]
    rng = random.Random(8)
    seeds = [bytes.fromhex(text) for text in (
        "08001208 0a020801 1a020801",
        "0800120a 0a020801 0a021800 1a020800",
        "08001216 0a020801 0a021800 0a020805 0a071205 0a0376616c 1a020801",
    )]  # fmt: skip
    for _ in range(2000):
        damaged = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        message, found = graph(), chunk_metadata().message
        try:
            found.MergeFromString(bytes(damaged))
        except DecodeError:
            continue
        try:
            Merger.merge(chunks, found, message)
        except ProtosliceError:
            assert message == graph()


# Files that TensorFlow wrote: read, merged, and split again.

CASES = json.loads((CHUNKED / "expected.json").read_text())
ROOTS = {"graphdef": "tensorflow.GraphDef", "savedmodel": "tensorflow.SavedModel"}

each_case = pytest.mark.parametrize("case", CASES, ids=[case["file"] for case in CASES])


def new(case: dict[str, Any]) -> Any:
    kind = "graphdef" if case["kind"] == "graphdef" else "savedmodel"
    return schema.bundled().message_class(ROOTS[kind])()


def original(case: dict[str, Any]) -> Any:
    message = new(case)
    message.MergeFromString((CHUNKED / case["original"]).read_bytes())
    return message


def as_noted(message: Any, note: str | None) -> Any:
    """Return the original with the differences that the note in `expected.json` lists."""
    if note and "empty GraphDef.library" in note:
        message.library.SetInParent()
    if note and "float_val constants come back as tensor_content" in note:
        for node in message.node:
            tensor = node.attr["value"].tensor
            if node.op == "Const" and len(tensor.float_val) > 100:
                tensor.tensor_content = struct.pack(f"<{len(tensor.float_val)}f", *tensor.float_val)
                del tensor.float_val[:]
    return message


@each_case
def test_merging_gives_the_original_but_for_what_is_noted(case: dict[str, Any]) -> None:
    message = new(case)
    Merger.read(CHUNKED / case["file"].removesuffix(".cpb"), message)
    assert message == as_noted(original(case), case["merge_note"])


def tags(field: Any) -> list[list[Any]]:
    found = []
    for tag in field.field_tag:
        if tag.WhichOneof("kind") == "map_key":
            name = tag.map_key.WhichOneof("type")
            number = tag.map_key.DESCRIPTOR.fields_by_name[name].number
            found.append(["map_key", number, getattr(tag.map_key, name)])
        else:
            found.append([tag.WhichOneof("kind"), getattr(tag, tag.WhichOneof("kind"))])
    return found


def tree(message: Any) -> dict[str, Any]:
    index = message.chunk_index if message.HasField("chunk_index") else None
    return {
        "chunk_index": index,
        "fields": [{"tag": tags(field), "message": tree(field.message)} for field in message.chunked_fields],
    }


@each_case
def test_the_metadata_and_the_chunks_are_those_of_the_manifest(case: dict[str, Any]) -> None:
    with open_chunks(str(CHUNKED / case["file"])) as (chunks, metadata):
        kinds = {1: "MESSAGE", 2: "BYTES"}
        infos = [{"type": kinds[each.type], "size": each.size, "offset": each.offset} for each in metadata.chunks]
        assert infos == case["metadata"]["chunks"]
        assert tree(metadata.message) == case["metadata"]["message"]
        digests = [hashlib.sha256(chunk).hexdigest() for chunk in chunks]
        assert digests == [record["sha256"] for record in case["records"][:-1]]
        assert tensorflow_readable(metadata, new(case).DESCRIPTOR) == []


@each_case
@pytest.mark.parametrize("options", ["", "uncompressed", "zstd:3", "transpose"])
def test_what_is_written_anew_is_read_back(case: dict[str, Any], options: str, tmp_path: Path) -> None:
    message, merged = original(case), new(case)
    splitter = GraphDefSplitter if case["kind"] == "graphdef" else SavedModelSplitter
    policy = SplitPolicy.greedy(case["max_size"])
    assert splitter(message, policy=policy).write(tmp_path / "x", options) == str(tmp_path / "x.cpb")
    Merger.read(tmp_path / "x", merged)
    assert merged == message
    assert [path.name for path in tmp_path.iterdir()] == ["x.cpb"]


@each_case
def test_splitting_by_itself_gives_small_chunks_that_merge(case: dict[str, Any]) -> None:
    message, merged = original(case), new(case)
    chunks, chunked = AutoSplitter(message, policy=SplitPolicy(200, 2000)).split()
    assert max(chunk.ByteSize() for chunk in chunks if not isinstance(chunk, bytes)) <= 2000
    assert tensorflow_readable(chunked, message.DESCRIPTOR) == []
    Merger.merge(chunks, chunked, merged)
    assert merged == message
    assert message == original(case)
