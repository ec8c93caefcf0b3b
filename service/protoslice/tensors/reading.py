"""Reading of tensors and slices in several forms, such as bytes, NumPy files and JSON, and conversion to floats."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Final, Literal, get_args

from protoslice import _core
from protoslice._core import Computed
from protoslice.errors import OF_MODELS, CorruptModel, InvalidInput, LimitExceeded, NotFound, Unsupported
from protoslice.sources.ropes import Rope, RopeBuilder, SourceList
from protoslice.sources.source import RangeSource
from protoslice.tensors.dtypes import DTYPES, Dtype
from protoslice.tensors.layout import VARINTS, Located, count_varints, parts_of, selected
from protoslice.tensors.listing import row
from protoslice.tensors.model import Data, Deferred, Encoding, Stored, Strings, Tensor, Unreadable
from protoslice.tensors.slices import TensorSlice, of_blocks, parsed_slice, whole

_MAGIC: Final = b"\x93NUMPY"
_ALIGNMENT: Final = 64


def npy_descr(dtype: Dtype) -> str:
    """Return NumPy's `descr` of `dtype`, or of integers of the same width if NumPy has no such type.

    Integers narrower than a byte appear as `|i1` or `|u1`. Floats without a NumPy type appear as `|u1` or `<u2`.
    """
    if dtype.numpy is not None:
        return dtype.numpy
    if dtype.narrow and dtype.signed:
        return "|i1"
    return "|u1" if dtype.width == 1 else f"<u{dtype.width}"


def npy_head(dtype: Dtype, shape: Sequence[int]) -> bytes:
    """Return the header of an `.npy` file. Its padding aligns the elements to 64 bytes."""
    lengths = "".join(f"{length}, " for length in shape)
    lengths = lengths[:-1] if len(shape) == 1 else lengths[:-2]
    text = f"{{'descr': '{npy_descr(dtype)}', 'fortran_order': False, 'shape': ({lengths}), }}".encode()
    version, digits = (1, 2) if len(text) < 65000 else (2, 4)
    before = len(_MAGIC) + 2 + digits
    text = text.ljust(-(-(before + len(text) + 1) // _ALIGNMENT) * _ALIGNMENT - before - 1) + b"\n"
    return _MAGIC + bytes([version, 0]) + len(text).to_bytes(digits, "little") + text


Form = Literal["raw", "packed", "npy", "json", "lod"]
"""The forms in which a tensor can be read.

- `raw`: elements in PLAIN encoding
- `packed`: like `raw`, but elements narrower than a byte are a bit stream
- `npy`: an `.npy` file
- `json`: facts about the tensor, or the elements of a string tensor in base64
- `lod`: levels of detail as JSON
"""

FORMS: Final[tuple[Form, ...]] = get_args(Form)

_BYTE: Final = DTYPES["U8"]
_LARGEST_TENSOR: Final = (1 << 63) - 1
_MOST_COMPARED: Final = 64 << 20
"""The size in bytes up to which a full read compares the checksum of a part of a tensor."""
_MOST_STRINGS: Final = 1 << 20
_MOST_TEXT: Final = 64 << 20
_LEAST: Final = 256
_COUNTED_AS_ONE: Final = 8192
"""The number of varint bytes for which the remembered offsets take at most one byte of memory."""


@dataclass(frozen=True, slots=True)
class ReadableTensor:
    """A tensor, or a slice of a tensor, in one of `FORMS`."""

    bytes: Rope
    dtype: Dtype
    shape: tuple[int, ...]

    @property
    def as_bytes(self) -> ReadableTensor:
        """The tensor as rows of bytes if it is quantized; any other tensor unchanged."""
        if self.dtype.block is None:
            return self
        return ReadableTensor(self.bytes, _BYTE, self.dtype.bytes_shape(self.shape))


@dataclass(frozen=True, slots=True)
class Place:
    """The file range that contains a tensor's elements exactly as they are served."""

    file: str
    offset: int
    length: int


