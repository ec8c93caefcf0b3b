"""ML programs of Core ML: constants of operations, immediate or in blob files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from protoslice import _core, schema
from protoslice.errors import CorruptModel, Unsupported
from protoslice.formats.coreml.blobs import blob
from protoslice.formats.model import Data, Encoding, Later, Model, RootProto, Stored, Strings, Tensor
from protoslice.formats.tensors.drafts import TensorDraft, parsed
from protoslice.formats.tensors.dtypes import DTYPES, Dtype
from protoslice.formats.tensors.fields import content, contents, numbers
from protoslice.formats.tensors.locations import beside
from protoslice.formats.tensors.shapes import checked, element_count
from protoslice.formats.uses import Kinds, Operator, kinds_in
from protoslice.sources.ropes import Rope

_SPACE: Final = "CoreML.Specification.MILSpec"
_OPERATION: Final = f"{_SPACE}.Operation"
_VALUE: Final = f"{_SPACE}.Value"
_IMMEDIATE, _BLOB = 3, 5
_MODEL_PATH: Final = "@model_path/"

_DTYPES: Final = {
    1: "BOOL", 2: "STRING", 10: "F16", 11: "F32", 12: "F64", 13: "BF16", 40: "F8_E4M3FN", 41: "F8_E5M2",
    21: "I8", 22: "I16", 23: "I32", 24: "I64", 25: "I4",
    31: "U8", 32: "U16", 33: "U32", 34: "U64", 35: "U4", 36: "U2", 37: "U1",
    38: "U6", 39: "U3",
}  # fmt: skip
"""Core ML's number → dtype."""

_INTEGERS: Final = frozenset(name for name in _DTYPES.values() if name[0] in "IU" and DTYPES[name].bits >= 8)


def dtype_of(number: int) -> Dtype | None:
    """The dtype of a data type of Core ML; None for an unknown one."""
    name = _DTYPES.get(number)
    return None if name is None else DTYPES[name]


@dataclass(frozen=True, slots=True)
class _Member:
    """A repeated field of values: its message type, the dtypes it may hold, and their encoding."""

    type: str
    dtypes: frozenset[str]
    encoding: Encoding = Encoding.PLAIN


_MEMBERS: Final = {
    "floats": _Member("RepeatedFloats", frozenset({"F32"})),
    "doubles": _Member("RepeatedDoubles", frozenset({"F64"})),
    "ints": _Member("RepeatedInts", _INTEGERS, Encoding.VARINT),
    "longInts": _Member("RepeatedLongInts", _INTEGERS, Encoding.VARINT),
    "bools": _Member("RepeatedBools", frozenset({"BOOL"}), Encoding.VARINT),
    "strings": _Member("RepeatedStrings", frozenset({"STRING"})),
    "bytes": _Member("RepeatedBytes", frozenset(_DTYPES.values()) - {"STRING"}),
}
"""Field of a tensor's value → its description."""

PARTS: Final = (_OPERATION, _VALUE, *(f"{_SPACE}.TensorValue.{member.type}" for member in _MEMBERS.values()))
"""Message types that `Constants` needs findings of."""

_PLACE: Final = re.compile(r'\.(attributes|inputs)\["((?:[^"\\]|\\.)*)"\](?:\.arguments\[0\]\.value)?(.*)', re.DOTALL)


_NAMING: Final = ("attributes", "name", "")


