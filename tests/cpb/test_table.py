"""Reading chunked protos case by case: as TensorFlow's Merger where that works, an error with the place where not."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.text_format import Parse

import protoslice
from protoslice import _core
from protoslice.errors import CorruptModel, InconsistentChunks, LimitExceeded
from protoslice.merging import Merger
from protoslice.riegeli import RecordWriter
from protoslice.schema import bundled, from_descriptor_set

METADATA = bundled().message_class("tensorflow.proto_splitter.ChunkMetadata")

_KEYS = {"s": "STRING", "boolean": "BOOL", "ui32": "UINT32", "ui64": "UINT64", "i32": "INT32", "i64": "INT64"}
_VALUES = {"floats": "TYPE_FLOAT", "blobs": "TYPE_BYTES", "flags": "TYPE_BOOL", "names": "TYPE_STRING"}


def _map(name: str, number: int, key: str, value: str) -> str:
    entry = f"{name.replace('_', ' ').title().replace(' ', '')}Entry"
    return f"""
    field {{ name: "{name}" number: {number} type: TYPE_MESSAGE type_name: ".t.M.{entry}" label: LABEL_REPEATED }}
    nested_type {{
      name: "{entry}" options {{ map_entry: true }}
      field {{ name: "key" number: 1 type: TYPE_{key} label: LABEL_OPTIONAL }}
      field {{ name: "value" number: 2 {value} label: LABEL_OPTIONAL }}
    }}"""


_MAPS = [
    _map(f"by_{kind}", at, key, 'type: TYPE_MESSAGE type_name: ".t.M"')
    for at, (kind, key) in enumerate(_KEYS.items(), 30)
]
_MAPS += [_map(name, at, "STRING", f"type: {value}") for at, (name, value) in enumerate(_VALUES.items(), 40)]
_SINGULAR = (
    "bytes:BYTES str:STRING i32:INT32 i64:INT64 u32:UINT32 u64:UINT64 "
    "flt:FLOAT dbl:DOUBLE bool:BOOL s32:SINT32 fx64:FIXED64"
)
_FIELDS = [
    f'field {{ name: "{name}" number: {at} type: TYPE_{kind} label: LABEL_OPTIONAL }}'
    for at, (name, kind) in enumerate((each.split(":") for each in _SINGULAR.split()), 1)
]
_FILE = f"""
name: "t.proto" package: "t" syntax: "proto3"
enum_type {{ name: "Color" value {{ name: "RED" number: 0 }} value {{ name: "GREEN" number: 1 }} }}
message_type {{
  name: "M"
  {"".join(_FIELDS)}
  field {{ name: "enum" number: 15 type: TYPE_ENUM type_name: ".t.Color" label: LABEL_OPTIONAL }}
  field {{ name: "sub" number: 16 type: TYPE_MESSAGE type_name: ".t.M" label: LABEL_OPTIONAL }}
  field {{ name: "subs" number: 20 type: TYPE_MESSAGE type_name: ".t.M" label: LABEL_REPEATED }}
  field {{ name: "strs" number: 21 type: TYPE_STRING label: LABEL_REPEATED }}
  field {{ name: "ints" number: 22 type: TYPE_INT32 label: LABEL_REPEATED }}
  field {{ name: "left" number: 50 type: TYPE_MESSAGE type_name: ".t.M" label: LABEL_OPTIONAL oneof_index: 0 }}
  field {{ name: "right" number: 51 type: TYPE_MESSAGE type_name: ".t.M" label: LABEL_OPTIONAL oneof_index: 0 }}
  field {{ name: "text" number: 52 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }}
  oneof_decl {{ name: "one" }}
  {"".join(_MAPS)}
}}
"""
TYPES = from_descriptor_set(FileDescriptorSet(file=[Parse(_FILE, FileDescriptorProto())]))
M: Any = TYPES.message_class("t.M")
NUMBERS = {field.name: field.number for field in M.DESCRIPTOR.fields}

Tag = str | int | tuple[str, Any]
"""A field by name or number, or ("index", i), or the kind of a key and the key."""


def fill(message: Any, chunk: int | None, fields: Sequence[Any] = ()) -> Any:
    """`fields` are (tags, chunk) or (tags, chunk, fields)."""
    if chunk is not None:
        message.chunk_index = chunk
    for tags, number, *below in fields:
        added = message.chunked_fields.add()
        for tag in tags:
            put(added.field_tag.add(), tag)
        fill(added.message, number, *below)
    return message


def put(index: Any, tag: Tag) -> None:
    if isinstance(tag, tuple):
        kind, value = tag
        if kind == "index":
            index.index = value
        elif kind == "nothing":
            index.SetInParent()
        else:
            setattr(index.map_key, kind, value)
    else:
        index.field = NUMBERS[tag] if isinstance(tag, str) else tag


def file_of(chunks: Sequence[Any], metadata: Any, options: str = "") -> bytes:
    """A chunked file of `chunks`, whose places in the file are put into `metadata`."""
    out = io.BytesIO()
    with RecordWriter(out, options=options) as writer:
        for chunk in chunks:
            data = chunk if isinstance(chunk, bytes) else chunk.SerializeToString()
            writer.write_record(data)
            metadata.chunks.add(size=len(data), offset=writer.last_pos.numeric, type=1)
        writer.write_message(metadata)
    return out.getvalue()


def merged(chunks: Sequence[Any], chunk: int | None, *fields: Any, options: str = "") -> Any:
    metadata: Any = METADATA()
    fill(metadata.message, chunk, fields)
    with protoslice.open(file_of(chunks, metadata, options), "t.M", types=TYPES) as proto:
        return M.FromString(proto.rope.read())


def one(name: str, text: bytes) -> Any:
    return getattr(merged([text], None, ([name], 0)), name)


def at(index: int) -> tuple[str, int]:
    return ("index", index)


@pytest.mark.parametrize("options", ["", "uncompressed", "zstd", "snappy", "transpose", "uncompressed,chunk_size:1"])
def test_however_it_is_written(options: str) -> None:
    base = M(i32=1, subs=[M(str="a"), M()])
    got = merged([base, b"x" * 5000, M(i64=5)], 0, (["sub", "bytes"], 1), (["subs", at(1)], 2), options=options)
    assert got == M(i32=1, subs=[M(str="a"), M(i64=5)], sub=M(bytes=b"x" * 5000))


def test_an_empty_tag_appends() -> None:
    assert list(merged([M(ints=[1]), M(ints=[2, 3]), M(ints=[4])], 0, ([], 1), ([], 2)).ints) == [1, 2, 3, 4]


def test_empty_tags_come_first_and_in_the_order_of_their_chunks() -> None:
    chunks = [M(), M(str="extra"), M(subs=[M(i32=2)]), M(subs=[M(i32=1)])]
    got = merged(chunks, 0, (["subs", at(1)], 1), ([], 3), ([], 2))
    assert list(got.subs) == [M(i32=2), M(i32=1, str="extra")]


def test_singular_messages_are_merged_and_their_parents_made() -> None:
    assert merged([M(sub=M(i32=1)), M(i64=2)], 0, (["sub"], 1)).sub == M(i32=1, i64=2)
    assert merged([M(i64=2)], None, (["sub", "sub", "sub"], 0)) == M(sub=M(sub=M(sub=M(i64=2))))


def test_a_message_without_a_chunk_is_there_all_the_same() -> None:
    assert merged([b""], None, (["sub"], None)).HasField("sub")
    assert merged([b"x"], None, (["sub"], None, [(["bytes"], 0)])).sub.bytes == b"x"
    assert merged([b"x"], None, (["sub"], None, [(["sub", "bytes"], 0)])).sub.sub.bytes == b"x"


def test_bytes_and_strings_are_set_and_not_appended() -> None:
    assert merged([b"one", b"two"], None, (["bytes"], 0), (["bytes"], 1)).bytes == b"two"
    assert merged([M(bytes=b"base"), b"new"], 0, (["bytes"], 1)).bytes == b"new"
    assert one("str", "é".encode()) == "é"


@pytest.mark.parametrize(
    ("fields", "due"),
    [
        ([(["strs", at(0)], 1), (["strs", at(2)], 2), (["strs", at(3)], 3)], ["new", "b", "next", "last"]),
        ([(["strs"], 3), (["strs"], 1)], ["a", "b", "new", "last"]),
        ([(["strs"], 3), (["strs", at(2)], 1)], ["a", "b", "new"]),
    ],
)
def test_elements_that_are_text_are_set_or_appended(fields: list[Any], due: list[str], tmp_path: Path) -> None:
    chunks = [M(strs=["a", "b"], ints=[1]), b"new", b"next", b"last"]
    assert merged(chunks, 0, *fields) == M(strs=due, ints=[1])
    metadata: Any = METADATA()
    read = M()
    fill(metadata.message, 0, fields)
    (tmp_path / "m.cpb").write_bytes(file_of(chunks, metadata))
    Merger.read(tmp_path / "m", read)
    assert read == M(strs=due, ints=[1]), "as protoslice.merging has it"


def test_a_parent_comes_before_what_lies_below_it() -> None:
    got = merged([M(), b"child", M(sub=M(bytes=b"parent"))], 0, (["sub", "sub", "bytes"], 1), (["sub"], 2))
    assert got.sub.sub.bytes == b"child"


def test_what_has_the_same_place_is_merged_in_the_order_of_chunks() -> None:
    got = merged([M(), M(ints=[3]), M(ints=[1, 2])], 0, (["sub"], 2), (["sub"], 1))
    assert list(got.sub.ints) == [3, 1, 2]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("i32", b"-12", -12),
        ("i32", b" 12abc", 12),
        ("i32", b"+7", 7),
        ("u32", b"4294967295", 4294967295),
        ("s32", b"-5", -5),
        ("fx64", b"5", 5),
        ("i64", b"-9223372036854775808", -(1 << 63)),
        ("u64", b"18446744073709551615", (1 << 64) - 1),
        ("flt", b"1.5", 1.5),
        ("dbl", b"\t-2e3x", -2000.0),
        ("dbl", b"inf", float("inf")),
        ("bool", b"true", True),
        ("bool", b"false", False),
        ("enum", b"GREEN", 1),
    ],
)
def test_numbers_are_text(name: str, text: bytes, value: object) -> None:
    assert one(name, text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("i32", b""),
        ("i32", b"\x01\x00\x00\x00"),
        ("i32", b"4294967296"),
        ("u32", b"-1"),
        ("i64", b"x"),
        ("flt", b"."),
        ("bool", b"1"),
        ("bool", b"True"),
        ("enum", b"1"),
        ("enum", b"BLUE"),
        ("i32", b"1" * 5000),
    ],
)
def test_what_is_no_value_is_an_error_with_chunk_and_place(name: str, text: bytes) -> None:
    with pytest.raises(InconsistentChunks, match="chunk 0 ") as caught:
        one(name, text)
    assert caught.value.path == name


def test_elements_are_merged_into_or_added_at_the_end() -> None:
    base = M(subs=[M(i32=1)])
    got = merged([base, M(i64=2), M(i64=3)], 0, (["subs", at(0)], 1), (["subs", at(1)], 2))
    assert list(got.subs) == [M(i32=1, i64=2), M(i64=3)]
    assert list(merged([M(i32=5), M(i32=4)], None, (["subs", at(1)], 0), (["subs", at(0)], 1)).subs) == [
        M(i32=4),
        M(i32=5),
    ]


KEYS = [("s", "k"), ("boolean", True), ("ui32", 2**32 - 1), ("ui64", 2**64 - 1), ("i32", -5), ("i64", -(2**63))]
each_key = pytest.mark.parametrize("key", KEYS, ids=[kind for kind, _ in KEYS])


@each_key
def test_map_values_that_are_messages_are_merged_or_added(key: tuple[str, Any]) -> None:
    name = f"by_{key[0]}"
    got = merged([M(i32=1), M(i64=2)], None, ([name, key], 0), ([name, key], 1))
    assert dict(getattr(got, name)) == {key[1]: M(i32=1, i64=2)}
    base = M()
    getattr(base, name)[key[1]].str = "there"
    got = merged([base, M(i64=2)], 0, ([name, key], 1))
    assert dict(getattr(got, name)) == {key[1]: M(str="there", i64=2)}


@pytest.mark.parametrize(
    ("kind", "key", "becomes"),
    [
        ("s", ("i64", 5), "5"),
        ("ui32", ("s", "12"), 12),
        ("i32", ("boolean", True), 1),
        ("boolean", ("i32", 3), True),
        ("ui32", ("ui32", 3_000_000_000), 3_000_000_000),
    ],
)
def test_map_keys_of_another_kind_are_converted(kind: str, key: tuple[str, Any], becomes: object) -> None:
    assert list(getattr(merged([M()], None, ([f"by_{kind}", key], 0)), f"by_{kind}")) == [becomes]


def test_map_values_that_are_no_messages_are_set() -> None:
    fields = [(["floats", ("s", "lr")], 0), (["blobs", ("s", "b")], 1), (["flags", ("s", "on")], 2)]
    got = merged([b"0.25", b"\xff\x00", b"true", b"n"], None, *fields, (["names", ("s", "n")], 3))
    assert got == M(floats={"lr": 0.25}, blobs={"b": b"\xff\x00"}, flags={"on": True}, names={"n": "n"})
    assert merged([M(blobs={"b": b"old"}), b"new"], 0, (["blobs", ("s", "b")], 1)).blobs == {"b": b"new"}


def test_below_a_map_key_deeper_places_are_ordered_too() -> None:
    """TensorFlow's order says nothing of what lies below the same key; ours puts parents first there as well."""
    key = ("s", "k")
    got = merged([M(), M(bytes=b"parent"), b"child"], 0, (["by_s", key, "bytes"], 2), (["by_s", key], 1))
    assert got.by_s["k"].bytes == b"child"