def read(tensor: Tensor, slice_: str | None = None, form: str = "raw", *, compare: bool = True) -> ReadableTensor:
    """Return the elements of `tensor`, or only the elements that `slice_` selects, in one of `FORMS`.

    If `compare` is True, the read counts varints, and a full read compares the checksums of parts up to 64 MiB.
    A `CorruptModel` error names the tensor.
    """
    with _blaming(tensor):
        if tells_facts(tensor, form):
            return _told(tensor, slice_, form)
        reading = _read(tensor, slice_, form, count=compare)
        if compare and slice_ is None:
            for part in parts_of(tensor.data):
                if part.compare is not None and part.bytes.size <= _MOST_COMPARED:
                    part.compare()
        return reading


def strings(tensor: Tensor) -> tuple[Sequence[bytes], tuple[int, ...]]:
    """Return all elements of a tensor of strings in row-major order, and the shape of the tensor."""
    with _blaming(tensor):
        _, shape = _known(tensor)
        assert isinstance(tensor.data, Strings), "tensors of other types have no strings"
        return _all_strings(tensor.data, shape), shape


def tells_facts(tensor: Tensor, form: str) -> bool:
    """Return True when reading `tensor` in `form` returns facts about the tensor instead of its elements."""
    has_strings = tensor.dtype is not None and not tensor.dtype.bits
    return form == "lod" or (form == "json" and not has_strings)


def is_resolved(tensor: Tensor) -> bool:
    """Return True when the elements of `tensor` have a known location and contain no varints.

    A read then needs neither a look-up nor a pass over varints.
    """
    return not isinstance(tensor.data, Deferred) and all(part.encoding not in VARINTS for part in parts_of(tensor.data))


def resolve(tensor: Tensor) -> tuple[Tensor, int]:
    """Return a copy of `tensor` with located elements and counted varints, and the copy's rough memory in bytes."""
    with _blaming(tensor):
        dtype, shape = _known(tensor)
        data = _placed(tensor.data)
        return replace(tensor, data=count_varints(data, dtype, shape)), _held(data)


def locate(tensor: Tensor) -> tuple[Tensor, int]:
    """Return a copy of `tensor` with located elements, and the copy's approximate memory in bytes.

    If the model has an error, return the tensor unchanged. Reading the tensor then raises the error.
    """
    try:
        data = tensor.data.locate() if isinstance(tensor.data, Deferred) else tensor.data
    except OF_MODELS:
        return tensor, _LEAST
    return replace(tensor, data=data), _held(data)