class Constants:
    """Builds tensors from the values among the findings in one model."""

    def __init__(self, model: Model, proto: RootProto, found: _core.Findings) -> None:
        self._model = model
        self._proto = proto
        self._found = found
        self._operations: list[tuple[int, str]] = []
        """Finding numbers and paths of the operations around the last argument of `owner`, outermost first."""
        types = schema.bundled()
        self._operation, self._value = types.message_class(_OPERATION), types.message_class(_VALUE)

    def owner(self, number: int) -> int | None:
        """Finding number of the operation that a constant belongs to; None for anything that is no tensor.

        Must be called for all findings in order.
        """
        found = self._found[number]
        while self._operations and not found.path.startswith(self._operations[-1][1] + "."):
            self._operations.pop()
        if found.type == _OPERATION:
            self._operations.append((number, found.path))
        if found.type != _VALUE or not self._operations or not _held(found):
            return None
        owner, path = self._operations[-1]
        if _place(found.path, path) == _NAMING:  # the name of the operation
            return None
        try:
            value = parsed(self._value, found)
        except CorruptModel:
            return owner
        return None if value.HasField("type") and not value.type.HasField("tensorType") else owner

    def name(self, number: int, owner: int) -> str:
        """`OUTPUT:KEY` after the operation `owner` and its attribute or input; `OUTPUT` alone for `val`."""
        path, operation = self._found[number].path, self._found[owner]
        place = _place(path, operation.path)
        if place is None:
            return path
        _, key, rest = place
        return f"{self._called(operation)}{'' if key == 'val' else ':' + key}{rest}"

    def tensor(self, number: int, owner: int) -> Tensor:
        """The finding `number` as a tensor, a constant of the operation `owner`; errors become a Fault."""
        found = self._found[number]
        kind, file = ("blob", None) if _held(found)[-1] == _BLOB else ("immediate", self._model.root)
        draft = TensorDraft(self.name(number, owner), found.path, kind, file)
        try:
            value = parsed(self._value, found)
        except CorruptModel as error:
            return draft.fault(error)
        return draft.tensor(lambda draft: self._data(draft, number, value))

    def _called(self, operation: _core.Finding) -> str:
        """The name of the first named output of `operation`, else its path."""
        try:
            outputs = parsed(self._operation, operation).outputs
        except CorruptModel:
            return operation.path
        return next((output.name for output in outputs if output.name), operation.path)

    def _data(self, draft: TensorDraft, number: int, value: Any) -> Data:
        dtype, shape = _typed(draft, value)
        if draft.holder == "blob":
            return self._outside(draft, value.blobFileValue, dtype, element_count(shape))
        # Immediate values are a message of their own, whose finding comes directly after that of the constant.
        values = self._found[number + 1] if number + 1 < len(self._found) else None
        prefix = f"{self._found[number].path}.immediateValue.tensor."
        name = values.path.removeprefix(prefix) if values is not None else ""
        if values is None or name not in _MEMBERS or not values.path.startswith(prefix):
            raise CorruptModel("A constant has the type of a tensor but no tensor values")
        if dtype.name not in _MEMBERS[name].dtypes:
            raise CorruptModel(
                f"A constant of type {dtype.name} stores its values in the field {name}, which is for another type"
            )
        return self._listed(values, name, dtype, shape)

    def _listed(self, values: _core.Finding, name: str, dtype: Dtype, shape: tuple[int, ...]) -> Data:
        if name == "strings":
            texts = list(contents(self._proto, values, 1))
            if len(texts) != element_count(shape):
                raise CorruptModel(
                    f"The shape of a constant needs {element_count(shape)} strings, but it has {len(texts)}"
                )
            return Strings(lambda: [text.read() for text in texts])
        data: Stored | Later[Stored] | None
        if name == "bytes":
            raw = content(self._proto, values, 1)
            data = None if raw is None else Stored(raw, Encoding.PACKED if dtype.narrow else Encoding.PLAIN)
        else:
            data = numbers(self._proto, values, 1, _MEMBERS[name].encoding)
        data = data or Stored(Rope.joined(()))
        return checked(data, dtype, shape) if isinstance(data, Stored) else data

    def _outside(self, draft: TensorDraft, place: Any, dtype: Dtype, count: int) -> Data:
        name, offset = place.fileName, place.offset
        if not name.startswith(_MODEL_PATH):
            raise CorruptModel(
                f"A constant is stored in the file {name[:200]!r}, whose name should start with {_MODEL_PATH}"
            )
        draft.file = beside(self._model.root, name.removeprefix(_MODEL_PATH))
        source = self._model.beside(draft.file)
        return Later(lambda: blob(source, offset, dtype, count))


def operations_of(model: Model) -> Kinds:
    """Return the kinds of constants by the operations of an ML program that take them."""
    return kinds_in(model.proto, _OPERATION, _node)


def _node(operation: Any, path: str) -> Operator:
    keys = sorted(operation.inputs, key=lambda key: (key != "x", key))
    taken = (argument.name for key in keys for argument in operation.inputs[key].arguments)
    outputs = [output.name for output in operation.outputs]
    return Operator.of("".join(outputs[:1]), operation.type, taken, outputs)


def _held(found: _core.Finding) -> list[int]:
    """The fields that hold or locate the values of a constant; the last one is in effect."""
    return [number for number, *_ in found.places if number in {_IMMEDIATE, _BLOB}]


def _place(path: str, operation: str) -> tuple[str, ...] | None:
    """A value's place in its operation: `attributes` or `inputs`, the key, the rest; None if elsewhere."""
    place = _PLACE.fullmatch(path[len(operation) :])
    return None if place is None else place.groups()


def _typed(draft: TensorDraft, value: Any) -> tuple[Dtype, tuple[int, ...]]:
    """Dtype and shape of `value`, also noted in `draft`; `CorruptModel` or `Unsupported` without them."""
    tensor = value.type.tensorType
    if not value.type.HasField("tensorType"):
        raise CorruptModel("A constant does not have a tensor type")
    if any(not each.HasField("constant") for each in tensor.dimensions):
        raise CorruptModel("A constant has a dimension of unknown length")
    shape = tuple(each.constant.size for each in tensor.dimensions)
    element_count(shape)
    draft.shape = shape
    if tensor.dataType not in _DTYPES:
        known = tensor.DESCRIPTOR.fields_by_name["dataType"].enum_type.values_by_number
        name = known[tensor.dataType].name if tensor.dataType in known else f"number {tensor.dataType}"
        raise Unsupported(f"Constants of type {name} are not supported: no dtype matches")
    draft.dtype = DTYPES[_DTYPES[tensor.dataType]]
    return draft.dtype, shape
