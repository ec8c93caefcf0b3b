"""Caffe models: the blobs of layers, in the current format and in both older formats."""

from __future__ import annotations

from typing import Any, Final

from protoslice import _core, schema
from protoslice.errors import CorruptModel
from protoslice.facts import Kind
from protoslice.formats.messages import ProtoFormat, TensorBuilder, content, fixed_count, numbers, parsed, places_of
from protoslice.formats.uses import Look, kind_named, kind_of
from protoslice.sources.ropes import Rope
from protoslice.tensors.dtypes import DTYPES, element_count
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Data, Encoding, Model, RootProto, Stored, Tensor, Use

_BLOB: Final = "caffe.BlobProto"
_LAYERS: Final = frozenset({"caffe.LayerParameter", "caffe.V1LayerParameter", "caffe.V0LayerParameter"})
_FLOATS, _SHAPE, _DOUBLES, _RAW_TYPE, _RAW = 5, 7, 8, 10, 12
_RAW_TYPES: Final = {0: "F64", 1: "F32", 2: "F16", 3: "I32", 4: "U32"}
"""A map from the number in `raw_data_type` to a dtype. NVCaffe and OpenCV write `raw_data`."""
_OLD_DIMENSIONS: Final = ("num", "channels", "height", "width")
_SMALL_FIELD: Final = 1024
"""The byte limit of fields that are read in full. A larger shape has more than 32 dimensions, Caffe's maximum."""


class Caffe(ProtoFormat):
    """The format of Caffe's networks and of its other messages with blobs, such as means and solver states."""

    name = "caffe"
    package = "caffe."

    def tensors_in(self, model: Model, proto: RootProto) -> Tensors:
        """Return one tensor per blob, with the blob's data. Gradients are not listed."""
        found = proto.document.find([_BLOB], small=_SMALL_FIELD)
        return Tensors(
            len(found),
            lambda number: _tensor(model, proto, found[number]),
            lambda number: (_name(found[number]), f"path:{found[number].path}"),
        )

    def uses(self, model: Model, found: Tensors) -> Look:
        """Return a function that finds a blob's role and kind from the type of its layer."""
        kinds = dict[str, Kind | None]()
        for type_name in _LAYERS:
            message = schema.bundled().message_class(type_name)
            proto = model.proto
            for each in proto.document.find([type_name], small=_SMALL_FIELD) if proto is not None else ():
                layer = parsed(message, each)
                field = layer.DESCRIPTOR.fields_by_name["type"]
                op = field.enum_type.values_by_number[layer.type].name if field.enum_type else layer.type
                kinds[each.path] = kind_of(op)

        def use(tensor: Tensor) -> Use:
            layer = tensor.address.removeprefix("path:").rpartition(".blobs[")[0]
            kind = kinds.get(layer) or kinds.get(f"{layer}.layer") or kind_named(tensor.name, tensor.rank)
            return Use("weight" if layer else "other", kind)

        return use


def _tensor(model: Model, proto: RootProto, found: _core.Finding) -> Tensor:
    builder = TensorBuilder(_name(found), found.path, "blob", model.root)
    return builder.tensor(lambda builder: _data(builder, proto, found))


def _data(builder: TensorBuilder, proto: RootProto, found: _core.Finding) -> Data:
    message = parsed(schema.bundled().message_class(_BLOB), found)
    double, raw = fixed_count(found, _DOUBLES, 8) > 0, None
    field, width, builder.dtype = (_DOUBLES, 8, DTYPES["F64"]) if double else (_FLOATS, 4, DTYPES["F32"])
    there = fixed_count(found, field, width)
    if not there and (raw := content(proto, found, _RAW)) is not None:
        if places_of(found, _RAW_TYPE) and not message.HasField("raw_data_type"):
            raise CorruptModel("A blob has raw data of an unknown number type")
        builder.dtype = DTYPES[_RAW_TYPES[message.raw_data_type]]
        there, rest = divmod(raw.size, builder.dtype.width)
        if rest:
            raise CorruptModel(
                f"A blob of {builder.dtype.name} has {raw.size} bytes of raw data, which is not a whole number "
                "of elements"
            )
    shape = _shape(message, found, there)
    due = element_count(shape)
    builder.shape = shape
    if due != there:
        raise CorruptModel(f"The shape of a blob needs {due} values, but the blob has {there}")
    if raw is not None:
        return Stored(raw)
    return numbers(proto, found, field, Encoding.PLAIN) or Stored(Rope.joined(()))


def _shape(message: Any, found: _core.Finding, there: int) -> tuple[int, ...]:
    """Return the shape of a blob.

    If any of the four legacy dimensions is set, they are the shape, as in Caffe. Otherwise `shape` is used. A blob
    with neither has one dimension of length `there`.
    """
    if any(message.HasField(name) for name in _OLD_DIMENSIONS):
        return tuple(getattr(message, name) for name in _OLD_DIMENSIONS)
    if message.HasField("shape"):
        return tuple(message.shape.dim)
    if any(number == _SHAPE for number, *_ in found.places):
        raise CorruptModel("A blob has more dimensions than Caffe allows")
    return (there,)


def _name(found: _core.Finding) -> str:
    """Return the name `LAYER.FIELD[N]` of the blob, or its path if no enclosing layer has a name."""
    layers = [name for kind, name in found.names if kind in _LAYERS and name]
    if not layers:
        return found.path
    return f"{schema.text_of(layers[-1])}.{found.path.rpartition('.')[2]}"
