"""The graphs of one model: their dialects, and their nodes, which the core finds and links."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from protoslice import _core, schema
from protoslice.errors import InvalidInput, NotFound, Unsupported
from protoslice.facts import GraphEntry, GraphValue
from protoslice.formats.coreml import dtype_of as mil_dtype
from protoslice.formats.hlo import dtype_of as hlo_dtype
from protoslice.formats.onnx import dtype_of as onnx_dtype
from protoslice.formats.paddle import PROGRAM, is_json, json_as_proto
from protoslice.formats.paddle_files import dtype_of as paddle_dtype
from protoslice.formats.tensorflow import known as tensorflow_dtype
from protoslice.schema import text_of
from protoslice.sources.ropes import Rope
from protoslice.tensors.dtypes import Dtype
from protoslice.tensors.model import Model, RootProto

LONGEST_TEXT: Final = 200
"""Largest number of characters of an attribute's value that are returned."""
MAX_ATTRIBUTES: Final = 64
MAX_DIMENSIONS: Final = 32
"""Largest number of dimensions of a listed shape. A value with more dimensions is listed without a shape."""
_WITHOUT_ELEMENTS: Final = frozenset({0, 13, 14, 17})
"""XLA's element types without dimensions: the invalid type, tuples, opaque values and tokens."""
_SHAPED: Final = frozenset({"Placeholder", "VarHandleOp", "VariableV2"})
"""TensorFlow's operators whose attribute `shape` is the shape of their value or variable."""

Message = Any
"""A message whose class is made at run time."""
Type = tuple[str | None, Iterable[int] | None]
"""The dtype of a value, and the length of each dimension. Unknown lengths are negative. Either member may be None."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """A dialect: how the messages of one format represent graphs."""

    package: str
    """The prefix of the type names of the dialect's models."""
    node: str
    """The message type of a node."""
    called: str
    """The path of a graph's name in the message that holds the graph; empty if graphs have no names."""
    name: Sequence[int]
    """The field numbers that lead from a node to its name. `outputs` and `inputs` are such lists too."""
    outputs: Sequence[int]
    inputs: Sequence[Sequence[int]]
    op: str
    """The field with the operation."""
    type_of: Callable[[Message, str], Type]
    """A function that reads the type of a value from the declaration or node that states it."""
    own_weights: Callable[[Message], Sequence[str]]
    """A function that returns the names of tensors that the node itself may hold."""
    hidden: frozenset[str]
    """The fields that are not attributes."""
    tensorflow_inputs: bool = False
    """True when inputs have TensorFlow's syntax: `node`, `node:output` and `^node`."""
    values_are_reassigned: bool = False
    """True when several nodes may make values of one name. A node then takes the value that was last made before it."""
    numbers: bool = False
    """True when numbers identify the values, instead of names."""
    kinds: int = 0
    """The first number of the fields that stand for operations if `op` is empty. A node sets its operation's field.
    """
    declares: str = ""
    """The message type that declares a value and its type; empty if nodes state the types of their values."""

    def value(self, name: str, message: Message) -> GraphValue:
        """Return the value `name` with the type that `message` states."""
        dtype, lengths = self.type_of(message, name)
        shape = None if lengths is None else tuple(length if length >= 0 else None for length in lengths)
        return GraphValue(name, dtype, shape if shape is None or len(shape) <= MAX_DIMENSIONS else None)

    def attributes(self, node: Message) -> tuple[tuple[str, str], ...]:
        """Return the name and value of each attribute of `node`. All fields that are not hidden are attributes."""
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
    """Return `message` as one line of text format, without the fields `without`.

    If only a single number or text is set, return just its value.
    """
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
    """Return the dialects that a model with the root type `type_name` may have; none for models without graphs."""
    return [each for each in DIALECTS if type_name is not None and type_name.startswith(each.package)]


