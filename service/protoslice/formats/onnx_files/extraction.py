"""Parts of ONNX graphs between chosen values, as `onnx.utils.extract_model` makes them, without reading weights."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from protoslice import schema
from protoslice.errors import InvalidInput, NotFound, Unsupported
from protoslice.formats.bytes import Bytes
from protoslice.formats.onnx import TENSOR
from protoslice.formats.onnx_files.element_types import INNER_OUTPUTS, ElementTypes
from protoslice.formats.onnx_files.messages import (
    INITIALIZER,
    INITIALIZERS_AS_INPUTS,
    INPUT,
    NODE,
    OUTPUT,
    VALUE_INFO,
    Field,
    OnnxProto,
    declaration,
    name_of,
    wrapped,
)

_ABOUT: Final = frozenset({2, 10})
"""Name and documentation of the graph."""
_MOST_VALUES: Final = 1000
"""Limit of the inputs and outputs that a request names."""
_NODE: Final = re.compile(r"graph\.node\[([0-9]+)\](.*)", re.DOTALL)
_INITIALIZER: Final = re.compile(r"graph\.initializer\[([0-9]+)\]")
_CONSTANT: Final = re.compile(r"graph\.node\[([0-9]+)\]\.attribute\[[0-9]+\]\.t")
_INNER: Final = re.compile(r"graph\.node\[([0-9]+)\]\.attribute\[[0-9]+\]\.g\.output\[([0-9]+)\]")


@dataclass(frozen=True, slots=True)
class SubModel:
    """The part of a graph between `inputs` and `outputs`; those of the graph itself where none are named."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


@dataclass(slots=True)
class OnnxNode:
    """A node of the graph: its operator, and names of values."""

    message: Any
    """Its NodeProto, without large fields."""
    inputs: list[str]
    """Values that it needs, those of inner graphs too."""
    outputs: Sequence[str]
    constant: int = 0
    """Element type of its tensor attribute; 0 without one."""
    inner: list[int] = field(default_factory=list)
    """Element types of the outputs of its first inner graph; 0 where unknown."""


@dataclass(slots=True)
class Graph:
    """Names in the graph of a model."""

    nodes: list[OnnxNode] = field(default_factory=list)
    initializers: dict[str, int] = field(default_factory=dict)
    """Number of each initializer by name."""
    types: dict[str, int] = field(default_factory=dict)
    """Element types of initializers."""
    infos: dict[str, Field] = field(default_factory=dict)
    """Fields that declare the type of a value."""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


def extracted(proto: OnnxProto, part: SubModel) -> tuple[Sequence[Field], list[Bytes | bytes]]:
    """Fields of the graph that make up `part`, in order, and fields that are new.

    `NotFound` for a name that the graph lacks, `InvalidInput` if the outputs need a value that is no input,
    `Unsupported` if the type of a value is neither declared nor can be worked out.
    """
    if len(part.inputs) + len(part.outputs) > _MOST_VALUES:
        raise InvalidInput(f"Name at most {_MOST_VALUES} inputs and outputs")
    graph = _graph(proto)
    inputs = part.inputs or tuple(name for name in graph.inputs if name not in graph.initializers)
    outputs = part.outputs or tuple(graph.outputs)
    nodes, initializers, needed = _needed(graph, inputs, outputs)
    inputs = tuple(dict.fromkeys(inputs)) if part.inputs else tuple(name for name in inputs if name in needed)
    for name in set(inputs).intersection(name for number in nodes for name in graph.nodes[number].outputs):
        raise InvalidInput(f"The node that makes the input {name[:200]!r} also makes a value that the outputs need")
    values = {name for number in nodes for name in (*graph.nodes[number].inputs, *graph.nodes[number].outputs)}
    kept = list(_kept(proto, graph, nodes, initializers, values - {*inputs, *outputs}))
    as_inputs = sorted(initializers & graph.infos.keys()) if proto.version < INITIALIZERS_AS_INPUTS else []
    types = ElementTypes(graph.nodes, graph.types, lambda name: _declared(proto, graph, name))
    new = list[Bytes | bytes]()
    for number, names in ((INPUT, (*inputs, *as_inputs)), (OUTPUT, dict.fromkeys(outputs))):
        for name in names:
            new += wrapped(number, _info(proto, graph, name, types))
    return kept, new


