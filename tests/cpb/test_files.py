"""Chunked protos that TensorFlow or others wrote: they are opened, merged and split again; damaged ones are refused."""

from __future__ import annotations

import hashlib
import io
import json
import struct
from random import Random
from typing import Any

import pytest
from tests.support.chunked import METADATA, NUMBERS, TYPES, M, Tag, at, chunked, file_of, fill, merged
from tests.support.golden import CHUNKED
from tests.support.protos import canonical

import protoslice
from protoslice import _core
from protoslice.errors import CorruptModel, InconsistentChunks, LimitExceeded
from protoslice.riegeli import RecordReader, RecordWriter
from protoslice.schema import bundled


@pytest.mark.parametrize("options", ["", "uncompressed", "zstd", "snappy", "transpose", "uncompressed,chunk_size:1"])
def test_however_it_is_written(options: str) -> None:
    base = M(i32=1, subs=[M(str="a"), M()])
    got = merged([base, b"x" * 5000, M(i64=5)], 0, (["sub", "bytes"], 1), (["subs", at(1)], 2), options=options)
    assert got == M(i32=1, subs=[M(str="a"), M(i64=5)], sub=M(bytes=b"x" * 5000))


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


def test_a_chunk_may_have_more_fields_than_are_looked_up_at_once() -> None:
    many = b"\xb0\x01\x00" * 10 + b"\xa2\x01\x00" * 4_300_000
    file = chunked([M(i32=1), many], 0, ([], 1), options="uncompressed")
    with protoslice.open(file, "t.M", types=TYPES) as proto:
        assert proto.count("subs") == 4_300_000


@pytest.mark.parametrize("offset", [0, 63, 1 << 20, (1 << 64) - 1])
def test_a_chunk_where_no_record_is_is_an_error_that_names_it(offset: int) -> None:
    metadata: Any = METADATA()
    fill(metadata.message, 0)
    out = io.BytesIO()
    with RecordWriter(out) as writer:
        writer.write_message(M(i32=1))
        metadata.chunks.add(size=2, offset=offset)
        writer.write_message(metadata)
    with pytest.raises(InconsistentChunks, match="no record starts") as caught:
        protoslice.open(out.getvalue(), "t.M", types=TYPES)
    assert caught.value.path == "chunk 0"


@pytest.mark.parametrize("options", ["zstd,chunk_size:1", "brotli,chunk_size:1", "snappy,chunk_size:1"])
def test_damage_in_a_record_is_told_with_its_place(options: str) -> None:
    file = bytearray(chunked([M(), Random(1).randbytes(5000)], 0, (["bytes"], 1), options=options))
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
    data = bytearray(chunked([M(i32=1), bytes(5000)], 0, (["sub", "bytes"], 1), options=options))
    with protoslice.open(bytes(data), "t.M", types=TYPES) as proto:
        proto.verify()
    at = data.index(bytes(1000)) + 500 if options != "zstd" else len(data) // 3
    data[at] ^= 1
    with pytest.raises(CorruptModel, match="hash"), protoslice.open(bytes(data), "t.M", types=TYPES) as proto:
        proto.verify()


# Chunked protos that TensorFlow wrote: they are opened, merged, split again, and found with few reads.

CASES = json.loads((CHUNKED / "expected.json").read_text())
GOLDEN_TYPES = {"graphdef": "tensorflow.GraphDef", "savedmodel": "tensorflow.SavedModel"}

each_case = pytest.mark.parametrize("case", CASES, ids=[case["file"] for case in CASES])


