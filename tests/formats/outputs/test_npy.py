"""NumPy loads our `.npy` files, also as memory maps."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from tests.support.tensors import content, stored, tensor

from protoslice.tensors.dtypes import DTYPES
from protoslice.tensors.model import Encoding, Filled
from protoslice.tensors.reading import npy_head, read


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (4, 3, 2), (1,) * 32])
@pytest.mark.parametrize("name", [name for name, dtype in DTYPES.items() if dtype.numpy])
def test_numpy_loads_what_it_has_a_type_for(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    dtype = np.dtype(DTYPES[name].numpy)
    array = (np.arange(int(np.prod(shape))) % 2).astype(dtype).reshape(shape)
    data = content(read(tensor(array.tobytes(), name, shape), form="npy").bytes)
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    for mode in (None, "r") if array.size else (None,):
        loaded = np.load(path, mmap_mode=mode)
        assert loaded.dtype == dtype
        assert loaded.shape == shape
        assert np.array_equal(loaded, array)
    assert (len(data) - array.nbytes) % 64 == 0


@pytest.mark.parametrize(
    ("name", "shown"), [("BF16", "<u2"), ("F8_E5M2", "|u1"), ("F6_E2M3FN", "|u1"), ("F4_E2M1", "|u1")]
)
def test_floats_that_numpy_lacks_are_shown_as_their_bits(name: str, shown: str, tmp_path: Path) -> None:
    real = {"BF16": ml_dtypes.bfloat16, "F8_E5M2": ml_dtypes.float8_e5m2, "F6_E2M3FN": ml_dtypes.float6_e2m3fn}
    array = np.array([1.5, -2, 0], real.get(name, ml_dtypes.float4_e2m1fn))
    (tmp_path / "x.npy").write_bytes(content(read(tensor(array.tobytes(), name, [3]), form="npy").bytes))
    loaded = np.load(tmp_path / "x.npy")
    assert loaded.dtype == np.dtype(shown)
    assert np.array_equal(loaded.view(array.dtype), array)


def test_narrow_integers_are_integers_of_a_byte(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(
        content(read(tensor(stored(b"\xf8\x07", Encoding.PACKED), "I4", [2, 2]), form="npy").bytes)
    )
    assert np.load(tmp_path / "x.npy").tolist() == [[-8, -1], [7, 0]]


def test_a_slice_as_a_file(tmp_path: Path) -> None:
    array = np.arange(24, dtype="<f4").reshape(4, 6)
    (tmp_path / "x.npy").write_bytes(content(read(tensor(array.tobytes(), "F32", [4, 6]), "::2,-1", "npy").bytes))
    assert np.array_equal(np.load(tmp_path / "x.npy"), array[::2, -1])


def test_many_dimensions_get_the_longer_head() -> None:
    head = npy_head(DTYPES["F32"], (1,) * 30_000)
    assert head[6] == 2
    assert len(head) % 64 == 0
    assert int.from_bytes(head[8:12], "little") == len(head) - 12


def test_the_head_of_a_huge_tensor() -> None:
    subject = tensor(Filled(stored(b"")), "U8", [1 << 31, 1 << 31])
    assert read(subject, form="npy").bytes.size == (1 << 62) + 128
