"""Types of values in graphs: what nodes and declarations say about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from protoslice import schema
from protoslice.facts import GraphValue
from protoslice.formats.coreml import dtype_of as mil_dtype
from protoslice.formats.hlo import dtype_of as hlo_dtype
from protoslice.formats.onnx import dtype_of as onnx_dtype
from protoslice.formats.paddle_files import dtype_of as paddle_dtype
from protoslice.formats.tensorflow import known as tensorflow_dtype
from protoslice.formats.tensors.dtypes import Dtype

MOST_DIMENSIONS: Final = 32
"""Dimensions that are listed; a value with more has no shape."""

Message = Any
Type = tuple[str | None, Iterable[int] | None]
Typed = Callable[[Message, str], Type]
"""Data type, and lengths of dimensions (negative where unknown), of a value of a node, or in its declaration."""

_WITHOUT_ELEMENTS: Final = frozenset({0, 13, 14, 17})
"""Element types of XLA whose values have no dimensions: none, tuples, opaque values and tokens."""
_SHAPED: Final = frozenset({"Placeholder", "VarHandleOp", "VariableV2"})
"""TensorFlow's operators whose attribute `shape` is that of their value, or of the variable."""


def value_of(name: str, typed: Typed, message: Message) -> GraphValue:
    """The value `name` with the type that `message` tells of it."""
    dtype, lengths = typed(message, name)
    shape = None if lengths is None else tuple(length if length >= 0 else None for length in lengths)
    return GraphValue(name, dtype, shape if shape is None or len(shape) <= MOST_DIMENSIONS else None)


def _named(dtype: Dtype | None) -> str | None:
    return None if dtype is None else dtype.name


def _onnx(message: Message, name: str) -> Type:
    tensor = message.type.tensor_type
    dims = (dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim)
    dtype = onnx_dtype(tensor.elem_type)
    return _named(dtype), dims if tensor.HasField("shape") else None


def _paddle(message: Message, name: str) -> Type:
    kind = message.type
    tensor = kind.dense_tensor.tensor if kind.HasField("dense_tensor") else kind.selected_rows
    dtype = paddle_dtype(tensor.data_type) if tensor.IsInitialized() else None
    return _named(dtype), tensor.dims if dtype else None


def _tensorflow(node: Message, name: str) -> Type:
    output = name.rpartition(":")[2]
    number = int(output) if output.isdecimal() and len(output) < 6 else 0
    dtype = next((node.attr[key].type for key in ("dtype", "DstT", "T") if key in node.attr), 0)
    shapes = node.attr["_output_shapes"].list.shape if "_output_shapes" in node.attr else ()
    if "shape" in node.attr and node.op in _SHAPED:
        shape = node.attr["shape"].shape
    elif number < len(shapes):
        shape = shapes[number]
    else:
        shape = None
    return _named(tensorflow_dtype(dtype)), None if shape is None or shape.unknown_rank else (
        dim.size for dim in shape.dim
    )


def _hlo(node: Message, name: str) -> Type:
    kind = node.shape.element_type
    return _named(hlo_dtype(kind)), None if kind in _WITHOUT_ELEMENTS else node.shape.dimensions


def _program(node: Message, name: str) -> Type:
    for each in node.outputs:
        if each.name == name:
            tensor = each.type.tensorType
            dims = (dim.constant.size if dim.HasField("constant") else -1 for dim in tensor.dimensions)
            return _named(mil_dtype(tensor.dataType)), dims if tensor.dataType else None
    return None, None


def _network(node: Message, name: str) -> Type:
    at = list(node.output).index(name) if name in node.output else len(node.outputTensor)
    return None, node.outputTensor[at].dimValue if at < len(node.outputTensor) else None


def _caffe(node: Message, name: str) -> Type:
    has_shape = node.DESCRIPTOR.name == "LayerParameter" and len(node.input_param.shape) > 0
    return None, node.input_param.shape[0].dim if has_shape else None


TYPED: Final[Mapping[str, Typed]] = {
    "onnx.ValueInfoProto": _onnx,
    "paddle.framework.proto.VarDesc": _paddle,
    "tensorflow.NodeDef": _tensorflow,
    "xla.HloInstructionProto": _hlo,
    "CoreML.Specification.MILSpec.Operation": _program,
    "CoreML.Specification.NeuralNetworkLayer": _network,
    "caffe.LayerParameter": _caffe,
    "caffe.V1LayerParameter": _caffe,
}
"""Readers of value types, by the type of the message that states them."""
NAME: Final = [1]
"""Field with the name of a value in its declaration."""


def message_of(kind: str, data: bytes) -> Message:
    """A message of type `kind` out of `data`; `DecodeError` if it does not parse."""
    return schema.parsed(schema.bundled().message_class(kind), data)