class CountingSource:
    """A source that counts how it is read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.reads: list[tuple[int, int]] = []

    def read(self, offset: int, length: int, /) -> bytes:
        """Return exactly the requested bytes."""
        self.reads.append((offset, length))
        assert 0 <= offset <= offset + length <= self.size
        return self.data[offset : offset + length]


class Side:
    """A receiver of bytes that had to be decoded."""

    def write(self, data: bytes, /) -> object:
        """Take `data`."""
        return len(data)


def message(case: dict[str, Any], data: bytes) -> Any:
    return bundled().message_class(GOLDEN_TYPES[case["kind"]]).FromString(data)


def due(case: dict[str, Any]) -> Any:
    """Return the original with exactly the differences that the manifest lists."""
    whole = message(case, (CHUNKED / case["original"]).read_bytes())
    note = case["merge_note"] or ""
    if "empty GraphDef.library" in note:
        whole.library.SetInParent()
    if "float_val constants come back as tensor_content" in note:
        tensors = [node.attr["value"].tensor for node in whole.node if node.op == "Const"]
        for tensor in tensors:
            if len(tensor.float_val) > 100:
                tensor.tensor_content = struct.pack(f"<{len(tensor.float_val)}f", *tensor.float_val)
                del tensor.float_val[:]
    return whole


def test_the_golden_files_are_there() -> None:
    assert len(CASES) == 8
    for case in CASES:
        assert hashlib.sha256((CHUNKED / case["file"]).read_bytes()).hexdigest() == case["sha256"]


@each_case
def test_it_opens_as_what_it_is_and_merges_to_its_original(case: dict[str, Any]) -> None:
    with protoslice.open(CHUNKED / case["file"]) as proto:
        assert (proto.form, proto.type) == ("chunked", GOLDEN_TYPES[case["kind"]])
        merged = proto.rope.read()
        assert len(merged) == proto.size
    assert canonical(message(case, merged)) == canonical(due(case))


@each_case
def test_the_records_are_the_chunks(case: dict[str, Any]) -> None:
    *records, metadata = case["records"]
    with protoslice.open(CHUNKED / case["file"]) as proto:
        found = [chunk.rope.read() for chunk in proto.chunks]
        assert [len(data) for data in found] == [record["size"] for record in records]
        assert [hashlib.sha256(data).hexdigest() for data in found] == [record["sha256"] for record in records]
        assert hashlib.sha256(proto.metadata).hexdigest() == metadata["sha256"]


@each_case
def test_every_view_works_as_on_the_merged_proto(case: dict[str, Any]) -> None:
    with protoslice.open(CHUNKED / case["file"]) as proto:
        merged = proto.rope.read()
        plain = protoslice.open(merged, GOLDEN_TYPES[case["kind"]])
        assert proto.tree() == plain.tree()
        for node in proto.tree():
            if node.count is None:
                assert proto.merge(node.path).read() == plain.merge(node.path).read()
        assert proto.merge(omit_larger_than=1000).read() == plain.merge(omit_larger_than=1000).read()
        for least in (500, 1 << 20):
            splits = [each.split(min_chunk=least, max_chunk=40 * least) for each in (proto, plain)]
            assert splits[0].cpb().read() == splits[1].cpb().read()


@each_case
@pytest.mark.parametrize("least", [1, 400, 5000])
def test_what_is_split_here_is_stable_and_reads_back(case: dict[str, Any], least: int) -> None:
    original = (CHUNKED / case["original"]).read_bytes()
    limits = _core.Limits(chunks=1 << 20)  # a policy of single bytes makes more chunks than a plan has by default
    files = []
    for _ in range(2):
        proto = protoslice.open(original, GOLDEN_TYPES[case["kind"]], limits=limits)
        split = proto.split(min_chunk=least, max_chunk=4 * least)
        files.append(split.cpb().read())
    assert files[0] == files[1]
    chunks = [chunk.rope.read() for chunk in split]
    with RecordReader(files[0]) as reader:
        assert reader.check_file_format()
        records = list(reader.read_records())
    assert records == [*chunks, split.metadata]
    with RecordReader(files[0]) as reader:
        infos = METADATA.FromString(split.metadata).chunks
        for info, chunk in list(zip(infos, chunks, strict=True))[:: 1 + len(chunks) // 50]:
            reader.seek_numeric(info.offset)
            assert reader.read_record() == chunk
    with protoslice.open(files[0], GOLDEN_TYPES[case["kind"]]) as again:
        assert canonical(message(case, again.rope.read())) == canonical(message(case, original))


@each_case
def test_the_metadata_is_found_with_a_handful_of_small_reads(case: dict[str, Any]) -> None:
    source = CountingSource((CHUNKED / case["file"]).read_bytes())
    _core.Chunked(source, Side())
    assert len(source.reads) <= 8 + 3 * len(case["metadata"]["chunks"]), source.reads
    # Compressed bytes are read by riegeli chunk; TensorFlow's chunks hold 1 MiB before compression.
    assert max(length for _, length in source.reads) <= 1 << 20


def test_a_large_uncompressed_file_is_opened_by_its_heads_alone() -> None:
    big = bundled().message_class("tensorflow.TensorProto")(tensor_content=bytes(3 << 20), dtype=1)
    file = protoslice.open(big.SerializeToString(), "tensorflow.TensorProto").chunks.cpb().read()
    source = CountingSource(file)
    _core.Chunked(source, Side())
    assert sum(length for _, length in source.reads) < 100 << 10, source.reads
    assert len(source.reads) < 20, source.reads
    with protoslice.open(source, "tensorflow.TensorProto") as proto:
        assert proto.merge("tensor_content")[2 << 20 : (2 << 20) + 10].read() == bytes(10)


# Chunks that cannot be merged: where TensorFlow's Merger aborts, an error names the place.

BROKEN: list[tuple[list[Tag], int | None, str, str]] = [
    (["subs", at(1)], 0, "the chunk metadata skips elements of the list", "subs[1]"),
    (["subs", at(1 << 63)], 0, "the chunk metadata skips elements of the list", "subs[9223372036854775808]"),
    (["subs"], 0, "chunk metadata gives no index", "subs"),
    (["subs", ("s", "k")], 0, "chunk metadata gives no index", "subs"),
    (["strs", at(1)], 0, "list, which has only 0 so far", "strs[1]"),
    (["strs", at(0), "str"], 0, "no fields to merge into", "strs[0]"),
    (["strs"], None, "o chunk has the field's value", "strs"),
    (["ints", at(0)], 0, "elements of a repeated numeric field", "ints[0]"),
    (["ints"], 0, "elements of a repeated numeric field", "ints"),
    (["by_s"], 0, "chunk metadata gives no key", "by_s"),
    (["by_s", at(0)], 0, "chunk metadata gives no key", "by_s"),
    (["by_ui32", ("s", "abc")], 0, "does not fit the key type of the map, uint32", "by_ui32"),
    (["by_ui32", ("i32", -1)], 0, "does not fit the key type of the map, uint32", "by_ui32"),
    (["by_i32", ("i64", 1 << 40)], 0, "does not fit the key type of the map, int32", "by_i32"),
    (["sub", at(0)], 0, "neither repeated nor a map", "sub"),
    (["sub", 99], 0, "t.M has no field 99", "sub"),
    ([at(0)], 0, "where a field is expected", "the root message"),
    ([("s", "k")], 0, "where a field is expected", "the root message"),
    (["bytes", "bytes"], 0, "no fields to merge into", "bytes"),
    (["i32", at(0)], 0, "neither repeated nor a map", "i32"),
    (["bytes"], None, "o chunk has the field's value", "bytes"),
    ([], None, "neither a chunk nor chunked fields", "the root message"),
    (["sub"], 1, "has only 1 chunks", "sub"),
    (["sub"], (1 << 64) - 1, "has only 1 chunks", "sub"),
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
    with pytest.raises(InconsistentChunks, match="tags of different kinds"):
        merged([M(), M()], 0, (["subs", at(0)], 1), (["subs", ("s", "k")], 1))


@pytest.mark.parametrize(
    "fields",
    [[], [([], 0)], [(["sub"], 1)], [(["sub"], 0)], [(["subs", at(0)], 0)], [(["by_s", ("s", "k"), "sub"], 0)]],
)
def test_a_chunk_that_does_not_parse_is_an_error(fields: list[Any]) -> None:
    """Damage inside a message's bytes is found only when the message is read."""
    file = chunked([b"\xff\xff", M()], 0 if not fields or fields[0][1] else None, *fields)
    with pytest.raises(CorruptModel) as caught:
        protoslice.open(file, "t.M", types=TYPES, floor=1)
    assert caught.value.offset is not None or caught.value.path


