"""Extraction of parts of ONNX graphs as models, and inference of element types from operators.

Neither extraction nor inference reads weights. `onnx_operators.json` holds rules for the types of each operator's
outputs. `tools/onnx_operators.py` derives these rules from `onnx.defs`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from itertools import chain
from sys import intern
from types import MappingProxyType
from typing import Any, Final, Protocol, Self

from protoslice import schema
from protoslice.errors import CorruptModel, InvalidInput, NotFound, Unsupported
from protoslice.formats.onnx import TENSOR
from protoslice.formats.onnx_messages import (
    FUNCTIONS,
    INITIALIZER,
    INITIALIZERS_AS_INPUTS,
    INPUT,
    NODE,
    OUTPUT,
    SPARSE_INITIALIZER,
    VALUE_INFO,
    Field,
    OnnxProto,
    declaration,
    numbered,
    wrapped,
)
from protoslice.sources.ropes import Rope

_FLOAT, _INT64, _STRING = 1, 7, 8
_CONSTANTS: Final[Mapping[str, int]] = {
    "value_float": _FLOAT, "value_floats": _FLOAT, "value_int": _INT64, "value_ints": _INT64,
    "value_string": _STRING, "value_strings": _STRING,
}  # fmt: skip
_TENSOR_TYPES: Final = 1 << 16
"""A number above all numbers of `TensorProto.DataType`."""
STANDARD: Final = frozenset({"", "ai.onnx"})
"""The two names of the standard operators' domain."""


class Maker(Protocol):
    """A node of a graph, with the facts that type inference needs."""

    @property
    def domain(self) -> str:
        """The domain of the node's operator."""

    @property
    def operator(self) -> str:
        """The name of the node's operator."""

    @property
    def inputs(self) -> Sequence[str]:
        """The names of the values that the node takes."""

    @property
    def attributes(self) -> Mapping[str, int]:
        """The integer values of the node's attributes by name; 0 for attributes of other types."""

    @property
    def outputs(self) -> Sequence[str]:
        """The names of the values that the node makes."""

    @property
    def constant(self) -> int:
        """The element type of the node's tensor attribute; 0 without such an attribute."""

    @property
    def inner(self) -> Sequence[int]:
        """The element type of each output of the node's inner graph; 0 if unknown."""


class ElementTypes:
    """The element types of a graph's values. The first access computes them."""

    def __init__(
        self,
        nodes: Sequence[Maker],
        declared: Mapping[str, int],
        opsets: Mapping[str, int],
        own: Iterable[tuple[str, str]],
    ) -> None:
        """Set the nodes, in the order of the graph, and the facts that the model states.

        `declared` maps declared values and initializers to element types. `opsets` maps the imported domains to
        versions. `own` holds the domain and name of each operator that the model itself defines.
        """
        self._nodes = nodes
        self._declared = declared
        self._opsets = {_domain(name): version for name, version in opsets.items()}
        self._own = frozenset((_domain(domain), name) for domain, name in own)

    def of(self, name: str) -> int:
        """Return the element type of the value `name` as a number of `TensorProto.DataType`; 0 if unknown."""
        return self._declared.get(name) or self._made.get(name, 0)

    def reason(self, name: str) -> str:
        """Return the reason why the type of the value `name` is unknown."""
        for node in self._nodes:
            if name in node.outputs:
                operator = f"{node.domain or 'ai.onnx'}.{node.operator}"[:200]
                if self._rules(node):
                    return f"the operator {operator} can make values of several types"
                return f"the operator {operator}, which makes it, is unknown"
        return "no operator makes this value"

    @cached_property
    def _made(self) -> Mapping[str, int]:
        """The element types of the values that nodes make, by name."""
        found = dict[str, int]()

        def known(name: str) -> int:
            return self._declared.get(name) or found.get(name, 0)

        for node in self._nodes:
            rules = self._rules(node)
            for number, name in enumerate(node.outputs):
                if name and rules:
                    found[name] = _by_rule(rules, number, node, known)
        return found

    def _rules(self, node: Maker) -> Sequence[str]:
        """Return the type rules for the outputs of a node. An operator that is not in the table has no rules."""
        domain = _domain(node.domain)
        opset = self._opsets.get(domain, 0)
        if (domain, node.operator) in self._own or not opset or opset > _table()["opsets"].get(domain, 0):
            return ()
        versions = _table()["operators"][domain].get(node.operator, ())
        return next((rules.split() for since, rules in reversed(versions) if since <= opset), ())


