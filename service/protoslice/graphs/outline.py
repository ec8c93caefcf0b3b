"""The outline of a graph, which divides it into nested blocks, and the section of a graph between two places."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from google.protobuf.message import DecodeError

from protoslice import schema
from protoslice.errors import InvalidInput, NotFound
from protoslice.facts import GraphBlock, GraphLevel, GraphLink, GraphOperator, GraphSection, GraphStep, GraphValue
from protoslice.graphs.graphs import Graphs

_OPS: Final = 5
"""Largest number of operators that are listed for a block."""
_MAX_VALUES: Final = 64
"""Largest number of inputs that are listed for a graph. The same limit applies to outputs."""
_MAX_STEPS: Final = 200
_MAX_SPANS: Final = 1000
_MAX_PORTS: Final = 500
"""Largest number of inputs of a section, and the most outputs. An extracted part of a model may have just as many."""
# Uploaded nodes may be as large as the whole file.
_ROOM: Final = 4 << 20
"""The bytes of nodes and declarations that are parsed for one level."""
_SLOTS: Final = 200_000
"""Largest number of inputs of nodes that are read for one level to find names of values."""
_NAME_FIELD: Final = [1]
"""The field path of a value's name in its declaration."""
_LONGEST: Final = 4096
"""Largest number of characters of a name. Longer names are truncated."""
_NODE_BYTES: Final = 60
"""The approximate memory of a node in an outline, in bytes."""
_WEIGHT_BYTES: Final = 120
"""The approximate memory of the address of a weight, in bytes."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor that nodes may use."""

    name: str
    address: str
    elements: int


@dataclass(frozen=True, slots=True)
class Ends:
    """Two places in a graph. Each place is a first node and a number of consecutive nodes."""

    start: str
    end: str
    start_nodes: int = 1
    end_nodes: int = 1


_Part = tuple[int | None, int, int, int]
"""A part of a block: the part's block number or None, its first node, this node's place, and the number of nodes."""
_Valued = tuple[int | None, GraphValue]
"""A pair of a node and a value. The node takes or makes the value; None stands for an unknown node."""