def _held(data: Data) -> int:
    return sum(_LEAST + part.bytes.literals + part.bytes.size // _COUNTED_AS_ONE for part in parts_of(data))


@contextmanager
def _blaming(tensor: Tensor) -> Iterator[None]:
    """Set the address of `tensor` as the path of each `CorruptModel` that has no path."""
    try:
        yield
    except CorruptModel as error:
        if error.path is None:
            error.path = tensor.address.removeprefix("path:")
        raise


def place(tensor: Tensor, elements: Rope, files: Mapping[str, RangeSource]) -> Place | None:
    """Return the range of the tensor's file that contains `elements`; None unless there is exactly one such range.

    `elements` are the bytes that `read` returned for `tensor`.
    """
    source = None if tensor.file is None else files.get(tensor.file)
    match elements.core.pieces():
        case [(int(number), int(offset), int(length))] if elements.sources[number] is source and source is not None:
            return Place(str(tensor.file), offset, length)
    return None


def _read(tensor: Tensor, slice_: str | None, form: str, *, count: bool) -> ReadableTensor:
    if form not in FORMS:
        raise InvalidInput(f"Unknown tensor format {form!r}; use one of {', '.join(FORMS)}")
    dtype, shape = _known(tensor)
    wanted = whole(shape) if slice_ is None else parsed_slice(slice_, shape)
    if isinstance(tensor.data, Strings):
        return ReadableTensor(
            _strings(tensor, tensor.data, wanted, form, _stored(tensor) if slice_ is None else {}), dtype, wanted.shape
        )
    data = _placed(tensor.data)
    if count and wanted.count:
        data = count_varints(data, dtype, shape)
    # Both branches check the number of elements.
    if dtype.block is None:
        elements = selected(data, dtype, shape, wanted)
    else:
        elements = selected(data, _BYTE, dtype.bytes_shape(shape), of_blocks(wanted, dtype))
    if form == "packed" and dtype.narrow:
        if slice_ is None and isinstance(data, Stored) and data.encoding is Encoding.PACKED:
            elements = data.bytes
        else:
            elements = Rope.of(Computed.packed(elements, dtype.bits))
    if form == "npy":
        shown = ReadableTensor(elements, dtype, wanted.shape).as_bytes
        elements = Rope.joined([npy_head(shown.dtype, shown.shape), elements])
    return ReadableTensor(elements, dtype, wanted.shape)


def _known(tensor: Tensor) -> tuple[Dtype, tuple[int, ...]]:
    """Return the dtype and shape of a readable tensor; raise the error of an `Unreadable` tensor."""
    if isinstance(tensor.data, Unreadable):
        raise tensor.data.error.with_traceback(None)
    dtype, shape = tensor.dtype, tensor.shape
    if dtype is None or shape is None:
        raise CorruptModel(f"The type or shape of tensor {tensor.name!r} is unknown", path=tensor.address)
    if prod(shape) * max(dtype.width, 1) > _LARGEST_TENSOR:
        raise LimitExceeded(f"Tensor {tensor.name!r} of shape {list(shape)} has more than 2^63 bytes")
    return dtype, shape


def _placed(data: Data) -> Located:
    """Return `data` with a known location, which is looked up if necessary."""
    found = data.locate() if isinstance(data, Deferred) else data
    assert not isinstance(found, Strings | Unreadable), "these have been dealt with"
    return found


def _told(tensor: Tensor, slice_: str | None, form: str) -> ReadableTensor:
    """Return the facts about a tensor, or its levels of detail, as JSON. This works for unreadable elements too."""
    if slice_ is not None:
        raise InvalidInput(f"Format {form} describes the whole tensor {tensor.name!r}: leave out the slice")
    stored = _stored(tensor)
    members = row(tensor) | stored if form == "json" else stored.get("stored", {})
    if form == "lod" and not members.keys() & {"levels", "rows"}:
        raise NotFound(f"Tensor {tensor.name!r} has no levels of detail")
    if tensor.dtype is None or tensor.shape is None:
        return ReadableTensor(_json(members), *_known(tensor))
    return ReadableTensor(_json(members), tensor.dtype, tensor.shape)


def _stored(tensor: Tensor) -> dict[str, Mapping[str, object]]:
    """Return the further facts about a tensor as a member `stored`; empty if there are none."""
    return {} if tensor.details is None else {"stored": tensor.details()}


def _json(members: Mapping[str, object]) -> Rope:
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":"))
    return Rope.joined([text.encode("utf-8", "backslashreplace")])


def _strings(tensor: Tensor, data: Strings, wanted: TensorSlice, form: str, more: Mapping[str, object]) -> Rope:
    dtype, shape = _known(tensor)
    if form != "json":
        raise Unsupported(f"A tensor of strings has no {form} format: use format=json")
    if wanted.count > _MOST_STRINGS:
        raise LimitExceeded(f"{wanted.count} strings are too many at once (at most {_MOST_STRINGS}): ask for a slice")
    values = _all_strings(data, shape)
    texts: list[str] = []
    length = 0
    for number in _numbers(shape, wanted):
        texts.append(base64.b64encode(values[number]).decode())
        length += len(texts[-1])
        if length > _MOST_TEXT:
            raise LimitExceeded(f"The strings have more than {_MOST_TEXT} characters: ask for a slice")
    return _json({"dtype": dtype.name, "shape": list(wanted.shape), "values": texts, **more})


def _all_strings(data: Strings, shape: Sequence[int]) -> Sequence[bytes]:
    values = data.read()
    if len(values) != prod(shape):
        raise CorruptModel(f"The tensor has {len(values)} strings, but its shape needs {prod(shape)}")
    return values


def _numbers(shape: Sequence[int], wanted: TensorSlice) -> Iterator[int]:
    """Return the row-major numbers of the elements that `wanted` selects."""
    if not wanted.count:
        return iter(())
    ranges: list[range] = []
    stride = 1
    for length, start, step, count in zip(
        reversed(shape), *map(reversed, (wanted.starts, wanted.steps, wanted.counts)), strict=True
    ):
        ranges.append(range(start * stride, (start + count * step) * stride, step * stride))
        stride *= length
    return map(sum, product(*reversed(ranges)))


# Conversion to floats of another type: quantized elements are dequantized, floats are rounded to the nearest.

FLOATS: Final = ("F64", "F32", "F16", "BF16")
"""The dtypes to which tensors can be converted."""
_WIDENED: Final = frozenset({"F16", "BF16"})