@cache
def _table() -> Any:
    return json.loads((files(__package__) / "onnx_operators.json").read_text("ascii"))


def _domain(name: str) -> str:
    return "" if name in STANDARD else name


def _by_rule(rules: Sequence[str], output: int, node: Maker, known: Callable[[str], int]) -> int:
    """Return the element type of the output number `output` of a node; 0 if unknown."""
    if output >= len(rules) and not rules[-1].endswith("*"):
        return 0
    alternatives = rules[min(output, len(rules) - 1)].removesuffix("*").split("|")
    return next(filter(None, (_by_alternative(each, output, node, known) for each in alternatives)), 0)


def _by_alternative(rule: str, output: int, node: Maker, known: Callable[[str], int]) -> int:
    kind, value = rule[0], rule[1:]
    if kind == "t":
        return int(value)
    if kind == "i":
        return next(filter(None, map(known, filter(None, _inputs(value, node.inputs)))), 0)
    if kind == "g":
        place = output + int(value)
        return node.inner[place] if place < len(node.inner) else 0
    if kind == "c":
        return node.constant or next((number for name, number in _CONSTANTS.items() if name in node.attributes), 0)
    stated = node.attributes.get(value, 0) if kind == "@" else 0
    return stated if 0 <= stated < _TENSOR_TYPES else 0


def _inputs(places: str, names: Sequence[str]) -> Iterable[str]:
    """Return the inputs at `places`, such as `0,2` or `1+`."""
    parts = ((int(each.rstrip("+")), each.endswith("+")) for each in places.split(","))
    return chain.from_iterable(names[first : None if many else first + 1] for first, many in parts)


# The rest extracts the part of a graph between chosen values, like `onnx.utils.extract_model`.

_ABOUT: Final = frozenset({2, 10, 16})
"""The graph's fields for name, documentation and metadata. Every extracted part keeps them."""
_ANNOTATION: Final = 14
"""The field for quantization annotations. A part keeps the annotations of its values."""
KNOWN: Final = _ABOUT | {NODE, INITIALIZER, SPARSE_INITIALIZER, INPUT, OUTPUT, VALUE_INFO, _ANNOTATION}
"""All known fields of a GraphProto. No parts are extracted from a graph with other fields."""
_MOST_VALUES: Final = 1000
"""Largest number of inputs and outputs that a request may name."""
_NODE_TYPE: Final = "onnx.NodeProto"
_NO_ATTRIBUTES: Final[Mapping[str, int]] = MappingProxyType({})
_NODE_WEIGHT: Final = 1000
_NAME_WEIGHT: Final = 300
"""The approximate memory in bytes of a node with its values, and of any other name."""
_ANNOTATION_TYPE: Final = "onnx.TensorAnnotation"
_ITEM: Final = re.compile(r"(graph(?:\.node\[[0-9]+\].*)?)\.([a-z_]+)\[([0-9]+)\](\.values)?", re.DOTALL)
"""The path of an item of the graph or of an inner graph. The groups are the graph's path, the field and the number."""
_INNER_GRAPH: Final = re.compile(r"(.*)\.node\[([0-9]+)\]\.attribute\[[0-9]+\]\.(?:g|graphs\[[0-9]+\])", re.DOTALL)
_INNER_OUTPUT: Final = re.compile(r"graph\.node\[([0-9]+)\]\.attribute\[[0-9]+\]\.g")
_CONSTANT: Final = re.compile(r"graph\.node\[([0-9]+)\]\.attribute\[[0-9]+\]\.(?:t|sparse_tensor\.values)")


