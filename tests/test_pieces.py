"""Pieces cover their file, and the same content has the same pieces at any position.

Recipes as bytes: each written recipe is read back, and malformed ones are refused with their offset. Sizes are written
as people write them.
"""

from __future__ import annotations

import hashlib
import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoslice import _core
from protoslice.errors import CorruptModel, InvalidInput
from protoslice.pieces import LEAST, LONGEST, PieceCutter, Span, cut, regions
from protoslice.recipes import Copy, Event, Literal, RecipeEnd, RecipeFile, RecipeReader, RecipeWriter
from protoslice.sizes import format_size, parse_size

NOISE = Random(0).randbytes(16 << 20)
spans = st.lists(st.tuples(st.integers(0, 40 << 20), st.integers(0, 12 << 20)).map(lambda p: (p[0], p[0] + p[1])))


def pieces_of(data: bytes, extents: list[Span] | None = None) -> list[tuple[int, bytes]]:
    return list(cut(len(data), extents or [], lambda start, end: data[start:end]))


@given(size=st.integers(0, 50 << 20), extents=spans)
def test_regions_cover_the_file_in_order(size: int, extents: list[Span]) -> None:
    found = list(regions(size, extents))
    assert [start for start, _ in found] == [0, *[end for _, end in found]][: len(found)]
    assert (found[-1][1] if found else 0) == size
    assert all(start < end for start, end in found)


@pytest.mark.parametrize("size", [0, 1, LEAST, _core.SHORTEST_PIECE, LONGEST, LONGEST + 1, len(NOISE)])
@pytest.mark.parametrize("extents", [[], [(0, LEAST)], [(5, 3 << 20), (4 << 20, 9 << 20)]])
def test_pieces_cover_the_file_in_order(size: int, extents: list[Span]) -> None:
    at = 0
    for offset, data in pieces_of(NOISE[:size], extents):
        assert offset == at
        assert 0 < len(data) <= LONGEST
        assert data == NOISE[at : at + len(data)]
        at += len(data)
    assert at == size


@pytest.mark.parametrize("at", [0, 5 << 20])
def test_an_insertion_changes_a_piece_or_two(at: int) -> None:
    before = {data for _, data in pieces_of(NOISE)}
    longer = NOISE[:at] + bytes(range(100)) + NOISE[at:]
    fresh = [data for _, data in pieces_of(longer) if data not in before]
    assert 1 <= len(fresh) <= 2
    assert len(before) > 8


def test_pieces_do_not_depend_on_how_the_bytes_come() -> None:
    size, found = 9 << 20, list[tuple[int, bytes]]()
    cutter, random, at = PieceCutter(0, size), Random(1), 0
    while at < size:
        step = min(size - at, random.choice([1, 1000, 1 << 20, LONGEST + 1]))
        left = memoryview(NOISE)[at : at + step]
        at += step
        while left:
            left = cutter.take(left)
            while cutter.is_due:
                found.append(cutter.cut())
    assert found == pieces_of(NOISE[:size])


def test_an_extent_has_its_own_pieces_wherever_it_stands() -> None:
    extent = NOISE[: 3 << 20]
    alone = [data for _, data in pieces_of(extent)]
    for start in (1, LONGEST - 1, LONGEST + 77):
        file = bytes(start) + extent + b"behind"
        pieces = pieces_of(file, [(start, start + len(extent))])
        assert [data for offset, data in pieces if start <= offset < start + len(extent)] == alone


def test_the_shortest_piece_is_a_whole_file() -> None:
    for start in range(0, 8 << 20, 1 << 19):
        data = NOISE[start : start + _core.SHORTEST_PIECE]
        assert pieces_of(data) == [(0, data)]


def test_small_and_overlapping_extents_do_not_matter() -> None:
    assert list(regions(LONGEST, [(5, 5 + LEAST - 1)])) == [(0, LONGEST)]
    assert list(regions(LONGEST, [(0, LEAST), (10, LEAST + 10)])) == [(0, LEAST), (LEAST, LONGEST)]


