"""Conversion of tensors to NumPy arrays from raw little-endian elements in row-major order."""

from __future__ import annotations

import math
import operator
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final

from protoslice.errors import CorruptModel, IntegrityError, InvalidIndex, Unsupported
from protoslice.facts import TensorEntry
from protoslice.sizes import format_size
from protoslice.tensors.dtypes import DTYPES

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
"""The dtypes that NumPy supports. Elements narrower than a byte take one byte each."""
_ML_DTYPES: Final[Mapping[str, str]] = {
    "BF16": "bfloat16", "F8_E4M3FN": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3",
    "F8_E3M4": "float8_e3m4", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E4M3B11FNUZ": "float8_e4m3b11fnuz", "F8_E8M0FNU": "float8_e8m0fnu",
    "F6_E2M3FN": "float6_e2m3fn", "F6_E3M2FN": "float6_e3m2fn", "F4_E2M1": "float4_e2m1fn",
}  # fmt: skip
"""The dtypes that the package ml_dtypes adds to NumPy."""


class LazyArray:
    """A tensor of an opened model, used like an array. Indexing reads only the selected elements.

    `tensor[17, :5]` and `tensor[...]` are NumPy arrays, and NumPy's functions accept the tensor. Elements of a string
    tensor are `bytes`. A quantized tensor has rows of bytes, which consist of blocks.

    Args:
        facts: Name, address, data type and shape of the tensor.
        read: Function that takes the text of a slice, or None for the whole tensor, and reads the elements.

    Examples:
        >>> with protoslice.open_model("model.onnx") as model:
        ...     tensor = model["head.weight"]
        ...     tensor.shape, tensor.dtype.name, tensor[::100_000].shape
        ((250000,), 'float32', (3,))
    """

    def __init__(self, facts: TensorEntry, read: Callable[[str | None], np.ndarray[Any, Any]]) -> None:
        self.facts = facts
        """The facts that the model states about the tensor, such as name, address, type and shape."""
        self._read = read

    def __repr__(self) -> str:
        size = "" if self.facts.size is None else f", {format_size(self.facts.size)}"
        problem = "" if self.facts.problem is None else f", {self.facts.problem}"
        kind = f"{self.facts.dtype or 'unknown type'} {self.dimensions}"
        return f"<LazyArray {self.name or self.address!r}: {kind}{size}{problem}>"

    @property
    def name(self) -> str:
        """The name in the model. Several tensors may share a name."""
        return self.facts.name

    @property
    def address(self) -> str:
        """The address, which identifies the tensor even if several tensors share its name."""
        return self.facts.address

    @property
    def dimensions(self) -> str:
        """The shape in readable form, such as `3×4`."""
        return "?" if self.facts.shape is None else "×".join(map(str, self.facts.shape)) or "scalar"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array. Access raises `CorruptModel` if the model has no valid shape."""
        if self.facts.shape is None:
            raise CorruptModel(self.facts.problem or f"The shape of tensor {self.name!r} is unknown", path=self.address)
        dtype = DTYPES.get(self.facts.dtype or "")
        return self.facts.shape if dtype is None or dtype.block is None else dtype.bytes_shape(self.facts.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the array.

        Access raises `Unsupported` if NumPy lacks the type, and `CorruptModel` if the model has no valid type.
        """
        require_numpy()
        if self.facts.dtype is None:
            raise CorruptModel(self.facts.problem or f"The type of tensor {self.name!r} is unknown", path=self.address)
        if self.facts.dtype == "STRING":
            import numpy as np

            return np.dtype(object)
        return _dtype("U8" if self._block is not None else self.facts.dtype)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The size of the array in bytes."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("A tensor without dimensions has no len()")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self[...])

    def __getitem__(self, index: Any) -> Any:
        """Return the elements that `index` selects. `index` may contain integers, slices, `...` and None, as in NumPy.

        Raise `InvalidIndex`, which is an `IndexError`, for other indices and for indices out of range.
        """
        require_numpy()
        wanted, left = _basic(index, self.shape, self._block)
        return self._read(wanted)[left]

    @property
    def _block(self) -> tuple[int, int] | None:
        dtype = DTYPES.get(self.facts.dtype or "")
        return None if dtype is None else dtype.block

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("copy=False is not possible, because reading a tensor copies it: use copy=None")
        import numpy as np

        return np.asarray(self[...], dtype)


