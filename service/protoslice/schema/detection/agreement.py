"""Consistency checks for messages with few fields: tensors, and manifests of split protos."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from itertools import islice

from protoslice import varints

_VARINT, _LENGTH = 0, 2
_FIXED = {1: 8, 5: 4}
_MAX_FIELDS = 64
_MAX_DIMS = 256
_Dims = Callable[[int, int, int, bytes], list[int]]

_TENSORFLOW_BITS = {1: 32, 2: 64, 3: 32, 4: 8, 5: 16, 6: 8, 8: 64, 9: 64, 10: 8, 14: 16, 17: 16, 18: 128, 19: 16}
_TENSORFLOW_BITS |= {22: 32, 23: 64, 24: 8, 25: 8, 26: 8, 27: 8, 28: 8, 29: 8, 30: 8, 31: 8, 32: 8, 33: 8}
_ONNX_BITS = {1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128}
_ONNX_BITS |= {16: 16, 17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2, 27: 6, 28: 6}


_TYPE_NAME = re.compile(rb"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def agrees(head: bytes, name: str) -> bool:
    """True when the values in `head` are consistent with the type `name`; False for types without a check."""
    if name == "tensorflow.TensorProto":
        return _is_tensor(head, dtype=1, content=4, bits=_TENSORFLOW_BITS, dims=_tensorflow_dims)
    if name == "onnx.TensorProto":
        return _is_tensor(head, dtype=2, content=9, bits=_ONNX_BITS, dims=_onnx_dims)
    return name == "xla.SplitProtoManifest" and _is_manifest(head)


def _is_manifest(head: bytes) -> bool:
    """True when a dotted type name comes first and all other fields are records."""
    fields = list(_fields(head))
    named = bool(fields) and fields[0][:2] == (1, _LENGTH) and _TYPE_NAME.fullmatch(fields[0][3]) is not None
    return named and all(each[:2] == (2, _LENGTH) for each in fields[1:])


def _is_tensor(head: bytes, *, dtype: int, content: int, bits: dict[int, int], dims: _Dims) -> bool:
    """True when the length of the content matches dtype and shape."""
    width, length, shape = 0, -1, list[int]()
    for number, wire, value, data in _fields(head):
        if number == dtype and wire == _VARINT:
            width = bits.get(value, 0)
        elif number == content and wire == _LENGTH:
            length = value
        else:
            shape += dims(number, wire, value, data)
    return width > 0 and length > 0 and bool(shape) and length == -(-math.prod(shape) * width // 8)


def _tensorflow_dims(number: int, wire: int, _value: int, data: bytes) -> list[int]:
    """Dimensions in field 2, a TensorShapeProto; empty for other fields."""
    if number != 2 or wire != _LENGTH:
        return []
    sizes = [list(_fields(dim)) for each, kind, _, dim in _fields(data) if (each, kind) == (2, _LENGTH)]
    return [next((value for each, _, value, _ in dim if each == 1), 0) for dim in sizes]


def _onnx_dims(number: int, wire: int, value: int, data: bytes) -> list[int]:
    """Dimensions in field 1, packed or not; empty for other fields and above 256 dimensions."""
    if number != 1:
        return []
    sizes = [value] if wire == _VARINT else list(islice(_packed(data), _MAX_DIMS + 1))
    return sizes if len(sizes) <= _MAX_DIMS else []


def _packed(data: bytes) -> Iterator[int]:
    at = 0
    while 0 <= at < len(data):
        value, at = varints.read(data, at)
        if at > 0:
            yield value


def _fields(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Fields of a message as far as they parse: number, wire type, value or length, available bytes."""
    at = 0
    for _ in range(_MAX_FIELDS):
        tag, at = varints.read(data, at)
        wire, start = tag & 7, at
        value = _FIXED.get(wire, -1)
        if at > 0 and wire in (_VARINT, _LENGTH):
            value, start = varints.read(data, at)
        if start < 0 or value < 0:
            return
        at = start if wire == _VARINT else start + value
        yield tag >> 3, wire, value, data[start:at]