def test_more_than_16_ties_keep_the_order_of_their_chunks() -> None:
    """Where TensorFlow's sort is unstable, ours is not: chunk numbers decide, whatever the order of the list."""
    numbers = list(range(1, 41))
    Random(3).shuffle(numbers)
    chunks = [M(), *(M(ints=[number]) for number in range(1, 41))]
    got = merged(chunks, 0, *[(["by_s", ("s", "k")], number) for number in numbers])
    assert list(got.by_s["k"].ints) == list(range(1, 41))
    got = merged(chunks, 0, *[([], number) for number in numbers])
    assert list(got.ints) == list(range(1, 41))


def test_another_member_of_a_oneof_takes_its_place() -> None:
    got = merged([M(left=M(i32=1)), M(i32=2)], 0, (["right"], 1))
    assert got == M(right=M(i32=2))
    assert merged([M(left=M(i32=1)), b"t"], 0, (["text"], 1)) == M(text="t")
    assert merged([M(text="t"), M(i32=2)], 0, (["left"], 1)) == M(left=M(i32=2))
    assert merged([M(left=M(i32=1)), M(i64=2)], 0, (["left"], 1)) == M(left=M(i32=1, i64=2))


def test_one_chunk_may_be_used_many_times() -> None:
    assert merged([M(ints=[1])], 0, ([], 0), (["sub"], 0)) == M(ints=[1, 1], sub=M(ints=[1]))


