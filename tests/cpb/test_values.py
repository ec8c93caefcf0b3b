"""Values that chunks hold as text, and the keys and values of maps."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.chunked import M, merged

from protoslice.errors import InconsistentChunks


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
