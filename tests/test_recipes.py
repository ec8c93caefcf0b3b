"""Recipes as bytes: each one written is read back, and malformed ones are refused with their offset."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoslice.errors import CorruptModel
from protoslice.recipes import Copy, Event, Literal, RecipeEnd, RecipeFile, RecipeReader, RecipeWriter

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
    """Content has digests of its own: the line behind each file gives it."""
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