def float_type(name: str) -> Dtype:
    """Return the float dtype `name`, in upper or lower case; raise `InvalidInput` for any other name."""
    if name.upper() not in FLOATS:
        raise InvalidInput(f"Cannot convert tensors to {name[:40]!r}: use one of {', '.join(FLOATS)}")
    return DTYPES[name.upper()]


def is_float(dtype: Dtype) -> bool:
    """Return True for floats of any width, and for quantized dtypes."""
    return dtype.block is not None or dtype.name.startswith(("F", "BF"))


def dequantized(tensor: Tensor) -> Tensor:
    """Convert a quantized tensor, or a tensor of F16 or BF16, to F32. Return any other tensor unchanged.

    Raise `Unsupported` for a quantized dtype that cannot be decoded.
    """
    dtype = tensor.dtype
    wanted = dtype is not None and (dtype.block is not None or dtype.name in _WIDENED)
    return converted(tensor, DTYPES["F32"]) if wanted else tensor


def converted(tensor: Tensor, to: Dtype) -> Tensor:
    """Return `tensor` with floats of the dtype `to`, which are computed when they are read.

    Raise the error of a faulty tensor. Raise `Unsupported` for strings, complex numbers, and quantized dtypes that
    cannot be decoded.
    """
    if tensor.dtype is to:
        return tensor
    stored = read(tensor, compare=False)
    return replace(tensor, dtype=to, data=Stored(Rope.of(_computed(stored, to, _has_big_blocks(tensor)))))


def _computed(stored: ReadableTensor, to: Dtype, big_endian: bool) -> _core.Computed:
    data, count = stored.bytes, prod(stored.shape)
    return _core.Computed.converted(data, stored.dtype.name, to.name, count, big_endian=big_endian)


def _has_big_blocks(tensor: Tensor) -> bool:
    """Return True for a quantized tensor whose blocks have big-endian scales."""
    big_endian = isinstance(tensor.data, Stored) and tensor.data.encoding is Encoding.BIG_ENDIAN
    return big_endian and tensor.dtype is not None and tensor.dtype.block is not None


class _Joined:
    """A placeholder source for the converted elements of all tensors of one stored dtype.

    It is in use until all these tensors are known.
    """

    def __init__(self) -> None:
        self.size = 0
        self.sources = SourceList()
        self.stored = RopeBuilder(self.sources)

    def read(self, offset: int, length: int, /) -> bytes:
        """Raise an error, because the elements are not known yet."""
        raise AssertionError("`Converted.finish` comes first")  # pragma: no cover


class Converted:
    """A converter of many tensors to one dtype.

    All tensors of one stored dtype share a single computed source, so that the file has only a few sources.
    """

    def __init__(self, to: Dtype, sources: SourceList) -> None:
        """Take the dtype `to`, and the `sources` of the file. `finish` replaces the placeholders in `sources`."""
        self._to = to
        self._sources = sources
        self._joined: dict[tuple[Dtype, bool], _Joined] = {}

    def takes(self, tensor: Tensor) -> bool:
        """Return True when `tensor` must be converted: it has floats of another dtype, or quantized elements."""
        dtype = tensor.dtype
        return dtype is not None and dtype is not self._to and is_float(dtype)

    def add(self, tensor: Tensor) -> ReadableTensor:
        """Return the converted `tensor`. Its rope has its final size, but can be read only after `finish`.

        Raise the errors of `converted`.
        """
        stored, big_endian = read(tensor, compare=False), _has_big_blocks(tensor)
        size = _computed(stored, self._to, big_endian).size  # an error concerns only this tensor if it is raised here
        joined = self._joined.setdefault((stored.dtype, big_endian), _Joined())
        start = joined.size
        joined.size += size
        joined.stored.add(stored.bytes)
        return ReadableTensor(Rope.of(joined, start, joined.size), self._to, stored.shape)

    def finish(self) -> None:
        """Replace the placeholders in the file's sources with the computed elements."""
        for (dtype, big_endian), joined in self._joined.items():
            data = Rope(_core.Rope(joined.stored.ropes()), joined.sources.listed)
            elements = joined.size // self._to.width
            whole = ReadableTensor(data, dtype, (elements,))
            self._sources.listed[self._sources.number(joined)] = _computed(whole, self._to, big_endian)
