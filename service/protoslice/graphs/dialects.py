"""Dialects of graphs: messages that are nodes, and the fields that name values of other nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from google.protobuf import text_format

from protoslice.schema import text_of

LONGEST_TEXT: Final = 200
"""Characters of an attribute's value."""
MOST_ATTRIBUTES: Final = 64

Message = Any
"""A message whose class is made at run time."""


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
    holds: Callable[[Message], Sequence[str]]
    """Names of tensors that a node may hold in itself."""
    hidden: frozenset[str]
    """Fields that are no attributes."""
    qualified: bool = False
    """True when inputs are written as in TensorFlow: `node`, `node:output` and `^node`."""
    ordered: bool = False
    """True when values may be made again, and a node takes the one before it."""
    numbers: bool = False
    """True when values are named by numbers."""
    kinds: int = 0
    """First number of the fields of which one is the operation, where `op` is empty."""
    declares: str = ""
    """Message type that declares a value by its name; empty where a node tells the types of its values."""

    def attributes(self, node: Message) -> tuple[tuple[str, str], ...]:
        """Names and values of all that is set in `node` beside its name, its operation and its links."""
        named = (each for field, value in node.ListFields() for each in self._named(field, value))
        return tuple((name, text[:LONGEST_TEXT]) for name, text in islice(named, MOST_ATTRIBUTES))

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


DIALECTS: Final = (
    Dialect(
        package="tensorflow.",
        node="tensorflow.NodeDef",
        called="signature.name",
        name=[1],
        outputs=[1],
        inputs=[[3]],
        op="op",
        holds=_held_by_tensorflow,
        hidden=frozenset({"name", "op", "input"}),
        qualified=True,
    ),
    Dialect(
        package="onnx.",
        node="onnx.NodeProto",
        called="name",
        name=[3],
        outputs=[2],
        inputs=[[1]],
        op="op_type",
        holds=lambda node: [],
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
        holds=lambda node: [],
        hidden=frozenset({"type", "inputs", "outputs"}),
        ordered=True,
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
        holds=lambda node: [node.name] if node.opcode == "constant" else [],
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
        holds=lambda node: [each.name for each in node.outputs if node.type == "const"],
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
        holds=_held_by_network,
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
        holds=_held_by_caffe,
        hidden=frozenset({"name", "type", "bottom", "top", "blobs"}),
        ordered=True,
    ),
    Dialect(
        package="caffe.",
        node="caffe.V1LayerParameter",
        called="name",
        name=[4],
        outputs=[3],
        inputs=[[2]],
        op="type",
        holds=_held_by_caffe,
        hidden=frozenset({"name", "type", "bottom", "top", "blobs"}),
        ordered=True,
    ),
)


def dialects_of(type_name: str | None) -> Sequence[Dialect]:
    """The dialects that a model may be in, by the type of its root; none for models without graphs."""
    return [each for each in DIALECTS if type_name is not None and type_name.startswith(each.package)]
