"""Ropes as Python sees them: sliced, read, and written like bytes."""

import io
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoslice import _core
from protoslice.errors import CorruptModel, InvalidInput, ProtosliceError
from protoslice.sources.files import BytesSource, FileSource
from protoslice.sources.ropes import Rope

FIRST, SECOND = bytes(range(100)), bytes(range(100, 200))
pieces = st.lists(
    st.binary(max_size=6) | st.tuples(st.integers(0, 1), st.integers(0, 90), st.integers(0, 10)), max_size=12
)


def rope_of(parts: list[bytes | tuple[int, int, int]]) -> tuple[Rope, bytes]:
    """A rope of `parts`, and its bytes."""
    data = (FIRST, SECOND)
    due = b"".join(part if isinstance(part, bytes) else data[part[0]][part[1] : part[1] + part[2]] for part in parts)
    return Rope(_core.Rope(parts), [BytesSource(FIRST), BytesSource(SECOND)]), due


@given(pieces, st.integers(-130, 130) | st.none(), st.integers(-130, 130) | st.none())
def test_it_is_sliced_like_bytes(
    parts: list[bytes | tuple[int, int, int]], start: int | None, stop: int | None
) -> None:
    rope, due = rope_of(parts)
    assert (rope.read(), len(rope), rope.size, bool(rope)) == (due, len(due), len(due), bool(due))
    assert bytes(rope[start:stop]) == due[start:stop]
    assert b"".join(map(bytes, rope.pieces(3))) == due
    assert _core.Rope.decode(rope.core.encode()) == rope.core


@given(pieces, st.integers(0, 130), st.integers(0, 40))
def test_parts_of_it_are_read(parts: list[bytes | tuple[int, int, int]], offset: int, length: int) -> None:
    rope, due = rope_of(parts)
    buffer = bytearray(length)
    assert buffer[: rope.readinto(buffer, offset)] == due[offset : offset + length]
    if offset + length <= len(due):
        assert rope.read(offset, length) == due[offset : offset + length]
    else:
        with pytest.raises(InvalidInput, match="out of range"):
            rope.read(offset, length)


def test_a_buffer_is_filled_while_no_other_thread_can_see_it() -> None:
    """A source is read without the interpreter's lock: a buffer must not be half filled meanwhile."""
    buffer = bytearray(b"-" * 6)
    seen = []

    class Looking:
        size = 3

        def read(self, offset: int, length: int, /) -> bytes:
            seen.append(bytes(buffer))
            return b"def"

    rope = Rope(_core.Rope([b"abc", (0, 0, 3)]), [Looking()])
    assert rope.readinto(buffer) == 6
    assert (seen, bytes(buffer)) == ([b"-" * 6], b"abcdef")


@given(pieces, st.lists(st.tuples(st.integers(0, 120), st.integers(0, 30)), max_size=5))
def test_as_a_file_it_is_sought_and_read(
    parts: list[bytes | tuple[int, int, int]], reads: list[tuple[int, int]]
) -> None:
    rope, due = rope_of(parts)
    with rope.open() as file, io.BytesIO(due) as like:
        for at, count in reads:
            assert file.seek(at) == like.seek(at)
            assert file.read(count) == like.read(count)
        assert file.seek(0, io.SEEK_END) == len(due)
    out = io.BytesIO()
    assert rope.write_to(out) == len(due)
    assert out.getvalue() == due


@given(pieces, st.integers(-70, 70))
def test_a_byte_of_it_is_that_of_bytes(parts: list[bytes | tuple[int, int, int]], at: int) -> None:
    rope, due = rope_of(parts)
    if -len(due) <= at < len(due):
        assert rope[at] == due[at]
    else:
        with pytest.raises(IndexError, match=f"Byte {at} is out of range: there are {len(due)} bytes"):
            rope[at]
    for key in ("0", 0.0, None):
        with pytest.raises(TypeError):
            rope[key]  # type: ignore[call-overload]


def test_it_is_sought_from_three_places_alone() -> None:
    file = rope_of([b"abc"])[0].open()
    for whence in (3, -1):
        with pytest.raises(InvalidInput, match=f"Invalid whence {whence}"):
            file.seek(0, whence)
    assert file.read() == b"abc"


def test_it_is_sliced_in_steps_of_one() -> None:
    rope, _ = rope_of([b"abc"])
    with pytest.raises(InvalidInput, match="step other than 1"):
        rope[::2]
    assert rope[2:1].read() == b""


def test_lengths_past_64_bits_are_refused() -> None:
    with pytest.raises(CorruptModel):
        _core.Rope([(0, 0, 2**64 - 1), (0, 0, 2**64 - 1)])


@pytest.mark.parametrize("data", [b"\x01", b"\xff" * 10, b"\x01\x03\x00", b"\x01\x06ab", b"\x80" * 12])
def test_what_is_no_rope_does_not_decode(data: bytes) -> None:
    with pytest.raises(CorruptModel):
        _core.Rope.decode(data)


@pytest.mark.parametrize("seed", range(20))
def test_large_and_small_extents_of_files_and_of_objects_are_read_together(seed: int, tmp_path: Path) -> None:
    random, path = Random(seed), tmp_path / "file"
    data, other = random.randbytes(1 << 20), random.randbytes(1 << 20)
    path.write_bytes(data)
    parts, due = list[bytes | tuple[int, int, int]](), b""
    for _ in range(random.randrange(1, 12)):
        number, length = random.randrange(2), random.choice((1, 100, 5000, (1 << 14) - 1, 1 << 14, 200_000))
        start = random.randrange((1 << 20) - length)
        parts += [(number, start, length), b"between"[: random.randrange(8)]]
        due += (data, other)[number][start : start + length] + bytes(parts[-1])
    with FileSource(path) as source:
        rope = Rope(_core.Rope(parts), [source, BytesSource(other)])
        assert rope.read() == due
        at = random.randrange(len(due))
        assert rope.read(at) == due[at:]


def test_a_file_that_became_shorter_gives_an_error_and_no_other_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    with FileSource(path) as source:
        rope = Rope(_core.Rope([(0, 0, 1 << 20)]), [source])
        path.write_bytes(bytes(1 << 19))
        with pytest.raises(ProtosliceError):
            rope.read()