def test_neither_version_nor_size_nor_type_is_checked() -> None:
    metadata: Any = METADATA()
    fill(metadata.message, 0)
    metadata.version.join_version = 99
    metadata.version.bad_consumers.extend([0, 1, 2])
    out = io.BytesIO()
    with RecordWriter(out) as writer:
        writer.write_message(M(i32=1))
        metadata.chunks.add(size=12345, offset=writer.last_pos.numeric, type=2)
        writer.write_message(metadata)
    with protoslice.open(out.getvalue(), "t.M", types=TYPES) as proto:
        assert M.FromString(proto.rope.read()) == M(i32=1)


BROKEN: list[tuple[list[Tag], int | None, str, str]] = [
    (["subs", at(1)], 0, "would leave a gap", "subs[1]"),
    (["subs", at(1 << 63)], 0, "would leave a gap", "subs[9223372036854775808]"),
    (["subs"], 0, "no index tells which element", "subs"),
    (["subs", ("s", "k")], 0, "no index tells which element", "subs"),
    (["strs", at(1)], 0, "0 elements, so this one would leave a gap", "strs[1]"),
    (["strs", at(0), "str"], 0, "nothing can belong below it", "strs[0]"),
    (["strs"], None, "no chunk says what its value is", "strs"),
    (["ints", at(0)], 0, "but no numbers", "ints[0]"),
    (["ints"], 0, "but no numbers", "ints"),
    (["subs"], 0, "no index tells which element", "subs"),
    (["by_s"], 0, "no key tells which value", "by_s"),
    (["by_s", at(0)], 0, "no key tells which value", "by_s"),
    (["by_ui32", ("s", "abc")], 0, "does not fit a map of uint32", "by_ui32"),
    (["by_ui32", ("i32", -1)], 0, "does not fit a map of uint32", "by_ui32"),
    (["by_i32", ("i64", 1 << 40)], 0, "does not fit a map of int32", "by_i32"),
    (["sub", at(0)], 0, "neither repeated nor a map", "sub"),
    (["sub", 99], 0, "t.M has no field 99", "sub"),
    ([at(0)], 0, "where a field is due", "the root message"),
    ([("s", "k")], 0, "where a field is due", "the root message"),
    (["bytes", "bytes"], 0, "nothing can belong below it", "bytes"),
    (["i32", at(0)], 0, "neither repeated nor a map", "i32"),
    (["bytes"], None, "no chunk says what its value is", "bytes"),
    ([], None, "has no chunk", "the root message"),
    (["sub"], 1, "there are only 1 chunks", "sub"),
    (["sub"], (1 << 64) - 1, "there are only 1 chunks", "sub"),
]


