"""The Merger case by case: as TensorFlow's where that one works, else an error that names the place."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

from protoslice.errors import InconsistentChunks, LimitExceeded
from protoslice.merging import Merger, merge_order
from protoslice.splitting.paths import chunked_message

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
    ([SUBS, at(1)], 0, "elements before this one are missing", "subs[1]"),
    ([SUBS, at(1 << 63)], 0, "elements before this one are missing", "subs[9223372036854775808]"),
    ([SUBS], 0, "chunk metadata gives no index", "subs"),
    ([SUBS, ("s", "k")], 0, "chunk metadata gives no index", "subs"),
    ([STRS, at(2)], 0, "elements before this one are missing", "strs[2]"),
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
