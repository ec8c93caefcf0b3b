"""Dialects of graphs: messages that are nodes, and the fields that name values of other nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from google.protobuf import text_format

from protoslice.facts import GraphValue
from protoslice.formats.coreml import dtype_of as mil_dtype
from protoslice.formats.hlo import dtype_of as hlo_dtype
from protoslice.formats.onnx import dtype_of as onnx_dtype
from protoslice.formats.paddle_files import dtype_of as paddle_dtype
from protoslice.formats.tensorflow import known as tensorflow_dtype
from protoslice.schema import text_of
from protoslice.tensors.dtypes import Dtype

LONGEST_TEXT: Final = 200
"""Characters of an attribute's value."""
MAX_ATTRIBUTES: Final = 64
MAX_DIMENSIONS: Final = 32
"""Dimensions that are listed; a value with more has no shape."""
_WITHOUT_ELEMENTS: Final = frozenset({0, 13, 14, 17})
"""Element types of XLA whose values have no dimensions: none, tuples, opaque values and tokens."""
_SHAPED: Final = frozenset({"Placeholder", "VarHandleOp", "VariableV2"})
"""TensorFlow's operators whose attribute `shape` is that of their value, or of the variable."""

Message = Any
"""A message whose class is made at run time."""
Type = tuple[str | None, Iterable[int] | None]
"""Data type, and lengths of dimensions (negative where unknown)."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """A kind of graph."""

    package: str
    """Beginning of the type names of its models."""
    node: str
    """Message type of a node."""
    called: str
    """Path of a graph's name within the message that holds it; empty where graphs have none."""
    name: Sequence[int]
    """Numbers of the fields, from a node downwards, with its name; likewise below."""
    outputs: Sequence[int]
    inputs: Sequence[Sequence[int]]
    op: str
    """Field with the operation."""
    type_of: Callable[[Message, str], Type]
    """Reads the type of a value from the message that states it, a declaration or a node."""
    own_weights: Callable[[Message], Sequence[str]]
    """Names of tensors that a node may hold in itself."""
    hidden: frozenset[str]
    """Fields that are no attributes."""
    tensorflow_inputs: bool = False
    """True when inputs are written as in TensorFlow: `node`, `node:output` and `^node`."""
    values_are_reassigned: bool = False
    """True when values may be made again, and a node takes the one before it."""
    numbers: bool = False
    """True when values are named by numbers."""
    kinds: int = 0
    """First number of the fields of which one is the operation, where `op` is empty."""
    declares: str = ""
    """Message type that declares a value by its name; empty where a node tells the types of its values."""

    def value(self, name: str, message: Message) -> GraphValue:
        """Return the value `name`, with the type that `message` states."""
        dtype, lengths = self.type_of(message, name)
        shape = None if lengths is None else tuple(length if length >= 0 else None for length in lengths)
        return GraphValue(name, dtype, shape if shape is None or len(shape) <= MAX_DIMENSIONS else None)

    def attributes(self, node: Message) -> tuple[tuple[str, str], ...]:
        """Names and values of all that is set in `node` beside its name, its operation and its links."""
        named = (each for field, value in node.ListFields() for each in self._named(field, value))
        return tuple((name, text[:LONGEST_TEXT]) for name, text in islice(named, MAX_ATTRIBUTES))

    def _named(self, field: Any, value: Any) -> Iterator[tuple[str, str]]:
        if field.name in self.hidden:
            return
        if field.message_type is None:
            yield field.name, str(value if not field.is_repeated else list(value[:LONGEST_TEXT]))
        elif field.message_type.GetOptions().map_entry:
            yield from ((str(key), _text(value[key])) for key in sorted(value))
        elif field.is_repeated and "name" in field.message_type.fields_by_name:
            yield from ((each.name, _text(each, without=("name", "type"))) for each in value)
        else:
            yield field.name, _text(value[0] if field.is_repeated else value)


def _text(message: Message, without: Sequence[str] = ()) -> str:
    """`message` on one line, but for the fields `without`; of a single number or text the value alone."""
    if without:
        copy = type(message)()
        copy.CopyFrom(message)
        for name in without:
            if name in copy.DESCRIPTOR.fields_by_name:
                copy.ClearField(name)
        message = copy
    text = text_format.MessageToString(message, as_one_line=True, as_utf8=True)
    alone = [field for field, _ in message.ListFields()]
    is_plain = len(alone) == 1 and alone[0].message_type is None and not alone[0].is_repeated
    return text.partition(": ")[2] if is_plain else text


def _held_by_tensorflow(node: Message) -> Sequence[str]:
    if node.op == "Const":
        return [node.name]
    if node.op in {"VarHandleOp", "VariableV2", "Variable"}:
        return [text_of(node.attr["shared_name"].s) or node.name]
    return []


def _held_by_network(node: Message) -> Sequence[str]:
    parts = ("weights", "bias", "gamma", "beta", "mean", "variance", "alpha", "scale")
    return [f"{node.name}.{part}" for part in parts]


def _held_by_caffe(node: Message) -> Sequence[str]:
    return [f"{node.name}.blobs[{number}]" for number in range(8)]


def _named(dtype: Dtype | None) -> str | None:
    return None if dtype is None else dtype.name