@pytest.mark.parametrize(("tags", "chunk", "message", "path"), BROKEN, ids=[f"{case[3]}: {case[2]}" for case in BROKEN])
def test_where_tensorflow_stops_the_process_there_is_an_error(
    tags: list[Tag], chunk: int | None, message: str, path: str
) -> None:
    with pytest.raises(InconsistentChunks) as caught:
        merged([b"\xff\xff"], None, (tags, chunk))
    assert message in caught.value.message
    assert caught.value.path == path


def test_a_tag_that_says_nothing_is_an_error() -> None:
    with pytest.raises(InconsistentChunks, match="neither field nor index nor map key"):
        merged([M()], 0, ([("nothing", None)], 0))


def test_tags_that_contradict_each_other_are_an_error() -> None:
    with pytest.raises(InconsistentChunks, match="disagree"):
        merged([M(), M()], 0, (["subs", at(0)], 1), (["subs", ("s", "k")], 1))


@pytest.mark.parametrize(
    "fields",
    [[], [([], 0)], [(["sub"], 1)], [(["sub"], 0)], [(["subs", at(0)], 0)], [(["by_s", ("s", "k"), "sub"], 0)]],
)
def test_a_chunk_that_does_not_parse_is_an_error(fields: list[Any]) -> None:
    """Where only the bytes of a message are off, that shows when they are looked at."""
    metadata: Any = METADATA()
    fill(metadata.message, 0 if not fields or fields[0][1] else None, fields)
    with pytest.raises(CorruptModel) as caught:
        protoslice.open(file_of([b"\xff\xff", M()], metadata), "t.M", types=TYPES, floor=1)
    assert caught.value.offset is not None or caught.value.path