class GraphOutline:
    """One graph of a model, divided into blocks."""

    def __init__(self, graphs: Graphs, graph: int, weights: Sequence[Weight]) -> None:
        """Divide the graph number `graph` into blocks. `weights` are the tensors of the model. This call blocks."""
        self._graphs = graphs
        self._graph = graph
        self._declared = graphs.declarations()
        self._addresses = [each.address for each in weights]
        dialect = graphs.dialect
        tensors = [(each.name, each.address.removeprefix("path:"), each.elements) for each in weights]
        is_own = dialect.tensorflow_inputs or dialect.numbers
        self._strip = graphs.links.strip(graph, tensors, graphs.entry(graph).name, is_own)

    @property
    def weight(self) -> int:
        """The approximate memory of the outline in bytes."""
        declared = 0 if self._declared is None else self._declared.held
        nodes = self._graphs.entry(self._graph).nodes
        return declared + _NODE_BYTES * nodes + _WEIGHT_BYTES * len(self._addresses)

    def level(self, block: int, node: str | None) -> GraphLevel:
        """Return the parts of the block number `block`, or of the innermost block that contains `node`.

        This call blocks. Raise `NotFound` if there is no such block.
        """
        if node is not None:
            block = self._strip.trail(self._graphs.node(self._graph, node))[-1]
        if self._strip.block(block) is None:
            raise NotFound(f"The graph has no block {block}")
        entry, messages = self._graphs.entry(self._graph), _Messages(self._graphs)
        parts = self._strip.parts(block)
        inputs, outputs = (self._inputs(messages), self._outputs(messages)) if not block else ([], [])
        ends = [] if block else self._outer_links(parts, inputs, outputs)
        return GraphLevel(
            graphs=self._graphs.entries,
            graph=entry.path,
            block=block,
            trail=self._trail(block),
            nodes=entry.nodes,
            parts=tuple(self._part(part, messages) for part in parts),
            links=(*self._links(block, messages), *ends),
            inputs=tuple(value for _, value in inputs),
            outputs=tuple(value for _, value in outputs),
        )

    def section(self, ends: Ends) -> GraphSection:
        """Return the nodes on all paths between two places, in either direction. This call blocks."""
        start, end = self._span(ends.start, ends.start_nodes), self._span(ends.end, ends.end_nodes)
        if start > end:
            start, end = end, start
        most = (_MAX_SPANS, _MAX_STEPS, _MAX_PORTS)
        count, elements, spans, nodes, inputs, weights, last = self._strip.section(start, end, most)
        messages = _Messages(self._graphs)
        outputs = dict.fromkeys(name for node in last for name in self._graphs.made(node, _MAX_PORTS) if name)
        return GraphSection(
            count=count,
            elements=elements,
            spans=tuple(spans),
            nodes=tuple(self._step(node, messages) for node in nodes),
            weights=tuple(map(schema.text_of, weights)),
            inputs=tuple(map(schema.text_of, inputs)),
            outputs=tuple(islice(outputs, _MAX_PORTS)),
        )

    def _trail(self, block: int) -> tuple[int, ...]:
        trail = [block]
        while trail[-1] and (about := self._strip.block(trail[-1])) is not None:
            trail.append(about[1])
        return tuple(reversed(trail))

    def _part(self, part: _Part, messages: _Messages) -> GraphBlock:
        number, node, first, count = part
        kind, name, item, items = "node", self._graphs.called(node), None, 0
        if number is not None:
            kind, name, item = self._about(number)
            items = self._strip.item_count(number)
        elements, bars = self._strip.weights(first, first + count)
        heaviest = self._strip.heaviest(first, first + count)
        return GraphBlock(
            id=number,
            kind=kind,
            name=name[:_LONGEST],
            number=item,
            items=items,
            first=first,
            nodes=count,
            path=self._graphs.node_path(node),
            ops=tuple(
                GraphOperator(messages.operator(node), count)
                for node, count in self._strip.operators(first, first + count, _OPS)
            ),
            elements=elements,
            bars=tuple(bars) if number is not None and elements else (),
            weight=None if heaviest is None else self._addresses[heaviest],
        )

    def _about(self, number: int) -> tuple[str, str, int | None]:
        """Return the kind, the name and the number of a block."""
        about = self._strip.block(number)
        assert about is not None
        kind, _, label, (begin, _) = about
        if label is not None:
            name = schema.text_of(label).strip("/.:")
            return kind, name, None
        parts = [part for part, *_ in self._strip.parts(number)]
        first, last = (self._label(part) if part is not None else "" for part in (parts[0], parts[-1]))
        if kind == "repeat":  # a repeat has the name of its first part without the number
            return kind, first.rstrip("0123456789").rstrip("/.:_-"), None
        return kind, f"{first} – {last}" if kind == "round" and first and last else "", begin

    def _label(self, number: int) -> str:
        about = self._strip.block(number)
        return "" if about is None or about[2] is None else schema.text_of(about[2]).strip("/.:")

    def _links(self, block: int, messages: _Messages) -> tuple[GraphLink, ...]:
        edges = self._strip.edges(block)
        named = [(edge, edge[3][0], self._name(edge[3], messages)) for edge in edges]
        values = self._typed([(node, name) for _, node, name in named], messages)
        return tuple(
            GraphLink(source, target, count, value)
            for ((source, target, count, _), _, _), value in zip(named, values, strict=True)
        )

    def _name(self, example: tuple[int, int, int], messages: _Messages) -> str:
        """Return the name of a value. `example` holds the node that makes it, a node that takes it, and the slot.

        If numbers identify values, return the name of the node that makes the value.
        """
        maker, node, slot = example
        return self._graphs.called(maker) if self._graphs.dialect.numbers else messages.value(node, slot)

    def _typed(self, values: Sequence[tuple[int, str]], messages: _Messages) -> list[GraphValue]:
        """Return values with their types. `values` holds pairs of the node that makes a value and the value's name."""
        if self._declared is None:
            value = self._graphs.dialect.value
            return [value(name[:_LONGEST], messages.of(node)) for node, name in values]
        names = [name.encode() for _, name in values]
        numbers = self._declared.named(self._graphs.path(self._graph), _NAME_FIELD, names)
        return [self._declaration(name, number, messages) for (_, name), number in zip(values, numbers, strict=True)]

    def _declaration(self, name: str, number: int | None, messages: _Messages) -> GraphValue:
        if number is None or self._declared is None:
            return GraphValue(name[:_LONGEST], None, None)
        message = messages.declaration(self._declared[number].skeleton)
        return self._graphs.dialect.value((name or message.name)[:_LONGEST], message)

    def _outer_links(
        self, parts: Sequence[_Part], inputs: Sequence[_Valued], outputs: Sequence[_Valued]
    ) -> list[GraphLink]:
        """Return the links from the graph's inputs to parts, and from parts to the graph's outputs."""
        firsts = [first for _, _, first, _ in parts]
        links = dict[tuple[bool, int], GraphLink]()
        for is_input, (node, value) in [(True, each) for each in inputs] + [(False, each) for each in outputs]:
            place = self._strip.place(node) if node is not None else None
            if place is not None:
                part = bisect_right(firsts, place) - 1
                source, target = (None, part) if is_input else (part, None)
                links.setdefault((is_input, part), GraphLink(source, target, 1, value))
        return list(links.values())

    def _inputs(self, messages: _Messages) -> list[_Valued]:
        found = self._strip.free(0, self._graphs.entry(self._graph).nodes, _MAX_VALUES)
        named = [(node, schema.text_of(name)) for node, name in found]
        if self._declared is None:
            return [(node, GraphValue(name[:_LONGEST], None, None)) for node, name in named]
        return list(zip((node for node, _ in named), self._typed(named, messages), strict=True))

    def _outputs(self, messages: _Messages) -> list[_Valued]:
        """Return the values that the graph declares as outputs. Without declarations, return the unused values."""
        ends = self._strip.ends(0, self._graphs.entry(self._graph).nodes, _MAX_VALUES)
        if self._graphs.dialect.numbers:
            made = [(node, self._graphs.called(node)) for node in ends]
        else:
            made = [(node, name) for node in ends for name in self._graphs.made(node, _MAX_VALUES) if name]
        made = made[:_MAX_VALUES]
        makers = {name: node for node, name in made}
        below = f"{self._graphs.path(self._graph)}.output["
        declared = self._declared.below(below, _MAX_VALUES) if self._declared is not None else []
        if declared:
            values = [self._declaration("", number, messages) for number in declared]
            return [(makers.get(value.name), value) for value in values]
        return list(zip((node for node, _ in made), self._typed(made, messages), strict=True))

    def _span(self, called: str, nodes: int) -> tuple[int, int]:
        place = self._strip.place(self._graphs.node(self._graph, called))
        if place is None or nodes < 1:
            raise InvalidInput("Invalid section: name a node of the graph, and a number of nodes of at least 1")
        return place, min(place + nodes, self._graphs.entry(self._graph).nodes)

    def _step(self, node: int, messages: _Messages) -> GraphStep:
        name = self._graphs.called(node)[:_LONGEST]
        return GraphStep(self._graphs.node_path(node), name, messages.operator(node))