def _type_in_onnx(message: Message, name: str) -> Type:
    tensor = message.type.tensor_type
    dims = (dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim)
    dtype = onnx_dtype(tensor.elem_type)
    return _named(dtype), dims if tensor.HasField("shape") else None


def _type_in_paddle(message: Message, name: str) -> Type:
    kind = message.type
    tensor = kind.dense_tensor.tensor if kind.HasField("dense_tensor") else kind.selected_rows
    dtype = paddle_dtype(tensor.data_type) if tensor.IsInitialized() else None
    return _named(dtype), tensor.dims if dtype else None


def _type_in_tensorflow(node: Message, name: str) -> Type:
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


def _type_in_hlo(node: Message, name: str) -> Type:
    kind = node.shape.element_type
    return _named(hlo_dtype(kind)), None if kind in _WITHOUT_ELEMENTS else node.shape.dimensions


def _type_in_program(node: Message, name: str) -> Type:
    for each in node.outputs:
        if each.name == name:
            tensor = each.type.tensorType
            dims = (dim.constant.size if dim.HasField("constant") else -1 for dim in tensor.dimensions)
            return _named(mil_dtype(tensor.dataType)), dims if tensor.dataType else None
    return None, None


def _type_in_network(node: Message, name: str) -> Type:
    at = list(node.output).index(name) if name in node.output else len(node.outputTensor)
    return None, node.outputTensor[at].dimValue if at < len(node.outputTensor) else None


def _type_in_caffe(node: Message, name: str) -> Type:
    has_shape = node.DESCRIPTOR.name == "LayerParameter" and len(node.input_param.shape) > 0
    return None, node.input_param.shape[0].dim if has_shape else None


DIALECTS: Final = (
    Dialect(
        package="tensorflow.",
        node="tensorflow.NodeDef",
        called="signature.name",
        name=[1],
        outputs=[1],
        inputs=[[3]],
        op="op",
        type_of=_type_in_tensorflow,
        own_weights=_held_by_tensorflow,
        hidden=frozenset({"name", "op", "input"}),
        tensorflow_inputs=True,
    ),
    Dialect(
        package="onnx.",
        node="onnx.NodeProto",
        called="name",
        name=[3],
        outputs=[2],
        inputs=[[1]],
        op="op_type",
        type_of=_type_in_onnx,
        own_weights=lambda node: [],
        hidden=frozenset({"name", "op_type", "input", "output"}),
        declares="onnx.ValueInfoProto",
    ),
    Dialect(
        package="paddle.framework.proto.",
        node="paddle.framework.proto.OpDesc",
        called="",
        name=[],
        outputs=[2, 2],
        inputs=[[1, 2]],
        op="type",
        type_of=_type_in_paddle,
        own_weights=lambda node: [],
        hidden=frozenset({"type", "inputs", "outputs"}),
        values_are_reassigned=True,
        declares="paddle.framework.proto.VarDesc",
    ),
    Dialect(
        package="xla.",
        node="xla.HloInstructionProto",
        called="name",
        name=[1],
        outputs=[35],
        inputs=[[36], [37]],
        op="opcode",
        type_of=_type_in_hlo,
        own_weights=lambda node: [node.name] if node.opcode == "constant" else [],
        hidden=frozenset(
            {
                "name",
                "opcode",
                "id",
                "operand_ids",
                "control_predecessor_ids",
                "literal",
                "metadata",
                "frontend_attributes",
            }
        ),
        numbers=True,
    ),
    Dialect(
        package="CoreML.",
        node="CoreML.Specification.MILSpec.Operation",
        called="",
        name=[3, 1],
        outputs=[3, 1],
        inputs=[[2, 2, 1, 1]],
        op="type",
        type_of=_type_in_program,
        own_weights=lambda node: [each.name for each in node.outputs if node.type == "const"],
        hidden=frozenset({"type", "inputs", "outputs", "blocks"}),
    ),
    Dialect(
        package="CoreML.",
        node="CoreML.Specification.NeuralNetworkLayer",
        called="",
        name=[1],
        outputs=[3],
        inputs=[[2]],
        op="",
        type_of=_type_in_network,
        own_weights=_held_by_network,
        hidden=frozenset({"name", "input", "output"}),
        kinds=100,
    ),
    Dialect(
        package="caffe.",
        node="caffe.LayerParameter",
        called="name",
        name=[1],
        outputs=[4],
        inputs=[[3]],
        op="type",
        type_of=_type_in_caffe,
        own_weights=_held_by_caffe,
        hidden=frozenset({"name", "type", "bottom", "top", "blobs"}),
        values_are_reassigned=True,
    ),
    Dialect(
        package="caffe.",
        node="caffe.V1LayerParameter",
        called="name",
        name=[4],
        outputs=[3],
        inputs=[[2]],
        op="type",
        type_of=_type_in_caffe,
        own_weights=_held_by_caffe,
        hidden=frozenset({"name", "type", "bottom", "top", "blobs"}),
        values_are_reassigned=True,
    ),
)


def dialects_of(type_name: str | None) -> Sequence[Dialect]:
    """The dialects that a model may be in, by the type of its root; none for models without graphs."""
    return [each for each in DIALECTS if type_name is not None and type_name.startswith(each.package)]