numbers = st.integers(0, (1 << 63) - 1)
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
contents = st.one_of(st.binary(max_size=200), st.builds(Copy, digests, st.text(max_size=30), numbers, numbers))
files = st.lists(st.tuples(st.text(max_size=30), st.lists(contents, max_size=4), numbers, digests), max_size=3)


def written(recipe: list[tuple[str, list[bytes | Copy], int, str]]) -> tuple[bytes, list[Event]]:
    writer, data, events = RecipeWriter(), bytearray(), list[Event]()
    for path, parts, size, sha256 in recipe:
        data += writer.file(path)
        events.append(RecipeFile(path))
        for part in parts:
            data += writer.copy(part) if isinstance(part, Copy) else writer.literal(len(part)) + part
            events += [] if isinstance(part, Copy) else [Literal(len(part))]
            events += [part] if part else []
        data += writer.end(size, sha256)
        events.append(RecipeEnd(size, sha256))
    return bytes(data + writer.done()), events


def read(data: bytes, step: int) -> list[Event]:
    reader, found = RecipeReader(), list[Event]()
    for at in range(0, len(data), step):
        for event in reader.feed(data[at : at + step]):
            if isinstance(event, bytes) and found and isinstance(found[-1], bytes):
                found[-1] += event
            else:
                found.append(event)
    reader.finish()
    return found


@given(recipe=files, step=st.integers(1, 300))
def test_what_is_written_is_read_however_it_is_cut(recipe: Any, step: int) -> None:
    data, events = written(recipe)
    assert read(data, step) == events


@given(recipe=files, place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_outside_of_content_is_noticed(recipe: Any, place: float, bit: int) -> None:
    """Content has digests: the line after each file contains them."""
    recipe = [
        (path, [part for part in parts if isinstance(part, Copy)], size, sha) for path, parts, size, sha in recipe
    ]
    data = bytearray(written(recipe)[0])
    data[int(len(data) * place)] ^= 1 << bit
    with pytest.raises(CorruptModel, match="recipe"):
        read(bytes(data), 64)


@given(recipe=files, place=st.floats(0, 1, exclude_max=True))
def test_a_recipe_that_breaks_off_is_refused(recipe: Any, place: float) -> None:
    data, _ = written(recipe)
    with pytest.raises(CorruptModel):
        read(data[: int(len(data) * place)], 64)


def line(**member: object) -> bytes:
    return json.dumps(member).encode() + b"\n"


def done(data: bytes) -> bytes:
    return data + line(done=hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"no json\n", "unknown line"),
        (b'"text"\n', "unknown line"),
        (b"{}\n", "unknown line"),
        (b'{"file": "a", "bytes": 1}\n', "unknown line"),
        (line(file=1), "unknown line"),
        (line(other=1), "unknown line"),
        (line(bytes=1), "before any file has started"),
        (line(copy={}), "before any file has started"),
        (line(end={"size": 0, "sha256": ""}), "before any file has started"),
        (line(file="a") + line(file="b"), "before the previous one has ended"),
        (line(file="a") + line(bytes=-1), "unknown line"),
        (line(file="a") + line(bytes=True), "unknown line"),
        (line(file="a") + line(bytes=1 << 63), "unknown line"),
        (line(file="a") + line(copy={"store": "s", "file": "f", "offset": 0}), "unknown line"),
        (done(line(file="a")), "inside a file"),
        (done(b"") + b"\n", "after its end"),
        (b"[" * 20_000, "line longer than"),
        (b"[" * 16_000 + b"\n", "unknown line"),
        (b"", "its last line is missing"),
    ],
)
def test_what_is_no_recipe_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(CorruptModel, match=says):
        read(data, 4096)


def test_an_error_names_its_byte() -> None:
    first = line(file="a")
    with pytest.raises(CorruptModel) as caught:
        read(first + b"nonsense\n", 1 << 20)
    assert caught.value.offset == len(first)


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
