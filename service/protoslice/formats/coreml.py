"""Core ML models: layer weights, constants of ML programs, blob files that hold elements, and packages."""

from __future__ import annotations

import json
import posixpath
import re
import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from protoslice import _core, schema
from protoslice.errors import CorruptModel, Unsupported
from protoslice.facts import Kind, Signature, SignatureTensor
from protoslice.formats.messages import (
    ProtoFormat,
    TensorBuilder,
    content,
    contents,
    elements,
    fixed_count,
    numbers,
    parsed,
    parsed_ends,
    resolve_location,
)
from protoslice.formats.uses import Fields, Look, by_graph, kind_named, kind_of, kinds_in
from protoslice.schema import text_of
from protoslice.sources.ropes import Rope
from protoslice.sources.source import RangeSource
from protoslice.tensors.dtypes import DTYPES, Dtype, element_count
from protoslice.tensors.layout import stored_size
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Data, Deferred, Encoding, Model, RootProto, Stored, Strings, Tensor, Use

LARGEST_MANIFEST: Final = 1 << 20
"""The byte limit of a manifest. Larger files are not read as manifests."""
_NAME: Final = "Manifest.json"


def is_manifest(path: str) -> bool:
    """Return True when the file at `path` may be the manifest of a package."""
    return posixpath.basename(path) == _NAME


def named_root(manifest: str, content: bytes) -> str | None:
    """Return the path of the model that a manifest names; None if the manifest is malformed.

    `manifest` is the path of the manifest. The file at the returned path may be absent.
    """
    try:
        said = json.loads(content)
        place = said["itemInfoEntries"][said["rootModelIdentifier"]]["path"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(place, str):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(manifest), "Data", place))


_BLOB_RECORD: Final = struct.Struct("<IIQQ")
"""The fields of a blob record: sentinel, type, size in bytes, and offset of the weights. Padding follows."""
_SENTINEL: Final = 0xDEADBEEF
_RECORD_SIZE: Final = 64


def blob(source: RangeSource, offset: int, dtype: Dtype, count: int) -> Stored:
    """Return the `count` elements that the blob record at `offset` locates.

    Elements narrower than a byte are packed. Raise `CorruptModel` for a bad record, and for a size that does not
    fit `count` elements.
    """
    if offset + _RECORD_SIZE > source.size:
        raise CorruptModel(f"A blob record at byte {offset} is outside of its file of {source.size} bytes", offset)
    sentinel, _, size, start = _BLOB_RECORD.unpack(source.read(offset, _BLOB_RECORD.size))
    if sentinel != _SENTINEL:
        raise CorruptModel(
            f"The bytes at {offset} are not a blob record: they start with the wrong magic number {sentinel:#x}", offset
        )
    if start + size > source.size:
        raise CorruptModel(f"A blob of {size} bytes at {start} reaches beyond its file of {source.size} bytes", offset)
    encoding = Encoding.PACKED if dtype.narrow else Encoding.PLAIN
    due = stored_size(dtype, count, encoding)
    if size != due:
        raise CorruptModel(f"A blob has {size} bytes, but {count} elements of {dtype.name} take {due}", offset)
    return Stored(Rope.of(source, start, start + size), encoding)


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
"""A map from Core ML's data type numbers to dtype names."""

_INTEGERS: Final = frozenset(name for name in _DTYPES.values() if name[0] in "IU" and DTYPES[name].bits >= 8)


def dtype_of(number: int) -> Dtype | None:
    """Return the dtype of a Core ML data type; None for an unknown data type."""
    name = _DTYPES.get(number)
    return None if name is None else DTYPES[name]


@dataclass(frozen=True, slots=True)
class _Member:
    """A field with a tensor's values: its message type, the dtypes that it may hold, and the values' encoding."""

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
"""A map from the name of a values field to its description."""

PARTS: Final = (_OPERATION, _VALUE, *(f"{_SPACE}.TensorValue.{member.type}" for member in _MEMBERS.values()))
"""The message types that a search must include for `Constants`."""

_PLACE: Final = re.compile(r'\.(attributes|inputs)\["((?:[^"\\]|\\.)*)"\](?:\.arguments\[0\]\.value)?(.*)', re.DOTALL)


_NAMING: Final = ("attributes", "name", "")