CUT = b"\x0a\x0a"  # ten bytes of field 1 are due, and none are there
WHOLE = M(str="12345678")  # just as long as what is missing there


@pytest.mark.parametrize("options", ["uncompressed", "zstd"])
@pytest.mark.parametrize(
    ("chunks", "root", "fields", "path"),
    [
        ([CUT, WHOLE], 0, [([], 1)], "the root message"),
        ([CUT, WHOLE], None, [(["sub"], 0), (["sub"], 1)], "sub"),
        ([CUT, WHOLE], None, [(["subs", at(0)], 0), (["subs", at(0)], 1)], "subs[0]"),
        ([CUT, WHOLE], None, [(["by_s", ("s", "k")], 0), (["by_s", ("s", "k")], 1)], 'by_s["k"]'),
        ([b"\x82\x01\x02" + CUT, WHOLE], 0, [(["sub"], 1)], "sub"),
        ([b"\xa2\x01\x02" + CUT, WHOLE], 0, [(["subs", at(0)], 1)], "subs[0]"),
        ([b"\x82\x01\x02" + CUT + b"\x82\x01\x0a" + WHOLE.SerializeToString(), M()], 0, [(["sub"], 1)], "sub"),
    ],
    ids=["root", "singular", "element", "value", "embedded", "embedded element", "embedded twice"],
)
def test_a_chunk_that_is_cut_off_never_takes_the_next_ones_bytes(
    chunks: list[Any], root: int | None, fields: list[Any], path: str, options: str
) -> None:
    metadata: Any = METADATA()
    fill(metadata.message, root, fields)
    file = file_of(chunks, metadata, f"{options},chunk_size:1")
    with pytest.raises(InconsistentChunks, match=r"chunk 0 is no message.* [03] bytes into the chunk") as caught:
        protoslice.open(file, "t.M", types=TYPES)
    assert caught.value.path == path
    if options == "uncompressed":
        assert caught.value.offset is not None
        assert file[caught.value.offset :].startswith(CUT)


