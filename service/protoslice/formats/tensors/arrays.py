"""Tensors as numpy arrays, from raw little-endian elements in row-major order."""

from __future__ import annotations

import math
from base64 import b64decode
from collections.abc import Mapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final

from protoslice.errors import IntegrityError, Unsupported
from protoslice.formats.tensors.dtypes import DTYPES

if TYPE_CHECKING:
    import numpy as np

Slice = str | int | slice | EllipsisType | tuple[int | slice | EllipsisType, ...]

_NUMPY: Final[Mapping[str, str]] = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
    "I4": "i1", "U6": "u1", "U4": "u1", "U3": "u1", "I2": "i1", "U2": "u1", "I1": "i1", "U1": "u1",
    "BOOL": "?", "C64": "<c8", "C128": "<c16",
}  # fmt: skip
"""Types that numpy has; those narrower than a byte come one element to a byte."""
_ML_DTYPES: Final[Mapping[str, str]] = {
    "BF16": "bfloat16", "F8_E4M3FN": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3",
    "F8_E3M4": "float8_e3m4", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E4M3B11FNUZ": "float8_e4m3b11fnuz", "F8_E8M0FNU": "float8_e8m0fnu",
    "F6_E2M3FN": "float6_e2m3fn", "F6_E3M2FN": "float6_e3m2fn", "F4_E2M1": "float4_e2m1fn",
}  # fmt: skip
"""Types that the package ml_dtypes adds to numpy."""


def require_numpy() -> None:
    """Raise `Unsupported` without numpy, before anything is asked of a service."""
    try:
        import numpy  # noqa: F401 - only its presence matters
    except ImportError as error:
        raise Unsupported("Tensors are returned as NumPy arrays: pip install numpy") from error


def slice_text(wanted: Slice) -> str:
    """Slice as the service's query text: `0:128,:,-3,::2`."""
    if isinstance(wanted, str):
        return wanted
    steps = wanted if isinstance(wanted, tuple) else (wanted,)
    return ",".join(_step(step) for step in steps)


def as_array(data: bytes, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Elements as a writable array; `IntegrityError` when `data` does not fit `shape`.

    Quantized tensors are arrays of bytes, whose rows consist of blocks.
    """
    quantized = DTYPES.get(dtype)
    if quantized is not None and quantized.block is not None:
        dtype, shape = "U8", quantized.bytes_shape(shape)
    kind = _dtype(dtype)
    if math.prod(shape) * kind.itemsize != len(data):
        raise IntegrityError(
            f"Received {len(data)} bytes for a tensor of type {dtype} and shape {list(shape)}, which does not fit"
        )
    import numpy as np

    return np.frombuffer(bytearray(data), kind).reshape(shape)


def as_strings(data: Any) -> np.ndarray[Any, Any]:
    """Array of `bytes` from the JSON of a tensor of strings; `IntegrityError` for other JSON."""
    try:
        values = [b64decode(value, validate=True) for value in data["values"]]
        return strings_array(values, [int(size) for size in data["shape"]])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise IntegrityError("Received a malformed tensor of strings") from error


def strings_array(values: Sequence[bytes], shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """Strings as an array of `bytes`."""
    import numpy as np

    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)


def shape_of(text: str) -> tuple[int, ...]:
    """Shape from the header X-Tensor-Shape, with or without brackets."""
    plain = text.strip().strip("[]()").strip().rstrip(",")
    try:
        return tuple(int(size) for size in plain.split(",")) if plain else ()
    except ValueError:
        raise IntegrityError(f"Invalid tensor shape {text[:80]!r}") from None


def _dtype(name: str) -> np.dtype[Any]:
    try:
        import numpy as np

        if name in _NUMPY:
            return np.dtype(_NUMPY[name])
        import ml_dtypes
    except ImportError as error:
        raise Unsupported(f"Tensors of type {name} need another package: pip install {error.name}") from error
    found = getattr(ml_dtypes, _ML_DTYPES.get(name, ""), None)
    if found is None:
        raise Unsupported(f"NumPy has no type for tensors of type {name}")
    kind: np.dtype[Any] = np.dtype(found)
    return kind


def _step(step: int | slice | EllipsisType) -> str:
    if isinstance(step, EllipsisType):
        return "..."
    if isinstance(step, int):
        return str(step)
    text = f"{'' if step.start is None else step.start}:{'' if step.stop is None else step.stop}"
    return text if step.step is None else f"{text}:{step.step}"