class Constants:
    """A builder that makes tensors from the messages that a search found in one model.

    The number of a message is its position among these messages.
    """

    def __init__(self, model: Model, proto: RootProto, found: _core.Findings) -> None:
        self._model = model
        self._proto = proto
        self._found = found
        self._operations: list[tuple[int, str]] = []
        """The operations that enclose the message last passed to `owner`, outermost first.

        An operation is stored as the number of its message and its path.
        """
        types = schema.bundled()
        self._operation, self._value = types.message_class(_OPERATION), types.message_class(_VALUE)

    def owner(self, number: int) -> int | None:
        """Return the number of the operation to which the constant `number` belongs; None for other messages.

        Callers must call this method for all found messages, in order.
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
        """Return the constant's name `OUTPUT:KEY`, or `OUTPUT` alone if the key is `val`.

        OUTPUT names the operation `owner`; KEY is the attribute or input that holds the constant.
        """
        path, operation = self._found[number].path, self._found[owner]
        place = _place(path, operation.path)
        if place is None:
            return path
        _, key, rest = place
        return f"{self._called(operation)}{'' if key == 'val' else ':' + key}{rest}"

    def tensor(self, number: int, owner: int) -> Tensor:
        """Return the message `number`, which is a constant of the operation `owner`, as a tensor.

        Errors become `Unreadable` data.
        """
        found = self._found[number]
        kind, file = ("blob", None) if _held(found)[-1] == _BLOB else ("immediate", self._model.root)
        builder = TensorBuilder(self.name(number, owner), found.path, kind, file)
        try:
            value = parsed(self._value, found)
        except CorruptModel as error:
            return builder.unreadable(error)
        return builder.tensor(lambda builder: self._data(builder, number, value))

    def _called(self, operation: _core.Finding) -> str:
        """Return the name of the first named output of `operation`, or the operation's path if it has none."""
        try:
            outputs = parsed(self._operation, operation).outputs
        except CorruptModel:
            return operation.path
        return next((output.name for output in outputs if output.name), operation.path)

    def _data(self, builder: TensorBuilder, number: int, value: Any) -> Data:
        dtype, shape = _typed(builder, value)
        if builder.holder == "blob":
            return self._outside(builder, value.blobFileValue, dtype, element_count(shape))
        # Immediate values are a separate message, which the search lists directly after the constant.
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
                    f"The shape of a constant needs {element_count(shape)} strings, but the constant has {len(texts)}"
                )
            return Strings(lambda: [text.read() for text in texts])
        data: Stored | Deferred[Stored] | None
        if name == "bytes":
            raw = content(self._proto, values, 1)
            data = None if raw is None else Stored(raw, Encoding.PACKED if dtype.narrow else Encoding.PLAIN)
        else:
            data = numbers(self._proto, values, 1, _MEMBERS[name].encoding)
        return elements(data, dtype, shape)

    def _outside(self, builder: TensorBuilder, place: Any, dtype: Dtype, count: int) -> Data:
        name, offset = place.fileName, place.offset
        if not name.startswith(_MODEL_PATH):
            raise CorruptModel(
                f"A constant is stored in the file {name[:200]!r}, whose name should start with {_MODEL_PATH}"
            )
        builder.file = resolve_location(self._model.root, name.removeprefix(_MODEL_PATH))
        source = self._model.file(builder.file)
        return Deferred(lambda: blob(source, offset, dtype, count))


def operations_of(model: Model) -> Mapping[str, Kind]:
    """Return a map from the names of an ML program's constants to the kinds of the layers that use the constants."""
    fields = Fields(name=[3, 1], op=[1], inputs=[2, 2, 1, 1], outputs=[3, 1], keyed=True)
    return kinds_in(model.proto, _OPERATION, fields).values


def _held(found: _core.Finding) -> list[int]:
    """Return the numbers of the fields that hold or locate a constant's values; the last field counts."""
    return [number for number, *_ in found.places if number in {_IMMEDIATE, _BLOB}]


def _place(path: str, operation: str) -> tuple[str, ...] | None:
    """Return the place of the value at `path` in the operation at `operation`; None if the value is elsewhere.

    A place consists of `attributes` or `inputs`, the key, and the rest of the path.
    """
    place = _PLACE.fullmatch(path[len(operation) :])
    return None if place is None else place.groups()


def _typed(builder: TensorBuilder, value: Any) -> tuple[Dtype, tuple[int, ...]]:
    """Return the dtype and shape of `value`, and set both in `builder`.

    Raise `CorruptModel` for an invalid tensor type, and `Unsupported` for a type that no dtype matches.
    """
    tensor = value.type.tensorType
    if not value.type.HasField("tensorType"):
        raise CorruptModel("A constant does not have a tensor type")
    if any(not each.HasField("constant") for each in tensor.dimensions):
        raise CorruptModel("A constant has a dimension of unknown length")
    shape = tuple(each.constant.size for each in tensor.dimensions)
    element_count(shape)
    builder.shape = shape
    if tensor.dataType not in _DTYPES:
        known = tensor.DESCRIPTOR.fields_by_name["dataType"].enum_type.values_by_number
        name = known[tensor.dataType].name if tensor.dataType in known else f"number {tensor.dataType}"
        raise Unsupported(f"Constants of type {name} are not supported: no dtype matches")
    builder.dtype = DTYPES[_DTYPES[tensor.dataType]]
    return builder.dtype, shape