@dataclass(frozen=True, slots=True)
class SubModel:
    """The part of a graph between the values `inputs` and `outputs`.

    The defaults are the graph's own inputs and outputs. Both tuples may also name nodes. A node in `inputs` means
    the inputs of the node, and a node in `outputs` means its outputs.
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


@dataclass(slots=True)
class OnnxNode:
    """A node of the graph: its operator, and the names of its values."""

    domain: str
    operator: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, int]
    """The integer values of the node's attributes by name; 0 for attributes of other types."""
    constant: int = 0
    """The element type of the node's tensor attribute; 0 without such an attribute."""
    inner: list[int] = field(default_factory=list)
    """The element type of each output of the node's first inner graph; 0 if unknown."""
    outer: Sequence[str] = ()
    """The names of the graph's values that the node's inner graphs use."""
    name: str = ""

    @classmethod
    def of(cls, message: Any) -> Self:
        """Make the node from a NodeProto, which may lack its large fields. Equal names share memory."""
        inputs, outputs, attributes = (
            tuple(map(intern, message.input)),
            tuple(map(intern, message.output)),
            _NO_ATTRIBUTES,
        )
        if message.attribute:
            attributes = {intern(each.name): int(each.i) for each in message.attribute}
        return cls(intern(message.domain), intern(message.op_type), inputs, outputs, attributes, name=message.name)


@dataclass
class Graph:
    """The names in a model's graph, from which parts of the graph can be found."""

    nodes: list[OnnxNode] = field(default_factory=list)
    initializers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The field and number of each initializer by name. Sparse initializers are included."""
    types: dict[str, int] = field(default_factory=dict)
    """The element types that the model states for initializers and declared values."""
    infos: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The field and number of each value's declaration, by the value's name."""
    annotations: list[tuple[str, Sequence[str]]] = field(default_factory=list)
    """The annotated values, each with the names of the tensors that the annotation refers to."""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    opsets: Mapping[str, int] = field(default_factory=dict)
    """The operator version of each domain."""
    own: Collection[tuple[str, str]] = ()
    """The domain and name of each operator that a function of the model defines."""

    @property
    def weight(self) -> int:
        """The approximate memory of this object in bytes."""
        return _NODE_WEIGHT * (1 + len(self.nodes)) + _NAME_WEIGHT * (len(self.initializers) + len(self.infos))

    @cached_property
    def makers(self) -> Mapping[str, int]:
        """The number of the node that makes a value, by the value's name."""
        return {name: number for number, node in enumerate(self.nodes) for name in node.outputs if name}

    @cached_property
    def named(self) -> Mapping[str, Sequence[OnnxNode]]:
        """The nodes by name; several nodes may share a name."""
        found = dict[str, list[OnnxNode]]()
        for node in self.nodes:
            found.setdefault(node.name, []).append(node)
        return found

    @cached_property
    def element_types(self) -> ElementTypes:
        """The element types of the graph's values."""
        return ElementTypes(self.nodes, self.types, self.opsets, self.own)


def extracted(
    proto: OnnxProto, part: SubModel, graph: Graph | None = None
) -> tuple[Sequence[Field], list[Rope | bytes]]:
    """Return the graph's fields that belong to `part`, in order, and the new fields that `part` needs.

    `graph` is the result of `graph_of(proto)`, if the caller has it already. Raise `NotFound` for a name that the
    graph lacks. Raise `InvalidInput` if the outputs need a graph input that `part` does not name. Raise `Unsupported`
    if the type of an input or output is not declared and cannot be computed.
    """
    if len(part.inputs) + len(part.outputs) > _MOST_VALUES:
        raise InvalidInput(f"Too many inputs and outputs: at most {_MOST_VALUES} are allowed")
    graph = graph or graph_of(proto)
    asked = _values(graph, part.inputs, taken=True)
    inputs = asked or tuple(name for name in graph.inputs if name not in graph.initializers)
    outputs = _values(graph, part.outputs, taken=False) or tuple(dict.fromkeys(graph.outputs))
    nodes, initializers, needed = _needed(graph, inputs, outputs)
    inputs = asked or tuple(name for name in inputs if name in needed)
    for name in set(inputs).intersection(name for number in nodes for name in graph.nodes[number].outputs):
        raise InvalidInput(
            f"{name[:200]!r} cannot be an input, because the outputs need the node that makes it: name another value"
        )
    kept_nodes = [graph.nodes[number] for number in nodes]
    values = {name for node in kept_nodes for name in (*node.inputs, *node.outer, *node.outputs)}
    kept = {(NODE, number) for number in nodes} | {graph.initializers[name] for name in initializers}
    between = values.difference(inputs, outputs) & graph.infos.keys()
    kept |= {graph.infos[name] for name in between if graph.infos[name][0] == VALUE_INFO}
    values |= {*inputs, *outputs, *initializers}
    kept |= {(_ANNOTATION, number) for number, (name, _) in enumerate(graph.annotations) if name in values}
    as_inputs = sorted(initializers & graph.infos.keys()) if proto.version < INITIALIZERS_AS_INPUTS else []
    fields = dict(numbered(proto.graph))
    new = list[Rope | bytes]()
    for number, names in ((INPUT, (*inputs, *as_inputs)), (OUTPUT, outputs)):
        for name in names:
            new += wrapped(number, _info(proto, name, fields.get(graph.infos.get(name, (0, 0))), graph.element_types))
    return [each for place, each in fields.items() if place in kept or place[0] in _ABOUT], new