def _basic(
    index: Any, shape: tuple[int, ...], block: tuple[int, int] | None
) -> tuple[str | None, tuple[slice | int | EllipsisType | None, ...]]:
    """Return the slice to read, and the index that must then be applied to the array read.

    The slice is a text, or None for the whole tensor.
    """
    items = [_item(each) for each in (index if isinstance(index, tuple) else (index,))]
    count = sum(each is not None and each is not ... for each in items)
    if count > len(shape):
        raise InvalidIndex(f"Too many indices: the tensor has {len(shape)} dimensions, but {count} are indexed")
    if items.count(...) > 1:
        raise InvalidIndex("An index may contain '...' only once")
    if ... not in items and count < len(shape):
        items.append(...)
    texts: list[str] = []
    left: list[slice | int | EllipsisType | None] = []
    for item in items:
        if item is ...:
            texts += [":"] * (len(shape) - count)
        if item is None or item is ...:
            left.append(item)
            continue
        length, is_last = shape[len(texts)], len(texts) == len(shape) - 1
        text, more = _step_of(item, length, block if is_last else None)
        texts.append(text)
        left += more
    return (None if set(texts) <= {":"} else ",".join(texts)), tuple(left)


def _item(each: Any) -> int | slice | EllipsisType | None:
    if each is None or isinstance(each, slice | EllipsisType):
        return each
    try:
        if not isinstance(each, bool):
            return operator.index(each)
    except TypeError:
        pass
    raise InvalidIndex(
        f"A tensor takes integers, slices, '...' and None as indices, not {type(each).__name__}: for a mask or a list "
        "of indices, read the tensor first, as in model[name][...][mask]"
    )


def _step_of(item: int | slice, length: int, block: tuple[int, int] | None) -> tuple[str, list[slice | int]]:
    """Return the slice of one dimension as text, and the index that must then be applied to this dimension.

    A dimension of quantized blocks is cut only between blocks, so that the slice may contain more than `item` selects.
    """
    if isinstance(item, slice):
        rows = range(*item.indices(length))
    elif -length <= item < length:
        rows = range(item % length, item % length + 1)
    else:
        raise InvalidIndex(f"Index {item} is out of range: the dimension has length {length}")
    forward = rows if rows.step > 0 else rows[::-1]
    if not rows or (isinstance(item, slice) and forward == range(length)):
        return ":" if rows else "0:0", [slice(None, None, rows.step if rows else None)]
    if block is None:
        if not isinstance(item, slice):
            return str(rows.start), []
        step = f":{forward.step}" if len(forward) > 1 and forward.step > 1 else ""
        return f"{forward[0]}:{forward[-1] + 1}{step}", [slice(None, None, 1 if rows.step > 0 else -1)]
    elements, size = block
    first, end = forward[0] // size, forward[-1] // size + 1
    start, step_, after = rows[0] - first * size, rows.step, rows[-1] - first * size + (1 if rows.step > 0 else -1)
    more = slice(start, None if after < 0 else after, step_) if isinstance(item, slice) else start
    return f"{first * elements}:{end * elements}", [more]


def require_numpy() -> None:
    """Raise `Unsupported` if NumPy is not installed. Callers check this before they send a request."""
    try:
        import numpy  # noqa: F401 - only its presence matters
    except ImportError as error:
        raise Unsupported("Tensors are returned as NumPy arrays: pip install numpy") from error


def slice_text(wanted: Slice) -> str:
    """Return a slice as text for the service's query parameter, such as `0:128,:,-3,::2`."""
    if isinstance(wanted, str):
        return wanted
    steps = wanted if isinstance(wanted, tuple) else (wanted,)
    return ",".join(_step(step) for step in steps)


def as_array(data: bytes | memoryview, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return the elements in `data` as a writable array; raise `IntegrityError` if `data` does not fit `shape`.

    The array is a view of `data` if `data` is writable, and otherwise a copy. A quantized tensor becomes an array of
    bytes, whose rows consist of blocks.
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

    array = np.frombuffer(data, kind).reshape(shape)
    return array if array.flags.writeable else array.copy()


def as_strings(data: Any) -> np.ndarray[Any, Any]:
    """Return the JSON of a string tensor as an array of `bytes`; raise `IntegrityError` for malformed JSON."""
    try:
        values = [b64decode(value, validate=True) for value in data["values"]]
        return strings_array(values, [int(size) for size in data["shape"]])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise IntegrityError("The response is not a valid tensor of strings") from error


def strings_array(values: Sequence[bytes], shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return the strings as an array with elements of type `bytes`."""
    import numpy as np

    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)


def shape_of(text: str) -> tuple[int, ...]:
    """Return the shape in `text`, the value of the header X-Tensor-Shape, with or without brackets.

    Raise `IntegrityError` for any other text.
    """
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