MAX_GRAPHS: Final = 200
"""Largest number of graphs that are listed."""
_LARGER: Final = 10
"""An inner graph with more than this many times the nodes of the outermost graph is the main graph."""
_SMALL: Final = 4096
"""The size in bytes up to which the fields of a node are kept, such as attributes and the list of operands."""
_MAX_MAKERS: Final = 200_000
"""Largest number of nodes that are searched for the node that makes a value."""
_MAX_MADE: Final = 64
"""Largest number of values of each searched node that are compared."""
_LARGEST_NODE: Final = 1 << 20
"""The size in bytes of the largest node that is parsed. Of a larger node, only the name is returned."""


class Graphs:
    """The nodes of all graphs of a model. Graphs and nodes have numbers."""

    def __init__(self, model: Model) -> None:
        """Find and link the nodes of `model`. This call blocks and reads the whole root except for its large fields.

        Raise `Unsupported` for a model without graphs.
        """
        proto, type_name, self._made = model.proto, model.type, 0
        if is_json(model):
            proto, type_name = json_as_proto(model.files[model.root]), PROGRAM
            self._made = proto.document.view()[2].size
        dialects = dialects_of(type_name) if proto is not None else ()
        if proto is None or not dialects:
            raise Unsupported(
                f"{model.type or 'such a file'} has no graph: supported are TensorFlow, ONNX, Paddle, XLA, Core ML and "
                "Caffe"
            )
        self._proto: RootProto = proto
        for self.dialect in dialects:
            self._found = self._proto.document.find([self.dialect.node], small=_SMALL)
            if len(self._found):
                break
        dialect: Dialect = self.dialect
        node = schema.bundled().message_class(dialect.node).DESCRIPTOR
        self.links: _core.Links = self._found.links(
            dialect.name,
            dialect.outputs,
            dialect.inputs,
            op=[node.fields_by_name[dialect.op].number] if dialect.op else [],
            kinds=dialect.kinds,
            qualified=dialect.tensorflow_inputs,
            ordered=dialect.values_are_reassigned,
            numbers=dialect.numbers,
        )
        self._message = schema.bundled().message_class(dialect.node)
        self.entries = tuple(self._entry(*graph) for graph in self.links.graphs(0, MAX_GRAPHS))
        """The facts about the first graphs, at most `MAX_GRAPHS`."""

    @property
    def weight(self) -> int:
        """The memory in bytes of the nodes, the links, and a program that was translated from JSON."""
        return self.links.held + self._made

    def number(self, path: str | None) -> int:
        """Return the number of the graph at `path`, or of the main graph if `path` is None.

        The main graph is the outermost graph with the most nodes. An inner graph with more than ten times as many nodes
        takes its place. Raise `NotFound` if there is no such graph.
        """
        if path is not None:
            number = self.links.graph(path)
            if number is None:
                raise NotFound("The message at this path holds no nodes of a graph", path=path)
            return number
        if not self.entries:
            raise NotFound("The model has no graph nodes")
        outer = min(
            range(len(self.entries)),
            key=lambda number: (self.entries[number].path.count("."), -self.entries[number].nodes),
        )
        largest = max(range(len(self.entries)), key=lambda number: self.entries[number].nodes)
        # The outermost graph of a SavedModel may only call functions, which contain the actual model.
        return largest if self.entries[largest].nodes > _LARGER * self.entries[outer].nodes else outer

    def holder(self, node: str) -> str | None:
        """Return the path of the graph that contains the node at the path `node`; None if `node` is not a path."""
        path = node.rpartition(".")[0]
        return path if node.endswith("]") and self.links.graph(path) is not None else None

    def entry(self, graph: int) -> GraphEntry:
        """Return the path, the name and the number of nodes of the graph number `graph`."""
        return self.entries[graph] if graph < MAX_GRAPHS else self._entry(*self.links.graphs(graph, 1)[0])

    def path(self, graph: int) -> str:
        """Return the path of the graph number `graph`."""
        return self.links.graphs(graph, 1)[0][0]

    def node(self, graph: int, called: str) -> int:
        """Return the number of the node with the path or name `called`.

        If there is no such node, return a node with an input or output of this name. Raise `NotFound` if no
        node has one.
        """
        number = self.links.node(graph, called)
        if number is None:
            number = next(self._makers(graph, called.__eq__), None)
        if number is None:
            place = self.path(graph) or "the root"
            raise NotFound(
                f"The graph at {place} has no node {called[:200]!r}, and no node with an input or output of this name"
            )
        return number

    def valued(self, graph: int, text: str, limit: int) -> list[int]:
        """Return the numbers of at most `limit` nodes with an output whose name contains all words of `text`.

        Case is ignored. If there are no such nodes, return a node with the input `text`, or no node.
        """
        words = text.lower().split()
        if not words:
            return []
        found = list(islice(self._makers(graph, lambda name: all(word in name.lower() for word in words)), limit))
        if not found and (taker := self.links.node(graph, text.strip())) is not None:
            return [taker]
        return found

    def _makers(self, graph: int, fits: Callable[[str], bool]) -> Iterator[int]:
        """Yield the nodes of a graph that have a fitting output. `fits` returns True for the name of such an output."""
        if self.dialect.numbers or self.dialect.tensorflow_inputs:  # outputs have the names of their nodes
            return
        path, first, _ = self.links.graphs(graph, 1)[0]
        # The numbers of inner graphs' nodes lie between the numbers of the graph's nodes.
        for node in range(first, min(len(self._found), first + _MAX_MAKERS)):
            if any(map(fits, self.made(node, _MAX_MADE))) and self.node_path(node).rpartition(".")[0] == path:
                yield node

    def node_path(self, node: int) -> str:
        """Return the path of the node number `node`."""
        return self._found[node].path

    def called(self, node: int) -> str:
        """Return the name of a node, even of a very large node; empty if the node has no name."""
        return schema.text_of(self.links.name(node))

    def operator(self, node: int, message: Any) -> str:
        """Return the operation of the node number `node`, whose message is `message`."""
        dialect, descriptor = self.dialect, message.DESCRIPTOR
        if dialect.kinds:
            numbers = [number for number, *_ in self._found[node].places if number >= dialect.kinds]
            return "".join(descriptor.fields_by_number[number].name for number in numbers[-1:])
        value, enum = getattr(message, dialect.op), descriptor.fields_by_name[dialect.op].enum_type
        return str(value) if enum is None else str(enum.values_by_number[value].name)

    def values(self, node: int, limit: int) -> list[str]:
        """Return the names of a node's first inputs in the order of the slots, at most `limit` names."""
        return [schema.text_of(name) for name in self.links.values(node, limit)]

    def made(self, node: int, limit: int) -> list[str]:
        """Return the names of a node's first outputs, at most `limit` names."""
        return [schema.text_of(name) for name in self.links.made(node, limit)]

    def declarations(self) -> _core.Findings | None:
        """Return the messages that declare the types of values; None if nodes state these types.

        This call blocks and reads as much of the model as finding the nodes does.
        """
        return self._proto.document.find([self.dialect.declares], small=_SMALL) if self.dialect.declares else None

    def empty(self) -> Any:
        """Return an empty node message."""
        return self._message()

    def message(self, node: int) -> tuple[Any, int]:
        """Return the message of a node without its large fields, and the size of the message in bytes.

        The message is empty if the node is too large or damaged.
        """
        skeleton = self._found[node].skeleton
        if len(skeleton) > _LARGEST_NODE:
            return self._message(), 0
        try:
            return schema.parsed(self._message, skeleton), len(skeleton)
        except DecodeError:
            return self._message(), len(skeleton)

    def _entry(self, path: str, first: int, count: int) -> GraphEntry:
        return GraphEntry(path, self._called(path) or path, count)

    def _called(self, path: str) -> str:
        if not self.dialect.called:
            return ""
        try:
            _, _, core = self._proto.document.view(f"{path}.{self.dialect.called}".removeprefix("."))
        except (NotFound, InvalidInput):
            return ""
        return schema.text_of(Rope(core, self._proto.sources).read(0, min(core.size, _SMALL)))