def _values(graph: Graph, names: Sequence[str], *, taken: bool) -> tuple[str, ...]:
    """Return the values that `names` mean, each once.

    The name of a node means its outputs, or its inputs without constants if `taken` is set.
    """
    found = dict[str, None]()

    def is_constant(name: str) -> bool:
        maker = graph.makers.get(name)
        return name in graph.initializers or (maker is not None and graph.nodes[maker].operator == "Constant")

    for name in names:
        if name in graph.makers or name in graph.initializers or name in graph.inputs:
            found[name] = None
            continue
        nodes = graph.named.get(name, ()) if name else ()
        if len(nodes) > 1:
            raise InvalidInput(f"{len(nodes)} nodes have the name {name[:200]!r}: give the name of a value instead")
        if not nodes:
            raise NotFound(f"The graph has no value or node {name[:200]!r}")
        values = [each for each in (*nodes[0].inputs, *nodes[0].outer) if not is_constant(each)]
        found |= dict.fromkeys(filter(None, values if taken else nodes[0].outputs))
    return tuple(found)


def _needed(graph: Graph, inputs: Collection[str], outputs: Collection[str]) -> tuple[set[int], set[str], set[str]]:
    """Return what `outputs` depend on: the numbers of nodes, and the names of initializers and of `inputs`."""
    makers = graph.makers
    given, nodes, initializers, needed = set(inputs), set[int](), set[str](), set[str]()
    annotations, left, seen = dict(graph.annotations), list(outputs), set[str]()
    while left:
        name = left.pop()
        if name in seen or not name:
            continue
        seen.add(name)
        left += graph.initializers.keys() & annotations.get(name, ())
        if name in given:
            needed.add(name)
        elif name in makers:
            if makers[name] not in nodes:
                nodes.add(makers[name])
                left += (*graph.nodes[makers[name]].inputs, *graph.nodes[makers[name]].outer)
        elif name in graph.initializers:
            initializers.add(name)
        elif name in graph.inputs:
            raise InvalidInput(f"The outputs need the value {name[:200]!r}: name it as an input too")
        else:
            raise CorruptModel(
                f"The outputs need the value {name[:200]!r}, which nothing in the graph makes", path="graph"
            )
    return nodes, initializers, needed


def graph_of(proto: OnnxProto) -> Graph:
    """Return the names of the nodes, initializers and values of the graph.

    Raise `Unsupported` for a graph with unknown fields.
    """
    unknown = next((each.number for each in proto.graph if each.number not in KNOWN), None)
    if unknown is not None:
        raise Unsupported(
            f"The graph has the field {unknown}, which this version does not know: request the whole model"
        )
    graph, scopes = Graph(opsets=proto.opsets, own=frozenset(_own_operators(proto))), _Scopes()
    for item, node in _parsed(proto, _NODE_TYPE):
        if item and item[1] == "graph":
            graph.nodes.append(OnnxNode.of(node))
        elif item:
            scopes.add(item[1], node.output, node.input)
    _read_declarations(proto, graph, scopes)
    _read_tensors(proto, graph, scopes)
    for number, names in scopes.outer():
        graph.nodes[number].outer = tuple(names)
    if any(each.number == _ANNOTATION for each in proto.graph):
        for item, annotation in _parsed(proto, _ANNOTATION_TYPE):
            if item and item[1] == "graph":
                named = [each.value for each in annotation.quant_parameter_tensor_names]
                graph.annotations.append((annotation.tensor_name, named))
    return graph


def _parsed(proto: OnnxProto, type_name: str) -> Iterator[tuple[re.Match[str] | None, Any]]:
    """Yield the match of each message's path, and the message, parsed without its large fields.

    The match says in which graph the message is; it is None for messages elsewhere.
    """
    kind = schema.bundled().message_class(type_name)
    for found in proto.document.find([type_name]):
        yield _ITEM.fullmatch(found.path), schema.parsed(kind, found.skeleton)