def _needed(graph: Graph, inputs: Collection[str], outputs: Collection[str]) -> tuple[set[int], set[str], set[str]]:
    """Numbers of the nodes, names of the initializers, and those of the inputs, that `outputs` need."""
    makers = {name: number for number, node in enumerate(graph.nodes) for name in node.outputs if name}
    for name in (*inputs, *outputs):
        if name not in makers and name not in graph.initializers and name not in graph.inputs:
            raise NotFound(f"The graph has no value {name[:200]!r}")
    given, nodes, initializers, needed = set(inputs), set[int](), set[str](), set[str]()
    left, seen = list(outputs), set[str]()
    while left:
        name = left.pop()
        if name in seen or not name:
            continue
        seen.add(name)
        if name in given:
            needed.add(name)
        elif name in makers:
            if makers[name] not in nodes:
                nodes.add(makers[name])
                left += graph.nodes[makers[name]].inputs
        elif name in graph.initializers:
            initializers.add(name)
        elif name in graph.inputs:
            raise InvalidInput(f"The outputs need the value {name[:200]!r}: name it as an input too")
    return nodes, initializers, needed


def _kept(
    proto: OnnxProto, graph: Graph, nodes: Collection[int], initializers: Collection[str], inner: Collection[str]
) -> Iterator[Field]:
    """Fields of the graph that stay: nodes, initializers, types of values in between, and names."""
    numbers = {graph.initializers[name] for name in initializers}
    infos = {info.start for name, info in graph.infos.items() if name in inner}
    node = initializer = -1
    for each in proto.graph:
        node += each.number == NODE
        initializer += each.number == INITIALIZER
        if each.number == NODE:
            kept = node in nodes
        elif each.number == INITIALIZER:
            kept = initializer in numbers
        elif each.number == VALUE_INFO:
            kept = each.start in infos
        else:
            kept = each.number in _ABOUT
        if kept:
            yield each


def _graph(proto: OnnxProto) -> Graph:
    """Names of the nodes, initializers and values of the graph."""
    graph = Graph()
    _read_nodes(proto, graph)
    kind = schema.bundled().message_class(TENSOR)
    for found in proto.document.find([TENSOR]):
        tensor = schema.parsed(kind, found.skeleton)
        if placed := _INITIALIZER.fullmatch(found.path):
            graph.initializers[tensor.name] = int(placed[1])
            graph.types[tensor.name] = tensor.data_type
        elif placed := _CONSTANT.fullmatch(found.path):
            graph.nodes[int(placed[1])].constant = tensor.data_type
    _read_inner(proto, graph)
    for each in proto.graph:
        if each.number in {INPUT, OUTPUT, VALUE_INFO}:
            name = name_of(proto, each)
            graph.infos.setdefault(name, each)
            if each.number != VALUE_INFO:
                (graph.inputs if each.number == INPUT else graph.outputs).append(name)
    return graph


def _read_nodes(proto: OnnxProto, graph: Graph) -> None:
    """Add the nodes of the graph; what those of inner graphs take, the node around them needs."""
    kind = schema.bundled().message_class("onnx.NodeProto")
    inside = list[tuple[int, Sequence[str]]]()
    for found in proto.document.find(["onnx.NodeProto"]):
        placed = _NODE.fullmatch(found.path)
        if placed is None:
            continue
        node = schema.parsed(kind, found.skeleton)
        if placed[2]:
            inside.append((int(placed[1]), node.input))
        else:
            graph.nodes.append(OnnxNode(node, [*node.input], node.output))
    for number, names in inside:
        graph.nodes[number].inputs.extend(names)


def _read_inner(proto: OnnxProto, graph: Graph) -> None:
    """Note the element types of the outputs of inner graphs."""
    kind = schema.bundled().message_class("onnx.ValueInfoProto")
    if not any(node.message.op_type in INNER_OUTPUTS for node in graph.nodes):
        return
    for found in proto.document.find(["onnx.ValueInfoProto"]):
        placed = _INNER.fullmatch(found.path)
        if placed is not None:
            inner = graph.nodes[int(placed[1])].inner
            if len(inner) == int(placed[2]):  # those of a second graph have the same types
                declared: Any = schema.parsed(kind, found.skeleton)
                inner.append(declared.type.tensor_type.elem_type)


def _declared(proto: OnnxProto, graph: Graph, name: str) -> int:
    """The element type that the model declares of a value; 0 for none."""
    info = graph.infos.get(name)
    return 0 if info is None else int(declaration(proto, info).type.tensor_type.elem_type)


def _info(proto: OnnxProto, graph: Graph, name: str, types: ElementTypes) -> Bytes | bytes:
    """The declaration of a value: that of the model, else its name and element type."""
    info = graph.infos.get(name)
    if info is not None and declaration(proto, info).HasField("type"):
        return proto.bytes(info.content, info.end)
    element = types.of(name)
    if not element:
        raise Unsupported(
            f"The type of the value {name[:200]!r} is not declared in the model: run onnx.shape_inference on the model "
            "first, or choose another value"
        )
    made: Any = schema.bundled().message_class("onnx.ValueInfoProto")(name=name)
    made.type.tensor_type.elem_type = element
    return bytes(made.SerializeToString(deterministic=True))
