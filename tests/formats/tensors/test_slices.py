"""Slices in words mean what they mean to NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoslice.errors import InvalidInput
from protoslice.tensors.slices import TensorSlice, parsed_slice, whole

NUMBERS = st.integers(-7, 7)
SLICES = st.builds(
    lambda start, stop, step: f"{start}:{stop}{step}",
    *([st.one_of(st.just(""), NUMBERS.map(str))] * 2),
    st.one_of(st.just(""), st.just(":"), st.integers(1, 8).map(":{}".format)),
)
ITEMS = st.one_of(NUMBERS.map(str), SLICES, st.just(":"), st.just("..."))
SHAPES = st.lists(st.integers(0, 6), max_size=4).map(tuple)


def selected(array: np.ndarray, found: TensorSlice) -> np.ndarray:
    """Elements of `array` that `found` selects."""
    parts = zip(found.starts, found.steps, found.counts, strict=True)
    indices = [start + step * np.arange(count) for start, step, count in parts]
    return array[np.ix_(*indices)].reshape(found.shape) if indices else array


@given(SHAPES, st.lists(ITEMS, max_size=5), st.sampled_from([",", " , "]))
def test_it_selects_what_numpy_selects(shape: tuple[int, ...], items: list[str], comma: str) -> None:
    array = np.arange(int(np.prod(shape))).reshape(shape)
    text = comma.join(items)
    key = eval(f"np.index_exp[{text}]", {"np": np}) if text else ()
    try:
        expected = array[key]
    except IndexError:
        with pytest.raises(InvalidInput, match=r"Slice, item \d"):
            parsed_slice(text, shape)
        return
    found = selected(array, parsed_slice(text, shape))
    assert found.shape == expected.shape
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("text", "item", "words"),
    [
        ("x", 1, "is not an index"),
        (":,", 2, "is not an index"),
        ("0:1:2:3", 1, "is not an index"),
        ("1_0", 1, "is not an index"),
        ("٣", 1, "is not an index"),
        ("1 2", 1, "is not an index"),
        ("..", 1, "is not an index"),
        (":,::0", 2, "Invalid step 0"),
        ("::-1", 1, "Invalid step -1"),
        ("9" * 20, 1, "is not an index"),
        (":,:,:", 3, "the tensor has 2 dimensions"),
        ("...,...", 2, "only once"),
        (":,5", 2, "Index 5 is out of range: the dimension has length 5"),
        ("-4", 1, "Index -4 is out of range: the dimension has length 3"),
    ],
)
def test_what_it_refuses(text: str, item: int, words: str) -> None:
    with pytest.raises(InvalidInput, match=f"Slice, item {item}: .*{words}"):
        parsed_slice(text, (3, 5))


def test_a_slice_has_a_bound() -> None:
    with pytest.raises(InvalidInput, match="at most 4096 characters"):
        parsed_slice(":," * 4000, (3,))


def test_numbers_of_64_bits() -> None:
    length = (1 << 63) - 1
    assert parsed_slice(f"{length - 1}", (length,)) == TensorSlice((length - 1,), (1,), (1,), ())
    assert parsed_slice(f"-{length}::2", (length,)).counts == (1 << 62,)


def test_whole_is_everything() -> None:
    assert whole((2, 3)) == parsed_slice("...", (2, 3)) == parsed_slice("", (2, 3))
    assert whole(()) == parsed_slice("...", ()) == TensorSlice((), (), (), ())