CUT = b"\x0a\x0a"  # field 1 announces ten bytes, and none are there
WHOLE = M(str="12345678")  # as long as the missing bytes


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
    file = chunked(chunks, root, *fields, options=f"{options},chunk_size:1")
    with pytest.raises(InconsistentChunks, match=r"chunk 0 is not a message.* [03] bytes into the chunk") as caught:
        protoslice.open(file, "t.M", types=TYPES)
    assert caught.value.path == path
    if options == "uncompressed":
        assert caught.value.offset is not None
        assert file[caught.value.offset :].startswith(CUT)


def test_a_chunk_that_is_cut_off_is_an_error_wherever_it_stands() -> None:
    """A small chunk would not be read before a request needs it."""
    with pytest.raises(InconsistentChunks, match="chunk 1 is not a message"):
        merged([M(), CUT], 0, (["sub"], 1))


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
    with pytest.raises(LimitExceeded, match="more than 20 levels deep"):
        protoslice.open(file, "t.M", types=TYPES, limits=limits)
    with pytest.raises(LimitExceeded, match="deep"):
        merged([M()], None, (["sub"] * 5000, 0))
    with protoslice.open(file_of([M(i32=1)], nested(10)), "t.M", types=TYPES, limits=limits) as proto:
        assert proto.merge(".".join(["sub"] * 10 + ["i32"])).read() == b"1"


# Values that chunks hold as text, and the keys and values of maps.


def one(name: str, text: bytes) -> Any:
    return getattr(merged([text], None, ([name], 0)), name)


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