def _read_declarations(proto: OnnxProto, graph: Graph, scopes: _Scopes) -> None:
    """Record the declared values of the graph, and the inputs and outputs of inner graphs."""
    for item, info in _parsed(proto, "onnx.ValueInfoProto"):
        if item is None:
            continue
        place, number = {"input": INPUT, "output": OUTPUT}.get(item[2], VALUE_INFO), int(item[3])
        element = info.type.tensor_type.elem_type
        if item[1] == "graph":
            graph.infos.setdefault(info.name, (place, number))
            if element:
                graph.types.setdefault(info.name, element)
            if place != VALUE_INFO:
                (graph.inputs if place == INPUT else graph.outputs).append(info.name)
        elif place == INPUT:
            scopes.add(item[1], (info.name,), ())
        elif place == OUTPUT:
            scopes.add(item[1], (), (info.name,))
            inner = _INNER_OUTPUT.fullmatch(item[1])
            if inner and len(graph.nodes[int(inner[1])].inner) == number:  # a second inner graph has the same types
                graph.nodes[int(inner[1])].inner.append(element)


def _read_tensors(proto: OnnxProto, graph: Graph, scopes: _Scopes) -> None:
    """Record the initializers of the graph and of inner graphs, and the element types of constants."""
    kind = schema.bundled().message_class(TENSOR)
    for found in proto.document.find([TENSOR]):
        item = _ITEM.fullmatch(found.path)
        if item and item[2] in {"initializer", "sparse_initializer"}:
            tensor = schema.parsed(kind, found.skeleton)
            if item[1] != "graph":
                scopes.add(item[1], (tensor.name,), ())
                continue
            graph.initializers[tensor.name] = INITIALIZER if not item[4] else SPARSE_INITIALIZER, int(item[3])
            graph.types[tensor.name] = tensor.data_type
        elif placed := _CONSTANT.fullmatch(found.path):
            graph.nodes[int(placed[1])].constant = schema.parsed(kind, found.skeleton).data_type


class _Scopes:
    """The values that inner graphs make and use, by the path of the inner graph."""

    def __init__(self) -> None:
        self._made = dict[str, set[str]]()
        self._used = dict[str, dict[str, None]]()

    def add(self, path: str, made: Collection[str], used: Collection[str]) -> None:
        """Record that the graph at `path` makes the values `made` and uses the values `used`."""
        self._made.setdefault(path, set()).update(made)
        self._used.setdefault(path, {}).update(dict.fromkeys(used))

    def outer(self) -> Iterator[tuple[int, Collection[str]]]:
        """Yield the number of each node with inner graphs, and the main graph's values that its inner graphs use."""
        for path in sorted(self._used, key=len, reverse=True):  # inner graphs come before the graphs that contain them
            placed = _INNER_GRAPH.fullmatch(path)
            if placed is None:
                continue
            free = sorted(self._used[path].keys() - self._made[path] - {""})
            if placed[1] == "graph":
                yield int(placed[2]), free
            else:
                self.add(placed[1], (), free)


def _own_operators(proto: OnnxProto) -> Iterator[tuple[str, str]]:
    """Yield the domain and name of each operator that a function of the model defines."""
    if any(each.number == FUNCTIONS for each in proto.fields):
        for _, function in _parsed(proto, "onnx.FunctionProto"):
            yield function.domain, function.name


def _info(proto: OnnxProto, name: str, declared: Field | None, types: ElementTypes) -> Rope | bytes:
    """Return the model's declaration of a value, or else a new declaration with name and element type.

    Raise `Unsupported` if the element type is unknown.
    """
    if declared is not None:
        kind = declaration(proto, declared).type
        if kind.WhichOneof("value") and (kind.tensor_type.elem_type or not kind.HasField("tensor_type")):
            return proto.bytes(declared.content, declared.end)
    element = types.of(name)
    if not element:
        raise Unsupported(
            f"The type of the value {name[:200]!r} is not declared in the model, and {types.reason(name)}: run "
            "onnx.shape_inference on the model first, or choose another value"
        )
    made: Any = schema.bundled().message_class("onnx.ValueInfoProto")(name=name)
    made.type.tensor_type.elem_type = element
    return bytes(made.SerializeToString(deterministic=True))
