"""Equality of ropes, and pairs of tensors from two models."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoslice.comparing.equality import Equality
from protoslice.comparing.pairs import move_job, pairs_job
from protoslice.concurrency import finish
from protoslice.errors import CorruptModel
from protoslice.facts import TensorMove
from protoslice.sources.files import BytesSource
from protoslice.sources.ropes import Rope
from protoslice.tensors.dtypes import DTYPES
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Stored, Tensor, Unreadable


def tensor(name: str, values: Sequence[float] = (1, 2), number: int = 0, dtype: str = "F32") -> Tensor:
    """Return a tensor of these values."""
    data = Stored(Rope.of(BytesSource(np.array(values, DTYPES[dtype].numpy).tobytes())))
    return Tensor(name, f"path:t[{number}]", DTYPES[dtype], (len(values),), "t", None, data)


def listed(*named: str | tuple[str, int]) -> Tensors:
    """Return tensors by name, some with their length; the name determines the values."""
    rows = [(each, 2) if isinstance(each, str) else each for each in named]
    return Tensors.of([tensor(name, [crc32(name.encode())] * length, n) for n, (name, length) in enumerate(rows)])


def pairs(before: Tensors, after: Tensors) -> list[tuple[str | None, str | None]]:
    """Return the names of all pairs."""
    found = finish(pairs_job(before, after))
    return [(None if a is None else before[a].name, None if b is None else after[b].name) for a, b in found]


def test_names_make_pairs_in_natural_order() -> None:
    found = pairs(
        listed("layer.10.w", "layer.2.w", "old", "twice", "twice"), listed("layer.2.w", "layer.10.w", "new", "twice")
    )
    assert found == [
        ("layer.2.w", "layer.2.w"),
        ("layer.10.w", "layer.10.w"),
        (None, "new"),
        ("old", None),
        ("twice", "twice"),
        ("twice", None),
    ]


def test_renumbered_names_are_paired_in_their_order() -> None:
    before, after = (
        listed("MatMul_10", "MatMul_20", "MatMul_30", "bias"),
        listed("MatMul_30", "MatMul_40", "MatMul_50", "bias"),
    )
    assert pairs(before, after) == [
        ("MatMul_10", "MatMul_30"),
        ("MatMul_20", "MatMul_40"),
        ("MatMul_30", "MatMul_50"),
        ("bias", "bias"),
    ]


def test_renumbered_names_of_another_count_are_aligned_by_shape() -> None:
    before = listed(("Conv_1", 3), ("Conv_2", 4), ("Conv_3", 5))
    after = listed(("Conv_11", 3), ("Conv_12", 9), ("Conv_13", 4), ("Conv_14", 5))
    assert pairs(before, after) == [
        ("Conv_1", "Conv_11"),
        (None, "Conv_12"),
        ("Conv_2", "Conv_13"),
        ("Conv_3", "Conv_14"),
    ]


def test_layers_that_were_added_leave_the_others_in_pairs() -> None:
    names = [f"layer.{n}.w" for n in range(4)]
    assert pairs(listed(*names[:2]), listed(*names)) == [
        *((name, name) for name in names[:2]),
        (None, names[2]),
        (None, names[3]),
    ]


def test_numbers_stand_where_tensors_of_most_are_on_both_sides() -> None:
    assert pairs(listed("w0", "w1", "w2", "w3"), listed("w0", "w2", "w3", "w4")) == [
        ("w0", "w0"), ("w1", None), ("w2", "w2"), ("w3", "w3"), (None, "w4"),
    ]  # fmt: skip


def test_equal_bytes_make_pairs_of_any_names_in_order() -> None:
    before = Tensors.of(
        [tensor("head", [5, 6]), tensor("zeros", [0, 0]), tensor("nothing", [0, 0]), tensor("gone", [1, 2])]
    )
    after = Tensors.of([tensor("tail", [5, 6]), tensor("none", [0, 0]), tensor("nil", [0, 0]), tensor("come", [2, 1])])
    assert {*pairs(before, after)} == {
        ("head", "tail"), ("zeros", "none"), ("nothing", "nil"), ("gone", None), (None, "come"),
    }  # fmt: skip


def test_renamed_layers_are_paired_by_the_end_of_their_names() -> None:
    before = listed("encoder.layer.5.query.weight", "encoder.layer.5.key.weight", ("head.bias", 3))
    after = listed("bert.encoder.block.5.query.weight", "bert.encoder.block.5.key.weight", ("tail.weight", 3))
    assert pairs(before, after) == [
        ("encoder.layer.5.key.weight", "bert.encoder.block.5.key.weight"),
        ("encoder.layer.5.query.weight", "bert.encoder.block.5.query.weight"),
        ("head.bias", None),
        (None, "tail.weight"),
    ]


def move(before: Tensor | None, after: Tensor | None) -> TensorMove:
    """Return how far a tensor moved."""
    found = finish(move_job(before, after, 4096, lambda tensor: tensor))
    assert found is not None
    return found


def test_moves_have_distances_and_structural_changes() -> None:
    found = move(tensor("a", [3, 4]), tensor("a", [3, 5]))
    assert (found.change, found.name, found.was, found.size) == ("compared", "a", None, 8)
    assert found.delta is not None
    assert (found.delta.changed, found.delta.max) == (1, 1)
    assert found.delta.relative == pytest.approx(0.2)
    renamed = move(tensor("a"), tensor("b"))
    assert (renamed.change, renamed.was) == ("renamed", "a")
    assert renamed.delta is not None
    assert (renamed.delta.changed, renamed.delta.relative) == (0, 0)
    assert (move(tensor("a"), tensor("a", [1])).change, move(tensor("a"), tensor("a", [1])).delta) == ("reshaped", None)
    assert move(tensor("a"), tensor("a", dtype="F64")).change == "reshaped"
    assert (move(None, tensor("a")).change, move(tensor("a"), None).change) == ("added", "removed")


def test_tensors_that_cannot_be_read_have_no_distances() -> None:
    broken = Tensor("a", "path:a", DTYPES["F32"], (2,), "t", None, Unreadable(CorruptModel("damaged")))
    assert move(tensor("a"), broken).delta is None


# Equality of ropes: for any cuts of the bytes, and with as few reads as possible.

Part = tuple[int, int, bool]
"""Offset and length of bytes of `SOURCE`, and True for a literal copy."""

SOURCE = BytesSource(bytes(range(3)) * 12)  # the same bytes are at several offsets
PARTS = st.lists(st.tuples(st.integers(0, 28), st.integers(1, 8), st.booleans()), max_size=6)


def rope_of(parts: list[Part]) -> Rope:
    found = (Rope.of(SOURCE, start, start + length) for start, length, _ in parts)
    return Rope.joined(bytes(rope) if literal else rope for rope, (*_, literal) in zip(found, parts, strict=True))


def compared(one: Rope, other: Rope) -> tuple[bool, int]:
    """Return whether both are equal, and how many bytes of both were read."""
    equality = Equality(lambda one, other, length: [(0, length)], lambda _: None, local=True, stored=1 << 20)
    return finish(equality.equal(one, other)), equality.read


@given(PARTS, PARTS)
def test_ropes_are_equal_if_their_bytes_are(one: list[Part], other: list[Part]) -> None:
    ropes = rope_of(one), rope_of(other)
    assert compared(*ropes)[0] == (bytes(ropes[0]) == bytes(ropes[1]))


@given(PARTS, st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=6, max_size=6))
def test_extents_that_are_the_same_are_not_read(parts: list[Part], cuts: list[tuple[int, bool]]) -> None:
    whole, pieces = list[Part](), list[Part]()
    for (start, length, _), (cut, copied) in zip(parts, cuts, strict=False):
        whole.append((start, length, False))
        pieces += [(start, min(cut, length), copied), (start + cut, max(length - cut, 0), False)]
    equal, read = compared(rope_of(whole), rope_of([piece for piece in pieces if piece[1]]))
    assert equal
    assert read == 2 * sum(length for _, length, copied in pieces if copied)
