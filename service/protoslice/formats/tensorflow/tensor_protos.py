"""TensorFlow's `TensorProto`: elements in `tensor_content` or in the field of their type."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Final, overload

from google.protobuf.message import DecodeError

from protoslice import _core, schema
from protoslice.errors import CorruptModel, LimitExceeded, Unsupported
from protoslice.formats.model import Data, Encoding, Filled, Later, RootProto, Stored, Strings
from protoslice.formats.tensorflow.bundle_strings import lengths_of
from protoslice.formats.tensorflow.types import dtype_of
from protoslice.formats.tensors.dtypes import Dtype
from protoslice.formats.tensors.fields import content, contents, numbers
from protoslice.formats.tensors.shapes import checked, element_count
from protoslice.sources.ropes import Rope

TENSOR: Final = "tensorflow.TensorProto"

_CONTENT, _STRINGS = 4, 8
_FIXED: Final = {"F32": 5, "F64": 6, "C64": 9, "C128": 12}
_INTS: Final = ("I32", "I16", "I8", "I4", "I2", "U16", "U8", "U4", "U2")
_VARINTS: Final = {
    "I64": 10, "BOOL": 11, "F16": 13, "BF16": 13, "U32": 16, "U64": 17, **dict.fromkeys(_INTS, 7)
}  # fmt: skip
_BYTES: Final = dict.fromkeys(("F8_E5M2", "F8_E4M3FN", "F8_E4M3FNUZ", "F8_E4M3B11FNUZ", "F8_E5M2FNUZ", "F4_E2M1"), 18)
"""Dtype → number of the field with its values: of fixed width, varints, or a byte for each element."""
_PACKED_STRINGS: Final = 64 << 20
_LOOKED_AT: Final = 1 << 20
_EMPTY: Final = Rope.joined(())


class TensorProtos:
    """Reader of the TensorProtos in one proto."""

    def __init__(self, proto: RootProto) -> None:
        self._proto = proto
        self._message = schema.bundled().message_class(TENSOR)

    def head(self, found: _core.Finding) -> Any:
        """The message without its elements; `CorruptModel` if it does not parse."""
        try:
            return schema.parsed(self._message, found.skeleton)
        except DecodeError as error:
            raise CorruptModel(f"A TensorProto does not parse: {error}", path=found.path) from error

    def data(self, found: _core.Finding, number: int, shape: Sequence[int]) -> Data:
        """The elements of `found`, of TensorFlow's type `number`; missing ones repeat the last, or are zero."""
        dtype, count = dtype_of(number), element_count(shape)
        whole = content(self._proto, found, _CONTENT)
        if not dtype.bits:
            return self._strings(found, whole, count)
        if whole is not None and whole.size:
            return checked(Stored(whole, Encoding.LOOSE if dtype.narrow else Encoding.PLAIN), dtype, shape)
        if not count:
            return Stored(_EMPTY)
        match self._typed(found, dtype):
            case None:
                return Filled(Stored(_EMPTY))
            case Later(look):
                return Later(lambda: _filled(look(), dtype, count))
            case stored:
                return _looked_at(stored, count) if dtype.name == "BOOL" else _filled(stored, dtype, count)

    def _typed(self, found: _core.Finding, dtype: Dtype) -> Stored | Later[Stored] | None:
        """The values in the field for `dtype`; None if absent."""
        if dtype.name in _FIXED:
            return numbers(self._proto, found, _FIXED[dtype.name], Encoding.PLAIN)
        if dtype.name in _VARINTS:
            return numbers(self._proto, found, _VARINTS[dtype.name], Encoding.VARINT)
        if dtype.name not in _BYTES:
            raise Unsupported(f"No field of a TensorProto holds values of type {dtype.name}")
        values = content(self._proto, found, _BYTES[dtype.name])
        return None if values is None else Stored(values, Encoding.LOOSE if dtype.narrow else Encoding.PLAIN)

    def _strings(self, found: _core.Finding, whole: Rope | None, count: int) -> Strings:
        if whole is not None and whole.size:
            return Strings(lambda: _unpacked(whole, count))
        places = list(contents(self._proto, found, _STRINGS))
        if len(places) > count > 0:
            raise CorruptModel(f"The shape of a tensor needs {count} strings, but it has {len(places)}")

        def read() -> Sequence[bytes]:
            values = [place.read() for place in places[:count]]
            return _Continued(values or [b""], count)

        return Strings(read)


def _filled(stored: Stored, dtype: Dtype, count: int) -> Stored | Filled:
    """`stored` if it has all elements, else with its last one repeated; `CorruptModel` for too many."""
    if stored.encoding is not Encoding.PLAIN:
        return Filled(stored)
    have, rest = divmod(stored.bytes.size, dtype.width)
    if rest or have > count:
        raise CorruptModel(f"{stored.bytes.size} bytes of data do not fit a tensor of {count} elements of {dtype.name}")
    return stored if have == count else Filled(stored)


def _looked_at(stored: Stored, count: int) -> Later[Stored | Filled] | Filled:
    """Booleans: Later for up to 1 MiB of one-byte varints, whose values may be the elements, else Filled."""
    if stored.bytes.size != count or count > _LOOKED_AT:
        return Filled(stored)

    def look() -> Stored | Filled:
        # Varints of one byte, 0 or 1, are the elements in PLAIN encoding.
        plain = max(stored.bytes.read()) <= 1
        return Stored(stored.bytes) if plain else Filled(stored)

    return Later(look)


def _unpacked(whole: Rope, count: int) -> Sequence[bytes]:
    """The strings in `tensor_content`: all lengths, then all strings."""
    if whole.size > _PACKED_STRINGS:
        raise LimitExceeded(f"The strings of a tensor have {whole.size} bytes; at most {_PACKED_STRINGS} are read")
    data = whole.read()
    lengths, at = lengths_of(data, count)
    if at + sum(lengths) != len(data):
        raise CorruptModel(f"The strings of a tensor should take {at + sum(lengths)} bytes, but there are {len(data)}")
    return [data[start:stop] for start, stop in pairwise(accumulate(lengths, initial=at))]


class _Continued(Sequence[bytes]):
    """A sequence of `count` values, of which the last stored one is repeated."""

    def __init__(self, values: list[bytes], count: int) -> None:
        self._values = values
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int, /) -> bytes: ...
    @overload
    def __getitem__(self, at: slice, /) -> Sequence[bytes]: ...
    def __getitem__(self, at: int | slice, /) -> bytes | Sequence[bytes]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(self._count))]
        if not 0 <= at < self._count:
            raise IndexError(at)
        return self._values[min(at, len(self._values) - 1)]
