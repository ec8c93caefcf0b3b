"""Sizes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoslice.errors import InvalidInput
from protoslice.sizes import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("65536", 65536),
        ("64KiB", 65536),
        ("64 kib", 65536),
        ("1MiB", 1 << 20),
        ("2GB", 2_000_000_000),
        ("1.5MB", 1_500_000),
        ("0.5KiB", 512),
        ("12b", 12),
        ("7EiB", 7 << 60),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "1 2", "x", "1XB", "1e5", "0x10", "1.MB", ".5MB", "8EiB", "9" * 30, "١KiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_size(text)


@given(st.integers(0, (1 << 63) - 1))
def test_what_is_written_reads_back_nearly(size: int) -> None:
    text = format_size(size)
    assert len(text) <= 11
    assert abs(parse_size(text) - size) <= size // 100 if size < 7 << 60 else True