class _Messages:
    """The nodes that are parsed for one response. Their total size is limited."""

    def __init__(self, graphs: Graphs) -> None:
        self._graphs = graphs
        self._left = _ROOM
        self._slots = _SLOTS
        self._nodes: dict[int, Any] = {}

    def of(self, node: int) -> Any:
        """Return the message of a node; an empty message once the limit is reached."""
        if node not in self._nodes:
            message, size = self._graphs.message(node) if self._left > 0 else (self._graphs.empty(), 0)
            self._left -= size
            self._nodes[node] = message
        return self._nodes[node]

    def declaration(self, data: bytes) -> Any:
        """Parse the declaration of a value. Return an empty message if it is damaged, and once the limit is reached."""
        self._left -= len(data)
        message = schema.bundled().message_class(self._graphs.dialect.declares)
        try:
            return schema.parsed(message, data if self._left > 0 else b"")
        except DecodeError:
            return message()

    def operator(self, node: int) -> str:
        """Return the operation of a node."""
        return self._graphs.operator(node, self.of(node))[:_LONGEST]

    def value(self, node: int, slot: int) -> str:
        """Return the name of a node's input in a slot; empty if there is no such slot, or if the limit is reached."""
        self._slots -= slot + 1
        if self._slots < 0:
            return ""
        values = self._graphs.values(node, slot + 1)
        return values[slot] if slot < len(values) else ""
