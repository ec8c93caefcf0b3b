"""Chunks that cannot be merged: where TensorFlow's Merger stops the process, an error with the place."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.chunked import METADATA, NUMBERS, TYPES, M, Tag, at, chunked, file_of, merged

import protoslice
from protoslice import _core
from protoslice.errors import CorruptModel, InconsistentChunks, LimitExceeded

BROKEN: list[tuple[list[Tag], int | None, str, str]] = [
    (["subs", at(1)], 0, "elements before this one are missing", "subs[1]"),
    (["subs", at(1 << 63)], 0, "elements before this one are missing", "subs[9223372036854775808]"),
    (["subs"], 0, "chunk metadata gives no index", "subs"),
    (["subs", ("s", "k")], 0, "chunk metadata gives no index", "subs"),
    (["strs", at(1)], 0, "0 elements: elements before this one are missing", "strs[1]"),
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
    """Damage inside the bytes of a message is found only when the message is looked at."""
    file = chunked([b"\xff\xff", M()], 0 if not fields or fields[0][1] else None, *fields)
    with pytest.raises(CorruptModel) as caught:
        protoslice.open(file, "t.M", types=TYPES, floor=1)
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
    file = chunked(chunks, root, *fields, options=f"{options},chunk_size:1")
    with pytest.raises(InconsistentChunks, match=r"chunk 0 is not a message.* [03] bytes into the chunk") as caught:
        protoslice.open(file, "t.M", types=TYPES)
    assert caught.value.path == path
    if options == "uncompressed":
        assert caught.value.offset is not None
        assert file[caught.value.offset :].startswith(CUT)


def test_a_chunk_that_is_cut_off_is_an_error_wherever_it_stands() -> None:
    """Small as it is, nobody would look into it before it is asked for."""
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