def test_a_chunk_that_is_cut_off_is_an_error_wherever_it_stands() -> None:
    """Small as it is, nobody would look into it before it is asked for."""
    with pytest.raises(InconsistentChunks, match="chunk 1 is no message"):
        merged([M(), CUT], 0, (["sub"], 1))


def test_a_chunk_may_have_more_fields_than_are_looked_up_at_once() -> None:
    many = b"\xb0\x01\x00" * 10 + b"\xa2\x01\x00" * 4_300_000
    metadata: Any = METADATA()
    fill(metadata.message, 0, [([], 1)])
    with protoslice.open(file_of([M(i32=1), many], metadata, "uncompressed"), "t.M", types=TYPES) as proto:
        assert proto.count("subs") == 4_300_000


def nested(levels: int) -> Any:
    metadata: Any = METADATA()
    message = metadata.message
    for _ in range(levels):
        field = message.chunked_fields.add()
        field.field_tag.add().field = NUMBERS["sub"]
        message = field.message
    message.chunk_index = 0
    return metadata


def test_nesting_is_limited() -> None:
    limits = _core.Limits(depth=20)
    file = file_of([M()], nested(21))
    with pytest.raises(LimitExceeded, match="more than 20 deep"):
        protoslice.open(file, "t.M", types=TYPES, limits=limits)
    with pytest.raises(LimitExceeded, match="deep"):
        merged([M()], None, (["sub"] * 5000, 0))
    with protoslice.open(file_of([M(i32=1)], nested(10)), "t.M", types=TYPES, limits=limits) as proto:
        assert proto.merge(".".join(["sub"] * 10 + ["i32"])).read() == b"1"


@pytest.mark.parametrize("offset", [0, 63, 1 << 20, (1 << 64) - 1])
def test_a_chunk_where_no_record_is_is_an_error_that_names_it(offset: int) -> None:
    metadata: Any = METADATA()
    fill(metadata.message, 0)
    out = io.BytesIO()
    with RecordWriter(out) as writer:
        writer.write_message(M(i32=1))
        metadata.chunks.add(size=2, offset=offset)
        writer.write_message(metadata)
    with pytest.raises(InconsistentChunks, match="no record begins") as caught:
        protoslice.open(out.getvalue(), "t.M", types=TYPES)
    assert caught.value.path == "chunk 0"


def test_a_last_record_that_is_no_metadata_is_an_error() -> None:
    out = io.BytesIO()
    with RecordWriter(out) as writer:
        writer.write_record(b"\xff\xff no metadata")
    with pytest.raises(InconsistentChunks, match="no chunked proto"):
        protoslice.open(out.getvalue(), "t.M", types=TYPES)


def test_a_file_without_records_is_an_error() -> None:
    out = io.BytesIO()
    RecordWriter(out).close()
    with pytest.raises(InconsistentChunks, match="no records"):
        protoslice.open(out.getvalue(), "t.M", types=TYPES)


@pytest.mark.parametrize("options", ["zstd,chunk_size:1", "brotli,chunk_size:1", "snappy,chunk_size:1"])
def test_damage_in_a_record_is_told_with_its_place(options: str) -> None:
    metadata: Any = METADATA()
    fill(metadata.message, 0, [(["bytes"], 1)])
    file = bytearray(file_of([M(), Random(1).randbytes(5000)], metadata, options))
    file[3000] ^= 1
    with pytest.raises(CorruptModel) as caught:
        protoslice.open(bytes(file), "t.M", types=TYPES)
    assert caught.value.offset is not None
    assert 0 < caught.value.offset < len(file)


def test_padding_after_the_metadata_does_no_harm() -> None:
    got = merged([M(i32=1), M(i64=2)], 0, ([], 1), options="final_padding:64K")
    assert got == M(i32=1, i64=2)


@pytest.mark.parametrize("options", ["uncompressed", "uncompressed,chunk_size:1", "zstd"])
def test_damage_to_a_record_is_found_by_verifying(options: str) -> None:
    metadata: Any = METADATA()
    fill(metadata.message, 0, [(["sub", "bytes"], 1)])
    data = bytearray(file_of([M(i32=1), bytes(5000)], metadata, options))
    with protoslice.open(bytes(data), "t.M", types=TYPES) as proto:
        proto.verify()
    at = data.index(bytes(1000)) + 500 if options != "zstd" else len(data) // 3
    data[at] ^= 1
    with pytest.raises(CorruptModel, match="hash"), protoslice.open(bytes(data), "t.M", types=TYPES) as proto:
        proto.verify()
