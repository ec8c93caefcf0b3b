"""Core ML: weights of neural networks, and constants of ML programs, immediate or in blob files."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from typing import Any, Final

from protoslice import _core
from protoslice.errors import CorruptModel
from protoslice.facts import Signature, SignatureTensor
from protoslice.formats.coreml.mil import PARTS, Constants, operations_of
from protoslice.formats.model import Data, Encoding, Model, ProtoFormat, RootProto, Stored, Tensor, Tensors, Use
from protoslice.formats.tensors.drafts import TensorDraft, parsed_ends
from protoslice.formats.tensors.dtypes import DTYPES
from protoslice.formats.tensors.fields import content, fixed_count, numbers
from protoslice.formats.uses import Look, by_graph, kind_named, kind_of
from protoslice.schema import text_of

MODEL: Final = "CoreML.Specification.Model"
_WEIGHTS: Final = "CoreML.Specification.WeightParams"
_LAYER: Final = "CoreML.Specification.NeuralNetworkLayer"
_FLOATS: Final = 1
_BYTES: Final = {2: "F16", 30: "U8", 31: "I8"}
"""Bytes fields of weights → dtype; quantized weights are given as stored."""
_IN_LAYER: Final = re.compile(r".*layers\[[0-9]+\]\.([A-Za-z0-9]+)\.")
_SMALL_FIELD: Final = 1024
_ELEMENTS: Final = {65552: "F16", 65568: "F32", 65600: "F64", 131104: "I32", 131080: "I8"}


def signature(proto: RootProto) -> tuple[Sequence[Signature], int]:
    """Return the inputs and outputs of a model, and the bytes read for them; `LimitExceeded` beyond 4 MiB."""
    model, size = parsed_ends(proto, MODEL, "", ["description.input", "description.output"], "description")
    sides = (model.description.input, model.description.output)
    inputs, outputs = (tuple(_value(each) for each in side) for side in sides)
    return [Signature("main", "", (), inputs, outputs)], size


def _value(feature: Any) -> SignatureTensor:
    """Return an input or output; images have the shape of their pixels, and other features none."""
    array, image = feature.type.multiArrayType, feature.type.imageType
    if feature.type.HasField("imageType"):
        return SignatureTensor(feature.name, feature.name, "U8", (image.height, image.width))
    shape = tuple(array.shape) or None
    return SignatureTensor(feature.name, feature.name, _ELEMENTS.get(array.dataType), shape)


class CoreMl(ProtoFormat):
    """Models, pipelines of models, and packages."""

    name = "coreml"
    package = "CoreML."

    def tensors_in(self, model: Model, proto: RootProto) -> Tensors:
        """All weights of layers, and all constants of operations."""
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
        """Say what tensors are for by the layers that hold them, or the operations that take them."""
        kinds = operations_of(model)

        def use(tensor: Tensor) -> Use:
            if tensor.holder != "weight":
                name, _, key = tensor.name.partition(":")
                return by_graph(None if key else kinds.of(name), tensor, weight=False)
            layer = _IN_LAYER.search(tensor.address)
            kind = None if layer is None else kind_of(layer[1])
            return Use("weight", kind or kind_named(tensor.name))

        return use


def _fields(found: _core.Finding) -> list[int]:
    """Fields of weights that have values."""
    return [place[0] for place in found.places if place[0] == _FLOATS or place[0] in _BYTES]


def _weights(model: Model, proto: RootProto, found: _core.Finding) -> Tensor:
    fields = _fields(found)
    draft = TensorDraft(_name(found), found.path, "weight", model.root)
    return draft.tensor(lambda draft: _data(draft, proto, found, fields[0]))


def _data(draft: TensorDraft, proto: RootProto, found: _core.Finding, field: int) -> Data:
    draft.dtype = dtype = DTYPES[_BYTES.get(field, "F32")]
    if field == _FLOATS:
        draft.shape = (fixed_count(found, field, dtype.width),)
        values: Data | None = numbers(proto, found, field, Encoding.PLAIN)
    else:
        data = content(proto, found, field)
        size = 0 if data is None else data.size
        draft.shape = (size // dtype.width,)
        if size % dtype.width:
            raise CorruptModel(f"Weights of {dtype.name} have {size} bytes, which is not a whole number of elements")
        values = None if data is None else Stored(data)
    if values is None:
        raise CorruptModel("The weights have no values of the type that they declare")
    return values


def _name(found: _core.Finding) -> str:
    """`LAYER.KIND.FIELD…` of the weights, or their path where no enclosing layer has a name."""
    layers = [name for kind, name in found.names if kind == _LAYER and name]
    _, inside, within = found.path.rpartition("layers[")
    # `N].KIND.WEIGHTS…`: the first two steps are replaced by the name of the layer.
    steps = within.split(".", 2)
    if not layers or not inside or len(steps) < 3:
        return found.path
    return f"{text_of(layers[-1])}.{steps[2]}"
