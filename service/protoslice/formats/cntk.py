"""CNTK v2 models: arrays in nested dictionaries. Each array is named after the variable that holds it."""

from __future__ import annotations

from array import array
from contextlib import suppress
from typing import Final

from protoslice import _core, schema
from protoslice.errors import CorruptModel, Unsupported
from protoslice.formats.messages import ProtoFormat, TensorBuilder, content, elements, numbers, parsed
from protoslice.tensors.dtypes import DTYPES, element_count
from protoslice.tensors.listing import HashIndex, Tensors
from protoslice.tensors.model import Data, Deferred, Encoding, Model, RootProto, Stored, Tensor

_ARRAY: Final = "CNTK.proto.NDArrayView"
_TEXT: Final = "CNTK.proto.DictionaryValue"
_FLOATS, _DOUBLES, _BYTES, _INTS = (
    f"{_ARRAY}.{name}" for name in ("FloatValues", "DoubleValues", "BytesValue", "IntValues")
)
_TYPES: Final = {
    1: ("F32", "float_values", Encoding.PLAIN),
    2: ("F64", "double_values", Encoding.PLAIN),
    # CNTK stores half floats as floats.
    4: ("F32", "float_values", Encoding.PLAIN),
    5: ("I8", "bytes_value", Encoding.PLAIN),
    6: ("I16", "sint32_values", Encoding.ZIGZAG),
}
"""A map from an array's data type to the dtype, the field with the values, and the values' encoding."""
_VALUE: Final = '.data["value"].nd_array_view_value'
_NAMES: Final = ("name", "uid")
_NAMING: Final = tuple(f'data["{name}"]' for name in _NAMES)
_SMALL_FIELD: Final = 1024


class Cntk(ProtoFormat):
    """The format of CNTK's models, checkpoints and other dictionaries."""

    name = "cntk"
    package = "CNTK.proto."

    def tensors_in(self, model: Model, proto: RootProto) -> Tensors:
        """Return all arrays, at any depth of the dictionaries."""
        types = [_ARRAY, _FLOATS, _DOUBLES, _BYTES, _INTS, _TEXT]
        make = _Maker(model.root, proto, proto.document.find(types, small=_SMALL_FIELD))
        return Tensors(make.count, make.tensor, make.called)


class _Maker:
    """A builder that makes tensors from the messages that a search found in one model."""

    def __init__(self, file: str, proto: RootProto, found: _core.Findings) -> None:
        self._file = file
        self._proto = proto
        types = schema.bundled()
        self._array, self._text = types.message_class(_ARRAY), types.message_class(_TEXT)
        self._found = found
        self._arrays, self._names = array("I"), array("I")
        for number, each in enumerate(found):
            if each.type == _ARRAY:
                self._arrays.append(number)
            elif each.type == _TEXT and each.path.endswith(_NAMING):
                self._names.append(number)
        self._named = HashIndex((found[number].path for number in self._names), len(self._names))

    @property
    def count(self) -> int:
        """The number of arrays."""
        return len(self._arrays)

    def called(self, number: int) -> tuple[str, str]:
        """Return the name and address of array `number`."""
        path = self._found[self._arrays[number]].path
        return self._name(path), f"path:{path}"

    def tensor(self, number: int) -> Tensor:
        """Return the array `number` as a tensor."""
        found = self._found[self._arrays[number]]
        builder = TensorBuilder(self._name(found.path), found.path, "parameter", self._file)
        return builder.tensor(lambda builder: self._data(builder, self._arrays[number]))

    def _data(self, builder: TensorBuilder, number: int) -> Data:
        found = self._found[number]
        message = parsed(self._array, found)
        # CNTK stores arrays column-major. Reversing the dimensions makes the same bytes row-major; CNTK's Python
        # interface shows this reversed shape too.
        shape = tuple(reversed(message.shape.shape_dim))
        count = element_count(shape)
        builder.shape = shape
        if message.data_type not in _TYPES:
            raise CorruptModel(f"CNTK has no arrays of data type {message.data_type}")
        name, member, encoding = _TYPES[message.data_type]
        builder.dtype = DTYPES[name]
        if message.storage_format:
            raise Unsupported("Sparse arrays are not supported, only dense ones")
        data = self._values_of(number, member, encoding)
        lack = (
            f"An array of {count} elements has no values in {member}: it is damaged, or belongs to a "
            "model above 2 GiB, whose values CNTK stores after the proto (not supported)"
        )
        return elements(data, builder.dtype, shape, lack)

    def _values_of(self, number: int, member: str, encoding: Encoding) -> Stored | Deferred[Stored] | None:
        """Return the values in the field `member` of the array in the found message `number`; None if it is absent."""
        path = self._found[number].path
        # The values are a separate message, which the search lists directly after the array.
        values = self._found[number + 1] if number + 1 < len(self._found) else None
        if values is None or values.path != (f"{path}.{member}" if path else member):
            return None
        if member != "bytes_value":
            return numbers(self._proto, values, 1, encoding)
        raw = content(self._proto, values, 1)
        return None if raw is None else Stored(raw)

    def _name(self, path: str) -> str:
        """Return the name of the variable that holds the array.

        If the variable has no name, return its uid. If it has neither, return the path of the array.
        """
        holder = path.removesuffix(_VALUE)
        if holder == path:
            return path
        names = (self._text_at(f'{holder}.data["{name}"]') for name in _NAMES)
        return next((name for name in names if name), path)

    def _text_at(self, path: str) -> str:
        """Return the string in the dictionary value at `path`, or "" if there is none.

        If several values have this path, the last readable value counts.
        """
        for at in reversed(self._named.find(path)):
            found = self._found[self._names[at]]
            if found.path == path:
                with suppress(CorruptModel):
                    text: str = parsed(self._text, found).string_value
                    return text
        return ""
