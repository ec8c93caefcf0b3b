"""Places of chunks: the same as those of TensorFlow's Merger, in an order that never varies."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.chunked import M, at, chunked, merged

from protoslice.merging import Merger


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
    assert merged(["é".encode()], None, (["str"], 0)).str == "é"


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
    read = M()
    (tmp_path / "m.cpb").write_bytes(chunked(chunks, 0, *fields))
    Merger.read(tmp_path / "m", read)
    assert read == M(strs=due, ints=[1]), "as protoslice.merging has it"


def test_a_parent_comes_before_what_lies_below_it() -> None:
    got = merged([M(), b"child", M(sub=M(bytes=b"parent"))], 0, (["sub", "sub", "bytes"], 1), (["sub"], 2))
    assert got.sub.sub.bytes == b"child"


def test_what_has_the_same_place_is_merged_in_the_order_of_chunks() -> None:
    got = merged([M(), M(ints=[3]), M(ints=[1, 2])], 0, (["sub"], 2), (["sub"], 1))
    assert list(got.sub.ints) == [3, 1, 2]


def test_elements_are_merged_into_or_added_at_the_end() -> None:
    base = M(subs=[M(i32=1)])
    got = merged([base, M(i64=2), M(i64=3)], 0, (["subs", at(0)], 1), (["subs", at(1)], 2))
    assert list(got.subs) == [M(i32=1, i64=2), M(i64=3)]
    assert list(merged([M(i32=5), M(i32=4)], None, (["subs", at(1)], 0), (["subs", at(0)], 1)).subs) == [
        M(i32=4),
        M(i32=5),
    ]


def test_below_a_map_key_deeper_places_are_ordered_too() -> None:
    """TensorFlow's order does not cover places below one map key; ours puts parents first there as well."""
    key = ("s", "k")
    got = merged([M(), M(bytes=b"parent"), b"child"], 0, (["by_s", key, "bytes"], 2), (["by_s", key], 1))
    assert got.by_s["k"].bytes == b"child"


def test_more_than_16_ties_keep_the_order_of_their_chunks() -> None:
    """TensorFlow's sort is unstable here; ours orders by chunk number, whatever the order of the list."""
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


def test_a_map_may_have_very_many_values_that_are_chunks() -> None:
    """Each is found by its key: going through the entries for every one of them would take minutes."""
    count = 20_000
    base = M()
    for number in range(0, count, 2):
        base.by_s[f"key-{number}"].str = "there"
    places = [(["by_s", ("s", f"key-{number}")], number + 1) for number in range(count)]
    got = merged([base, *(M(i32=number) for number in range(count))], 0, *places).by_s
    assert len(got) == count
    for number in range(count):
        assert got[f"key-{number}"] == M(i32=number, str="there" if number % 2 == 0 else "")
