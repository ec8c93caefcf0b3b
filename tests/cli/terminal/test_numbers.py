"""Elements as text, compared with NumPy's own text of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from protoslice.cli.arrays import array_lines, reader_of


def shown(array: np.ndarray[Any, Any], dtype: str) -> str:
    """The text of an array of this data type."""
    read = reader_of(array.tobytes(), array.shape)
    return "\n".join(array_lines(dtype, array.shape, read))


def words(text: str) -> list[str]:
    """Brackets, numbers and dots without the space between them."""
    return text.replace("[", " [ ").replace("]", " ] ").split()


@pytest.mark.parametrize(
    "shape", [(), (5,), (0,), (2, 0), (2, 3), (1, 1, 1), (1001,), (40, 50), (2, 30, 40), (7, 3, 2, 60)]
)
def test_integers_are_printed_as_numpy_prints_them(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int), dtype="<i4").reshape(shape) - 7
    with np.printoptions(threshold=1000, edgeitems=3, linewidth=78):
        expected = str(array)
    assert words(shown(array, "I32")) == words(expected if array.size or len(shape) < 2 else shown(array, "I32"))


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("F64", "<f8"),
        ("F32", "<f4"),
        ("F16", "<f2"),
        ("BF16", ml_dtypes.bfloat16),
        ("F8_E4M3FN", ml_dtypes.float8_e4m3fn),
    ],
)
def test_floats_are_printed_with_five_digits(dtype: str, kind: Any) -> None:
    array = np.array([[1.5, -0.25, 0.0], [448, 2**-6, -3]]).astype(kind)
    assert [float(word) for word in words(shown(array, dtype)) if word not in "[]"] == array.astype(
        float
    ).ravel().tolist()


def test_other_types_are_printed() -> None:
    assert shown(np.array([True, False]), "BOOL") == "[ True False]"
    assert shown(np.array([1 + 2j, -3.5j], "<c8"), "C64") == "[   1+2j -0-3.5j]"
    assert shown(np.array([-8, 7], "i1"), "I4") == "[-8  7]"
    assert shown(np.array([15, 0], "u1"), "U4") == "[15  0]"


def test_only_shown_elements_are_read() -> None:
    asked: list[str] = []

    def read(text: str) -> bytes:
        asked.append(text)
        return bytes(4 * 9)

    list(array_lines("F32", (1 << 40, 1 << 40), read))
    end = 1 << 40
    assert asked == [
        "0:3,0:3", f"0:3,{end - 3}:{end}", f"{end - 3}:{end},0:3", f"{end - 3}:{end},{end - 3}:{end}",
    ]  # fmt: skip


def test_long_rows_are_broken() -> None:
    lines = shown(np.arange(100, dtype="<i8") + 1000, "I64").split("\n")
    assert max(map(len, lines)) <= 80
    assert len(lines) > 5
    assert (lines[0][0], lines[-1][-1]) == ("[", "]")