MODEL: Final = "CoreML.Specification.Model"
_WEIGHTS: Final = "CoreML.Specification.WeightParams"
_LAYER: Final = "CoreML.Specification.NeuralNetworkLayer"
_FLOATS: Final = 1
_BYTES: Final = {2: "F16", 30: "U8", 31: "I8"}
"""A map from the bytes fields of weights to dtypes. Quantized weights are listed as stored, not dequantized."""
_IN_LAYER: Final = re.compile(r".*layers\[[0-9]+\]\.([A-Za-z0-9]+)\.")
_SMALL_FIELD: Final = 1024
_ELEMENTS: Final = {65552: "F16", 65568: "F32", 65600: "F64", 131104: "I32", 131080: "I8"}


def signature(proto: RootProto) -> tuple[Sequence[Signature], int]:
    """Return the inputs and outputs of a model, and the number of bytes read for them.

    Raise `LimitExceeded` if they take more than 4 MiB.
    """
    model, size = parsed_ends(proto, MODEL, "", ["description.input", "description.output"], "description")
    sides = (model.description.input, model.description.output)
    inputs, outputs = (tuple(_value(each) for each in side) for side in sides)
    return [Signature("main", "", (), inputs, outputs)], size


def _value(feature: Any) -> SignatureTensor:
    """Return an input or output. Images have their height and width as shape; arrays may have no shape."""
    array, image = feature.type.multiArrayType, feature.type.imageType
    if feature.type.HasField("imageType"):
        return SignatureTensor(feature.name, feature.name, "U8", (image.height, image.width))
    shape = tuple(array.shape) or None
    return SignatureTensor(feature.name, feature.name, _ELEMENTS.get(array.dataType), shape)


class CoreMl(ProtoFormat):
    """The format of Core ML's models, pipelines of models, and packages."""

    name = "coreml"
    package = "CoreML."

    def tensors_in(self, model: Model, proto: RootProto) -> Tensors:
        """Return all layer weights, and all constants of operations."""
        found = proto.document.find([_WEIGHTS, *PARTS], small=_SMALL_FIELD)
        constants = Constants(model, proto, found)
        numbers, owners = array("I"), array("I")
        for number in range(len(found)):
            each = found[number]
            owner = (0 if _fields(each) else None) if each.type == _WEIGHTS else constants.owner(number)
            if owner is not None:
                numbers.append(number)
                owners.append(owner)

        def make(at: int) -> Tensor:
            each = found[numbers[at]]
            if each.type == _WEIGHTS:
                return _weights(model, proto, each)
            return constants.tensor(numbers[at], owners[at])

        def called(at: int) -> tuple[str, str]:
            each = found[numbers[at]]
            name = _name(each) if each.type == _WEIGHTS else constants.name(numbers[at], owners[at])
            return name, f"path:{each.path}"

        return Tensors(len(numbers), make, called)

    def uses(self, model: Model, found: Tensors) -> Look:
        """Return a function that finds a tensor's role and kind.

        For a weight, both follow from the layer that holds it. For a constant, both follow from the operations that use
        it.
        """
        kinds = operations_of(model)

        def use(tensor: Tensor) -> Use:
            if tensor.holder != "weight":
                name, _, key = tensor.name.partition(":")
                return by_graph(None if key else kinds.get(name), tensor, weight=False)
            layer = _IN_LAYER.search(tensor.address)
            kind = None if layer is None else kind_of(layer[1])
            return Use("weight", kind or kind_named(tensor.name))

        return use


def _fields(found: _core.Finding) -> list[int]:
    """Return the numbers of the fields that hold values in a weights message."""
    return [place[0] for place in found.places if place[0] == _FLOATS or place[0] in _BYTES]


def _weights(model: Model, proto: RootProto, found: _core.Finding) -> Tensor:
    fields = _fields(found)
    builder = TensorBuilder(_name(found), found.path, "weight", model.root)
    return builder.tensor(lambda builder: _data(builder, proto, found, fields[0]))


def _data(builder: TensorBuilder, proto: RootProto, found: _core.Finding, field: int) -> Data:
    builder.dtype = dtype = DTYPES[_BYTES.get(field, "F32")]
    if field == _FLOATS:
        builder.shape = (fixed_count(found, field, dtype.width),)
        values: Data | None = numbers(proto, found, field, Encoding.PLAIN)
    else:
        data = content(proto, found, field)
        size = 0 if data is None else data.size
        builder.shape = (size // dtype.width,)
        if size % dtype.width:
            raise CorruptModel(f"Weights of {dtype.name} have {size} bytes, which is not a whole number of elements")
        values = None if data is None else Stored(data)
    if values is None:
        raise CorruptModel("The weights have no values of the type that they declare")
    return values


def _name(found: _core.Finding) -> str:
    """Return the name `LAYER.FIELD…` of the weights, or their path if no enclosing layer has a name."""
    layers = [name for kind, name in found.names if kind == _LAYER and name]
    _, inside, within = found.path.rpartition("layers[")
    # The name of the layer replaces the first two steps of `N].KIND.WEIGHTS…`.
    steps = within.split(".", 2)
    if not layers or not inside or len(steps) < 3:
        return found.path
    return f"{text_of(layers[-1])}.{steps[2]}"
